package sandbox

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// numbered is a text of forty lines, some of them changed: 3:x, or 3: for none.
func numbered(changes ...string) string {
	var list []string
	for i := range 40 {
		list = append(list, strconv.Itoa(i)+"\n")
	}
	for _, c := range changes {
		at, text, _ := strings.Cut(c, ":")
		i, _ := strconv.Atoi(at)
		if list[i] = ""; text != "" {
			list[i] = text + "\n"
		}
	}
	return strings.Join(list, "")
}

// shown returns the changed files by name, each as choose returns it, called while it is shown.
func (l *filesLab) shown(choose func(FileDiff) (FileDiff, error)) map[string]FileDiff {
	l.t.Helper()
	c, err := l.Changes(l.t.Context(), ".", l.dir)
	if err != nil {
		l.t.Fatal(err)
	}
	all := map[string]FileDiff{}
	err = c.Patch(l.t.Context(), func(f FileDiff) (err error) {
		all[f.Path], err = choose(f)
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return all
}

// has compares a file of the directory, and its permissions.
func (l *filesLab) has(name, content string, mode os.FileMode) {
	l.t.Helper()
	b, err := os.ReadFile(filepath.Join(l.dir, name))
	if err != nil {
		l.t.Fatal(err)
	}
	if diff := cmp.Diff(content, string(b)); diff != "" {
		l.t.Errorf("%s (-want +got):\n%s", name, diff)
	}
	if info, err := os.Stat(filepath.Join(l.dir, name)); err != nil || info.Mode() != mode {
		l.t.Errorf("%s: %v, %v; want %v", name, info.Mode(), err, mode)
	}
}

// What is left of a file stays a change of the session, whatever is done here: nothing undoes it, and
// nothing of the user's is lost.
func TestApplyPart(t *testing.T) {
	t.Parallel()
	l := newFilesLab(t, map[string]string{"f": numbered(), "whole": "1\n", "not": "1\n"})
	l.inside(map[string]string{"f": numbered("3:three", "20:", "36:last"), "whole": "2\n", "not": "2\n"})
	if err := os.Chmod(filepath.Join(l.root, "workspace", "f"), 0o755); err != nil {
		t.Fatal(err)
	}
	first := func(f FileDiff) (FileDiff, error) {
		if f.Path != "f" {
			return f, nil
		}
		return f.Part(false, []bool{true, false, false})
	}
	files := l.shown(first)
	done, err := l.Apply(t.Context(), ".", l.dir, ApplyOptions{Shown: []FileDiff{files["whole"], files["f"]}, Count: true})
	if want := []LineCount{{Path: "f", Added: 1, Removed: 1}, {Path: "whole", Added: 1, Removed: 1}}; err != nil || cmp.Diff(want, done.Counts) != "" {
		t.Fatalf("Apply() = %+v, %v; want the counts %v", done, err, want)
	}
	l.has("f", numbered("3:three"), 0o644)
	l.has("not", "1\n", 0o644)
	l.equal("what is left", l.changed(), "modified f, modified not")
	l.equal("a sync", l.sync(SyncOptions{}), "")
	left := l.shown(func(f FileDiff) (FileDiff, error) { return f, nil })["f"]
	if text := string(left.Hunks); left.Added != 1 || left.Removed != 2 || strings.Contains(text, "three") && !strings.Contains(text, " three") || left.Was.Mode == left.Now.Mode {
		t.Errorf("%+v is left, %s; want the other two hunks and the permissions", left, text)
	}
	if _, err := left.Part(false, []bool{true, false}); err == nil {
		t.Error("Part() of a file that is no longer shown returns no error")
	}

	// An edit here, then another part: the former text is kept in the session.
	l.here(map[string]string{"f": numbered("3:three", "12:mine")})
	l.equal("a sync of an edit", l.sync(SyncOptions{}), "conflict f")
	last := l.shown(func(f FileDiff) (FileDiff, error) {
		if f.Path != "f" {
			return f, nil
		}
		return f.Part(true, []bool{false, true})
	})["f"]
	done, err = l.Apply(t.Context(), ".", l.dir, ApplyOptions{Shown: []FileDiff{last}})
	if err != nil || len(done.Changes) != 1 || done.Changes[0].By != ChangedByBoth {
		t.Fatalf("Apply() = %+v, %v; want one merged file", done, err)
	}
	l.has("f", numbered("3:three", "12:mine", "36:last"), 0o755)
	if _, err := l.Apply(t.Context(), ".", l.dir, ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	l.has("f", numbered("3:three", "12:mine", "20:", "36:last"), 0o755)
	l.equal("in the end", l.changed(), "")
}

// A part may be the permissions alone: then the content stays. A check writes nothing.
func TestApplyPartOfMode(t *testing.T) {
	t.Parallel()
	l := newFilesLab(t, map[string]string{"f": numbered()})
	l.inside(map[string]string{"f": numbered("3:three")})
	if err := os.Chmod(filepath.Join(l.root, "workspace", "f"), 0o755); err != nil {
		t.Fatal(err)
	}
	f := l.shown(func(f FileDiff) (FileDiff, error) { return f.Part(true, nil) })["f"]
	if _, err := l.Apply(t.Context(), ".", l.dir, ApplyOptions{Shown: []FileDiff{f}, Check: true, Count: true}); err != nil {
		t.Fatal(err)
	}
	l.has("f", numbered(), 0o644)
	if _, err := l.Apply(t.Context(), ".", l.dir, ApplyOptions{Shown: []FileDiff{f}}); err != nil {
		t.Fatal(err)
	}
	l.has("f", numbered(), 0o755)
	l.equal("what is left", l.changed(), "modified f")
}

// A part of a file that either side has brought further since it was shown is refused: applied to
// another former text, what was left out would be undone here.
func TestApplyPartStale(t *testing.T) {
	t.Parallel()
	l := newFilesLab(t, map[string]string{"f": numbered(), "new": "-"})
	l.inside(map[string]string{"f": numbered("3:three", "36:last"), "new": "1\n"})
	part := l.shown(func(f FileDiff) (FileDiff, error) {
		if f.Path == "new" {
			if _, err := f.Part(false, []bool{true}); err == nil {
				t.Error("Part() of a new file returns no error")
			}
			return f, nil
		}
		return f.Part(false, []bool{true, false})
	})["f"]
	if _, err := l.Apply(t.Context(), ".", l.dir, ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, inside := range []string{numbered("3:three", "36:last"), numbered("3:three", "36:last", "39:more")} {
		l.inside(map[string]string{"f": inside})
		if _, err := l.Apply(t.Context(), ".", l.dir, ApplyOptions{Shown: []FileDiff{part}}); err == nil || !strings.Contains(err.Error(), "look at it again") {
			t.Errorf("Apply() of a part that is old = %v; want an error that says so", err)
		}
		l.has("f", numbered("3:three", "36:last"), 0o644)
	}
}
