package transfer

import (
	"bytes"
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// onlyGo wants files whose names end in .go, and nothing of the directory vendor.
func onlyGo(name string, dir bool) (bool, bool) {
	if name == "vendor" || strings.HasPrefix(name, "vendor/") {
		return true, true
	}
	return dir || path.Ext(name) != ".go", false
}

// What is not wanted is not copied in either direction, and a directory only if something in it is wanted.
func TestSkip(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{"a.go": "1", "b": "", "c/d/e.go": "1", "c/d/f.go": "1", "c/x/y": "", "c-d/e": "", "e/": "", "vendor/a.go": "1", "z.go -> b": ""})
	want := map[string]string{"a.go": "1", "c/": "", "c/d/": "", "c/d/e.go": "1", "c/d/f.go": "1", "z.go": "-> b"}
	var buf bytes.Buffer
	out := NewPacker(&buf)
	out.Skip = onlyGo
	if err := errors.Join(out.Tree(dir), out.Close()); err != nil || out.Files != 3 || out.Size != 3 {
		t.Errorf("%d files of %d bytes, %v; want 3 of 3", out.Files, out.Size, err)
	}
	if diff := cmp.Diff(want, list(t, &buf)); diff != "" {
		t.Errorf("what is packed (-want +got):\n%s", diff)
	}

	var all bytes.Buffer
	packed := NewPacker(&all)
	packed.Record = true
	if err := errors.Join(packed.Tree(dir), packed.Close()); err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	report, err := unpack(&all, to, Options{Skip: onlyGo, Base: NewState([]Entry{{Name: "vendor/old.go", Kind: Dir}})})
	if err != nil || report.Files != 3 || report.Bytes != 3 || len(report.Deleted) != 0 {
		t.Errorf("the report is %+v, %v", report, err)
	}
	after := t.TempDir()
	plant(t, after, map[string]string{"a.go": "1", "c/d/e.go": "1", "c/d/f.go": "1", "z.go -> b": ""})
	if diff := cmp.Diff(tree(t, after), tree(t, to)); diff != "" {
		t.Errorf("what is taken (-want +got):\n%s", diff)
	}
}

// A file or a directory gets the name that is asked for.
func TestPackAs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{"f": "1", "d/g": "2"})
	var buf bytes.Buffer
	out := NewPacker(&buf)
	err := errors.Join(out.As(dir+"/f", "new"), out.As(dir+"/d", "other"), out.As(dir+"/d/.", ""), out.Content("given", strings.NewReader("3"), 1), out.Close())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"new": "1", "other/": "", "other/g": "2", "g": "2", "given": "3"}
	if diff := cmp.Diff(want, list(t, &buf)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
