package transfer

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// stateAt is what a scan finds in a directory.
func stateAt(t *testing.T, dir string) State {
	t.Helper()
	s, err := OpenScan(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Read(t.Context(), nil), s.Close()); err != nil {
		t.Fatal(err)
	}
	return s.State
}

// bring sends an update of all that differs between base and the directory from, and returns the verdicts.
func bring(t *testing.T, base State, from, to string, ask bool) (map[string]Verdict, error) {
	t.Helper()
	deltas := Deltas(base, stateAt(t, from))
	stream := bytes.NewBuffer(AppendUpdate(nil, deltas, ask))
	if !ask {
		var names []string
		for _, d := range deltas {
			if d.Now.Kind != 0 {
				names = append(names, d.Name)
			}
		}
		out := NewPacker(stream)
		if err := errors.Join(out.Names(from, names), out.Close()); err != nil {
			t.Fatal(err)
		}
	}
	var answer bytes.Buffer
	if err := Update(&answer, to, stream); err != nil {
		return nil, err
	}
	verdicts, err := ParseVerdicts(answer.Bytes(), len(deltas))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Verdict{}
	for i, d := range deltas {
		got[d.Name] = verdicts[i]
	}
	return got, nil
}

// What only this machine has changed is done; what the session has changed stays as it is.
func TestUpdate(t *testing.T) {
	t.Parallel()
	was := map[string]string{
		"same": "1", "mine": "1", "theirs": "1", "both": "1", "alike": "1", "gone": "1", "gone-theirs": "1", "gone-both": "1", "theirs-gone": "1",
		"dir/a": "1", "dir/b": "1", "kept/a": "1", "file-dir": "1", "dir-file/a": "1", "full-file/a": "1", "link -> same": "", "way/f": "1",
	}
	here := map[string]string{
		"same": "1", "mine": "two", "theirs": "1", "both": "here", "alike": "both", "gone-both/": "", "theirs-gone": "2",
		"file-dir/x/y": "2", "dir-file": "2", "full-file": "2", "link -> mine": "", "new/deep/f": "2", "twice": "2", "way/f": "1", "way/g": "2",
	}
	delete(here, "gone-both/")
	theirs := map[string]string{
		"same": "1", "mine": "1", "theirs": "their", "both": "there", "alike": "both", "gone": "1", "gone-theirs": "3",
		"dir/a": "1", "dir/b": "1", "kept/a": "1", "kept/new": "3", "file-dir": "1", "dir-file/a": "1", "full-file/a": "1", "full-file/new": "3",
		"link -> same": "", "twice": "3", "elsewhere/f": "1", "way -> elsewhere": "",
	}
	base, from := t.TempDir(), t.TempDir()
	plant(t, base, was)
	plant(t, from, here)
	state := stateAt(t, base)
	want := map[string]Verdict{
		"mine": Taken, "both": Clash, "alike": Alike, "gone": Taken, "gone-theirs": Clash, "gone-both": Alike, "theirs-gone": Gone,
		"dir": Taken, "dir/a": Taken, "dir/b": Taken, "kept": Taken, "kept/a": Taken, "file-dir": Taken, "file-dir/x": Taken, "file-dir/x/y": Taken,
		"dir-file": Taken, "dir-file/a": Taken, "full-file": Taken, "full-file/a": Taken, "link": Taken, "new": Taken, "new/deep": Taken, "new/deep/f": Taken,
		"twice": Clash, "way/g": Clash,
	}
	for _, ask := range []bool{true, false} {
		to := t.TempDir()
		plant(t, to, theirs)
		before := tree(t, to)
		got, err := bring(t, state, from, to, ask)
		if err != nil {
			t.Fatal(err)
		}
		if !ask {
			want["kept"], want["full-file"] = Alike, Clash
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("verdicts, ask %t (-want +got):\n%s", ask, diff)
		}
		if ask {
			if diff := cmp.Diff(before, tree(t, to)); diff != "" {
				t.Errorf("asking has changed it:\n%s", diff)
			}
			continue
		}
		after := t.TempDir()
		plant(t, after, map[string]string{
			"same": "1", "mine": "two", "theirs": "their", "both": "there", "alike": "both", "gone-theirs": "3", "kept/new": "3", "file-dir/x/y": "2",
			"dir-file": "2", "full-file/new": "3", "link -> mine": "", "new/deep/f": "2", "twice": "3", "elsewhere/f": "1", "way -> elsewhere": "",
		})
		if diff := cmp.Diff(tree(t, after), tree(t, to)); diff != "" {
			t.Errorf("the session has (-want +got):\n%s", diff)
		}
		again, err := bring(t, state, from, to, false)
		for name, v := range again {
			if was := got[name]; err != nil || was == Taken && v != Alike || was != Taken && v != was {
				t.Errorf("done again, %s is %c, %v; it was %c", name, v, err, was)
			}
		}
	}
}

// A file that does not come, or not as it was announced, is not replaced.
func TestUpdateMissed(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), t.TempDir()
	plant(t, from, map[string]string{"a": "new", "b": "new", "c": "new"})
	plant(t, to, map[string]string{"a": "old", "b": "old", "c": "old"})
	base := stateAt(t, to)
	deltas := Deltas(base, stateAt(t, from))
	plant(t, from, map[string]string{"b": "two", "c": "longer"})
	stream := bytes.NewBuffer(AppendUpdate(nil, deltas, false))
	out := NewPacker(stream)
	if err := errors.Join(out.Names(from, []string{"b", "c", "none"}), out.Close()); err != nil {
		t.Fatal(err)
	}
	var answer bytes.Buffer
	if err := Update(&answer, to, stream); err != nil || answer.String() != "mmm." {
		t.Errorf("Update() answers %q, %v", answer.String(), err)
	}
	if diff := cmp.Diff(base, stateAt(t, to)); diff != "" {
		t.Errorf("it has changed:\n%s", diff)
	}
	if list, err := os.ReadDir(to); len(list) != 3 || err != nil {
		t.Errorf("%d files lie there, %v; want 3", len(list), err)
	}
}

// A stream that was cut is an error wherever that is, or leaves each file as it was or as it is to be.
func TestUpdateCut(t *testing.T) {
	t.Parallel()
	from := t.TempDir()
	plant(t, from, map[string]string{"a": "new", "d/b": "new"})
	deltas := Deltas(nil, stateAt(t, from))
	whole := bytes.NewBuffer(AppendUpdate(nil, deltas, false))
	out := NewPacker(whole)
	if err := errors.Join(out.Names(from, []string{"a", "d/b"}), out.Close()); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < whole.Len(); n += 1 + n/50 {
		to := t.TempDir()
		var answer bytes.Buffer
		err := Update(&answer, to, bytes.NewReader(whole.Bytes()[:n]))
		verdicts, parseErr := ParseVerdicts(answer.Bytes(), len(deltas))
		for i, d := range deltas {
			b, readErr := os.ReadFile(filepath.Join(to, d.Name))
			if d.Now.Kind == File && readErr == nil && string(b) != "new" {
				t.Errorf("of %d bytes, %s is %q", n, d.Name, b)
			}
			if err == nil && (parseErr != nil || d.Now.Kind == File && (verdicts[i] == Taken) != (readErr == nil)) {
				t.Errorf("of %d bytes, %s is %v, and the answer %q", n, d.Name, readErr, answer.String())
			}
		}
	}
	if err := Update(io.Discard, t.TempDir()+"/none", bytes.NewReader(whole.Bytes())); !errors.As(err, new(MissingError)) {
		t.Errorf("Update() of no directory = %v", err)
	}
	for _, b := range []string{"", "x", "?", "!\xff\xff\xff\xff\xff\xff\xff\xff\x7f"} {
		if err := Update(io.Discard, t.TempDir(), bytes.NewReader([]byte(b))); err == nil {
			t.Errorf("Update(%q) is not an error", b)
		}
	}
}

// Whatever three trees there are: what the session has changed is never lost, and what it has not
// changed is as it is here afterwards.
func TestUpdateModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 16))
		was, from, to := t.TempDir(), t.TempDir(), t.TempDir()
		for _, dir := range []string{was, from, to} {
			randomSide(r).plant(t, dir)
		}
		base, here, before := stateAt(t, was), stateAt(t, from), stateAt(t, to)
		verdicts, err := bring(t, base, from, to, false)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		after := stateAt(t, to)
		for _, e := range before {
			old, wasThere := base.Find(e.Name)
			now, ok := after.Find(e.Name)
			if (!wasThere || !old.Same(e)) && (!ok || !now.Same(e)) {
				t.Errorf("seed %d: %s of the session is lost", seed, e.Name)
			}
		}
		for name, v := range verdicts {
			want, wanted := here.Find(name)
			got, is := after.Find(name)
			if (v == Taken || v == Alike) && wanted && (!is || !got.Same(want)) {
				t.Errorf("seed %d: %s is %c, and not as it is here", seed, name, v)
			}
			if v == Missed || v == Taken && !wanted && is {
				t.Errorf("seed %d: %s is %c", seed, name, v)
			}
		}
	}
}
