package transfer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// scanned is the state of a directory.
func scanned(t *testing.T, dir string) State {
	t.Helper()
	var list []Entry
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		e := Entry{Name: name, Kind: kindOf(info), Mode: info.Mode().Perm()}
		switch e.Kind {
		case Link:
			e.Target, err = root.Readlink(name)
		case File:
			f, openErr := root.Open(name)
			if openErr != nil {
				return openErr
			}
			defer f.Close()
			var sum Sum
			sum, e.Size, err = sumOf(f)
			e.Sum = &sum
		case Dir, Other:
		}
		list = append(list, e)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return NewState(list)
}

// three are the directories of a three-way application: as it was, here, in the session.
type three struct{ was, here, theirs string }

func newThree(t *testing.T, was, here, theirs map[string]string) three {
	t.Helper()
	top := t.TempDir()
	d := three{filepath.Join(top, "was"), filepath.Join(top, "here"), filepath.Join(top, "theirs")}
	for _, dir := range []string{d.was, d.here, d.theirs} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	plant(t, d.was, was)
	plant(t, d.here, here)
	plant(t, d.theirs, theirs)
	return d
}

// apply applies everything; merged are what files become that both have changed.
func (d three) apply(t *testing.T, merged map[string]string, paths ...string) (*Applying, error) {
	t.Helper()
	a, err := OpenApply(d.here)
	if err != nil {
		return nil, err
	}
	plan, err := d.commit(t, a, merged, paths)
	return plan, errors.Join(err, a.Close())
}

// staged opens an apply of all that the session has changed, with the new contents at hand.
func (d three) staged(t *testing.T) *Apply {
	t.Helper()
	a, err := OpenApply(d.here)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := a.Plan(scanned(t, d.was), scanned(t, d.theirs), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range plan.Fetch {
		f, err := os.Open(filepath.Join(d.theirs, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(a.Stage(name, f), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

func (d three) commit(t *testing.T, a *Apply, merged map[string]string, paths []string) (*Applying, error) {
	t.Helper()
	plan, err := a.Plan(scanned(t, d.was), scanned(t, d.theirs), paths)
	if err != nil {
		return nil, err
	}
	if len(plan.Conflicts) > 0 {
		return plan, &ClashError{plan.Conflicts}
	}
	for _, name := range plan.Fetch {
		f, err := os.Open(filepath.Join(d.theirs, name))
		if err != nil {
			t.Fatal(err)
		}
		err = a.Stage(name, f)
		f.Close()
		if err != nil {
			return plan, err
		}
	}
	for _, m := range plan.Merge {
		if err := a.Merge(m.Name, []byte(merged[m.Name])); err != nil {
			return plan, err
		}
	}
	return plan, a.Commit()
}

func TestApply(t *testing.T) {
	t.Parallel()
	type tr = map[string]string
	for _, row := range []struct {
		name                    string
		was, here, theirs, want tr
		clash                   string
	}{
		{"modified", tr{"a": "1"}, tr{"a": "1", "mine": "x"}, tr{"a": "2"}, tr{"a": "2", "mine": "x"}, ""},
		{"added with its directories", tr{}, tr{}, tr{"d/e/f": "1", "d/empty/": ""}, tr{"d/e/f": "1", "d/empty/": ""}, ""},
		{"deleted", tr{"a": "1", "b": "1"}, tr{"a": "1", "b": "1"}, tr{"b": "1"}, tr{"b": "1"}, ""},
		{"a directory deleted", tr{"d/e/f": "1", "a": ""}, tr{"d/e/f": "1", "a": ""}, tr{"a": ""}, tr{"a": ""}, ""},
		{"a directory deleted with mine in it", tr{"d/f": "1"}, tr{"d/f": "1", "d/mine": "x"}, tr{}, tr{"d/mine": "x"}, ""},
		{"renamed", tr{"a": "1"}, tr{"a": "1"}, tr{"b": "1"}, tr{"b": "1"}, ""},
		{"mine alone", tr{"a": "1"}, tr{"a": "mine"}, tr{"a": "1"}, tr{"a": "mine"}, ""},
		{"the same on both sides", tr{"a": "1"}, tr{"a": "2"}, tr{"a": "2"}, tr{"a": "2"}, ""},
		{"deleted on both sides", tr{"a": "1"}, tr{}, tr{}, tr{}, ""},
		{"a file becomes a directory", tr{"a": "1"}, tr{"a": "1"}, tr{"a/b": "2"}, tr{"a/b": "2"}, ""},
		{"a directory becomes a file", tr{"a/b": "2"}, tr{"a/b": "2"}, tr{"a": "1"}, tr{"a": "1"}, ""},
		{"a directory with mine becomes a file", tr{"a/b": "2"}, tr{"a/b": "2", "a/mine": "x"}, tr{"a": "1"}, nil, "a (a directory here with files of yours"},
		{"a link", tr{"a": "1", "l -> a": ""}, tr{"a": "1", "l -> a": ""}, tr{"a": "1", "b": "1", "l -> b": ""}, tr{"a": "1", "b": "1", "l -> b": ""}, ""},
		{"a link becomes a directory", tr{"o/x": "1", "l -> o": ""}, tr{"o/x": "1", "l -> o": ""}, tr{"o/x": "1", "l/x": "2"}, tr{"o/x": "1", "l/x": "2"}, ""},
		{"a link that leads out", tr{}, tr{}, tr{"l -> ../x": "", "m -> /etc": "", "a": "1"}, tr{"a": "1"}, ""},
		{"deleted here", tr{"a": "1"}, tr{}, tr{"a": "2"}, nil, "a (deleted here, changed in the session)"},
		{"deleted there", tr{"a": "1"}, tr{"a": "2"}, tr{}, nil, "a (changed here, deleted in the session)"},
		{"made on both sides", tr{}, tr{"a": "2"}, tr{"a": "1"}, nil, "a (made on both sides"},
		{"below a directory that is a file here", tr{"d/a": "1"}, tr{"d": "file"}, tr{"d/a": "2"}, nil, "d/a (d is not a directory here)"},
		{"below a directory that is a link here", tr{"d/a": "1"}, tr{"o/a": "1", "d -> o": ""}, tr{"d/a": "2"}, nil, "d/a (d is not a directory here)"},
		{"new below a directory that was deleted here", tr{"d/a": "1"}, tr{}, tr{"d/a": "1", "d/b": "2"}, tr{"d/b": "2"}, ""},
		{"names with newlines", tr{"a\nb": "1"}, tr{"a\nb": "1"}, tr{"a\nb": "2", "\x01\xff": "x"}, tr{"a\nb": "2", "\x01\xff": "x"}, ""},
		{"repositories", tr{".git/config": "mine"}, tr{".git/config": "mine"}, tr{".git/config": "theirs", ".git/hooks/x": "x", "d/.GIT/config": "x", "e/.git": "gitdir: x", "a": "1"}, tr{".git/config": "mine", "d/": "", "e/": "", "a": "1"}, ""},
		{"a bare repository", tr{}, tr{}, tr{"b/HEAD": "x", "b/objects/": "", "b/refs/": "", "b/config": "x"}, tr{"b/": ""}, ""},
		{"credentials", tr{}, tr{".env": "mine"}, tr{".env": "theirs", "d/.ssh/id": "x"}, tr{".env": "mine", "d/": ""}, ""},
		{"our own name", tr{}, tr{}, tr{".sandboxbash-apply/journal": "[]", "a": "1"}, tr{"a": "1"}, ""},
		{"both, merged", tr{"a": "1"}, tr{"a": "2"}, tr{"a": "3"}, tr{"a": "merged"}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			d := newThree(t, row.was, row.here, row.theirs)
			before := tree(t, d.here)
			plan, err := d.apply(t, map[string]string{"a": "merged"})
			want := before
			if row.clash == "" {
				expected := t.TempDir()
				if err := os.Chmod(expected, 0o755); err != nil {
					t.Fatal(err)
				}
				plant(t, expected, row.want)
				want = tree(t, expected)
			}
			switch clash, isClash := errors.AsType[*ClashError](err); {
			case row.clash == "" && err != nil:
				t.Errorf("it ends with %v", err)
			case row.clash != "" && (!isClash || !strings.Contains(clash.Error(), row.clash)):
				t.Errorf("it ends with %v; want %q", err, row.clash)
			}
			if diff := cmp.Diff(want, tree(t, d.here)); diff != "" {
				t.Errorf("here (-want +got):\n%s", diff)
			}
			if err != nil {
				return
			}
			// What has been applied is not applied again.
			again := three{was: d.was, here: d.here, theirs: d.theirs}
			a, err := OpenCheck(again.here)
			if err != nil {
				t.Fatal(err)
			}
			defer a.tree.Root.Close()
			second, err := a.Plan(plan.State, scanned(t, d.theirs), nil)
			if err != nil || len(second.Changes)+len(second.Conflicts) > 0 {
				t.Errorf("a second apply: %+v, %v; want nothing", second, err)
			}
		})
	}
}

func TestApplyPaths(t *testing.T) {
	t.Parallel()
	type tr = map[string]string
	d := newThree(t, tr{"a": "1"}, tr{"a": "1"}, tr{"a": "2", "d/e/f": "1", "d/g": "1"})
	plan, err := d.apply(t, nil, "d/e")
	if err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(t.TempDir(), "want")
	plant(t, want, tr{"a": "1", "d/e/f": "1"})
	if diff := cmp.Diff(tree(t, want), tree(t, d.here)); diff != "" {
		t.Errorf("here (-want +got):\n%s", diff)
	}
	if _, ok := plan.State.Find("d/g"); ok {
		t.Error("the state has d/g, which was not applied")
	}
}

// A step that fails, at whatever place, leaves everything as it was: also where the process
// ends there, once the next apply begins.
func TestApplyInterrupted(t *testing.T) {
	t.Parallel()
	type tr = map[string]string
	was := tr{"a": "1", "gone": "1", "dir/x": "1", "kind": "1", "l -> a": "", "mode": "1"}
	theirs := tr{"a": "2", "kind/new": "1", "l -> kind": "", "n/m": "1", "mode": "1"}
	for _, killed := range []bool{false, true} {
		for n := 0; ; n++ {
			d := newThree(t, was, was, theirs)
			if err := os.Chmod(filepath.Join(d.theirs, "mode"), 0o755); err != nil {
				t.Fatal(err)
			}
			before := tree(t, d.here)
			a := d.staged(t)
			if n >= len(a.steps) {
				if err := errors.Join(a.Commit(), a.Close()); err != nil || len(a.steps) < 8 {
					t.Errorf("with %d steps it ends with %v", len(a.steps), err)
				}
				break
			}
			if killed {
				interrupt(t, a, n)
			} else {
				a.steps[n].Do = "fails"
				if err := a.Commit(); err == nil {
					t.Errorf("a step that fails is not an error")
				}
				if err := a.Close(); err != nil {
					t.Error(err)
				}
			}
			if killed {
				b, err := OpenApply(d.here)
				if err != nil {
					t.Fatalf("after %d steps: %v", n, err)
				}
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			}
			if diff := cmp.Diff(before, tree(t, d.here)); diff != "" {
				t.Errorf("killed %v, after %d steps (-want +got):\n%s", killed, n, diff)
			}
		}
	}
}

// A process that is killed while it undoes leaves the rest of that to the next one, at
// whatever step it was, and within one.
func TestUndoInterrupted(t *testing.T) {
	t.Parallel()
	type tr = map[string]string
	was := tr{"a": "1", "gone": "1", "dir/x": "1", "kind": "1", "l -> a": ""}
	theirs := tr{"a": "2", "kind/new": "1", "l -> kind": "", "n/m": "1"}
	for n := 0; ; n++ {
		d := newThree(t, was, was, theirs)
		before := tree(t, d.here)
		a := d.staged(t)
		steps := a.steps
		interrupt(t, a, len(steps))
		root, err := os.OpenRoot(d.here)
		if err != nil {
			t.Fatal(err)
		}
		s := &stage{root: root}
		for i := len(steps) - 1; i >= len(steps)-n; i-- {
			if err := s.undoStep(i, steps[i]); err != nil {
				t.Fatal(err)
			}
		}
		if i := len(steps) - 1 - n; i >= 0 && steps[i].Had {
			// Killed between the two halves of a move.
			if err := errors.Join(root.Remove(steps[i].Name), root.Link(oldName(i), steps[i].Name)); err != nil {
				t.Fatal(err)
			}
		}
		root.Close()
		b, err := OpenApply(d.here)
		if err != nil {
			t.Fatalf("after %d of %d steps were undone: %v", n, len(steps), err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(before, tree(t, d.here)); diff != "" {
			t.Errorf("after %d of %d steps were undone (-want +got):\n%s", n, len(steps), diff)
		}
		if n == len(steps) {
			break
		}
	}
}

// interrupt does what Commit does up to a step, and ends as a killed process does.
func interrupt(t *testing.T, a *Apply, n int) {
	t.Helper()
	for i, s := range a.steps {
		if s.Do == doPut && s.Link {
			if err := a.tree.Root.Symlink(s.Target, newName(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := a.stage.writeJournal(a.steps); err != nil {
		t.Fatal(err)
	}
	for i, s := range a.steps[:n] {
		if err := a.stage.do(i, s); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(closeLocked(a.stage.lock), a.tree.Root.Close()); err != nil {
		t.Fatal(err)
	}
}

// What the user writes while changes are applied is kept, and so is what they write after
// an apply was killed.
func TestApplyMeanwhile(t *testing.T) {
	t.Parallel()
	type tr = map[string]string
	d := newThree(t, tr{"a": "1", "b": "1"}, tr{"a": "1", "b": "1"}, tr{"a": "2", "b": "2", "c": "new"})
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(d.here, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a := d.staged(t)
	if _, err := OpenApply(d.here); !errors.Is(err, ErrBusy) {
		t.Errorf("a second apply: %v; want %v", err, ErrBusy)
	}
	write("b", "mine")
	if err := a.Commit(); !errors.Is(err, errMoved) {
		t.Errorf("Commit() = %v; want %v", err, errMoved)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if got := read(t, d.here, "a") + read(t, d.here, "b"); got != "1mine" {
		t.Errorf("the files are %q; want what they were", got)
	}
	write("b", "1")
	a = d.staged(t)
	write("c", "mine, too")
	if err := a.Commit(); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Commit() = %v; want %v", err, fs.ErrExist)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if got := read(t, d.here, "a") + read(t, d.here, "b") + read(t, d.here, "c"); got != "11mine, too" {
		t.Errorf("the files are %q; want what they were", got)
	}
	if err := os.Remove(filepath.Join(d.here, "c")); err != nil {
		t.Fatal(err)
	}
	a = d.staged(t)
	interrupt(t, a, len(a.steps))
	write("a", "mine, later")
	if _, err := OpenApply(d.here); err == nil || !strings.Contains(err.Error(), applyDir+"/o") {
		t.Errorf("OpenApply() after an edit = %v; want where the former content is", err)
	}
	if got := read(t, d.here, "a") + read(t, d.here, "b"); got != "mine, later1" {
		t.Errorf("the files are %q; want the edit, and the rest as it was", got)
	}
	if err := os.RemoveAll(filepath.Join(d.here, applyDir)); err != nil {
		t.Fatal(err)
	}
	b, err := OpenApply(d.here)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A journal that no apply has written undoes nothing.
func TestApplyForgedJournal(t *testing.T) {
	t.Parallel()
	for _, name := range []string{".git/hooks/x", "../x", "/x", "d/.GIT/config"} {
		dir := t.TempDir()
		plant(t, dir, map[string]string{applyDir + "/o0": "evil"})
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		s := &stage{root: root}
		if err := s.writeJournal([]step{{Do: doRemove, Name: name}}); err != nil {
			t.Fatal(err)
		}
		root.Close()
		if _, err := OpenApply(dir); err == nil || !strings.Contains(err.Error(), "which no apply writes") {
			t.Errorf("%s: OpenApply() = %v; want it refused", name, err)
		}
	}
}
