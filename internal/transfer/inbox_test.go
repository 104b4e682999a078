package transfer

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInbox(t *testing.T) {
	t.Parallel()
	const file = "-rw-r--r-- "
	const dir = "drwxr-xr-x"
	for _, tt := range []struct {
		name    string
		entries []entry
		want    map[string]string // nil: not looked at
		left    int
		err     string // part of it; "" is none
	}{
		{"plain", []entry{regular("a", "x"), regular("b c/ü", "y"), symlink("l", "a")}, map[string]string{"a": file + "x", "b c": dir, "b c/ü": file + "y", "l": "-> a"}, 0, ""},
		{"newline in a name", []entry{regular("a\nb", "x")}, map[string]string{"a\nb": file + "x"}, 0, ""},
		{"empty", nil, map[string]string{}, 0, ""},
		{"parent", []entry{regular("../evil", "x")}, nil, 0, "leads out"},
		{"parent inside", []entry{regular("a/../../evil", "x")}, nil, 0, "leads out"},
		{"parent that stays", []entry{regular("a/../b", "x")}, nil, 0, ""},
		{"absolute", []entry{regular("/evil", "x")}, nil, 0, "leads out"},
		{"nothing", []entry{{tar.Header{Name: "", Typeflag: tar.TypeReg}, "x"}}, nil, 0, "directory"},
		{"through a link that was left out", []entry{symlink("l", "/tmp"), regular("l/evil", "x")}, nil, 0, "comes twice"},
		{"file in place of a link", []entry{symlink("l", "a"), regular("l", "x")}, nil, 0, "comes twice"},
		{"link to itself", []entry{symlink("l", "l")}, map[string]string{}, 1, ""},
		{"hard link", []entry{{tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}, ""}}, map[string]string{}, 1, ""},
		{"device", []entry{{tar.Header{Name: "d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 5}, ""}}, map[string]string{}, 1, ""},
		{"block device", []entry{{tar.Header{Name: "d", Typeflag: tar.TypeBlock, Devmajor: 8}, ""}}, map[string]string{}, 1, ""},
		{"fifo", []entry{{tar.Header{Name: "f", Typeflag: tar.TypeFifo}, ""}}, map[string]string{}, 1, ""},
		{"setuid", []entry{{tar.Header{Name: "s", Typeflag: tar.TypeReg, Mode: 0o7755}, "x"}}, map[string]string{"s": "-rwxr-xr-x x"}, 0, ""},
		{"setgid directory", []entry{directory("s", 0o7777)}, map[string]string{"s": "drwxrwxrwx"}, 0, ""},
		{"read-only directory", []entry{directory("r", 0o555), regular("r/f", "x")}, map[string]string{"r": "drwxr-xr-x", "r/f": file + "x"}, 0, ""},
		{"twice", []entry{regular("a", "x"), regular("a", "y")}, nil, 0, "comes twice"},
		{"file, then directory", []entry{regular("a", "x"), regular("a/b", "y")}, nil, 0, "comes twice"},
		{"directory, then file", []entry{directory("a", 0o755), regular("a", "y")}, nil, 0, "comes twice"},
		{"too deep", []entry{regular(strings.Repeat("d/", 300)+"f", "x")}, nil, 0, "deeper than 256"},
		{"long name", []entry{regular(strings.Repeat("n", 256), "x")}, nil, 0, "more than 255"},
		{"long path", []entry{regular(strings.Repeat(strings.Repeat("d", 250)+"/", 17)+"x", "x")}, nil, 0, "limit is 4096"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			outer := t.TempDir()
			dir := filepath.Join(outer, "a", "b", "dir")
			report, err := unpack(bytes.NewReader(pack(t, tt.entries...)), dir, Options{})
			switch {
			case tt.err == "" && err != nil, tt.err != "" && err == nil:
				t.Errorf("unpack() = %v; want %q", err, tt.err)
			case tt.err != "" && !strings.Contains(err.Error(), tt.err):
				t.Errorf("unpack() = %v; want %q", err, tt.err)
			case err != nil && len(tree(t, outer)) > 1:
				t.Errorf("left behind by a refusal: %v", tree(t, outer))
			}
			if len(report.LeftOut) != tt.left {
				t.Errorf("left out %q; want %d", report.LeftOut, tt.left)
			}
			if tt.want != nil {
				tt.want["."] = "drwxr-xr-x"
				if diff := cmp.Diff(tt.want, tree(t, dir)); diff != "" {
					t.Errorf("made (-want +got):\n%s", diff)
				}
			}
			onlyInside(t, outer, dir)
		})
	}
}

// An entry whose directory does not come could make any number of them.
func TestInboxWithoutDirectory(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "a/b/c", Typeflag: tar.TypeReg, Mode: 0o644}), w.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := unpack(&buf, t.TempDir(), Options{}); err == nil || !strings.Contains(err.Error(), "without its directory") {
		t.Errorf("unpack(a/b/c alone) = %v; want a refusal", err)
	}
}

// What differs here from what was alike is not overwritten, and nothing else is
// written then.
func TestInboxConflicts(t *testing.T) {
	t.Parallel()
	base := []entry{
		directory("d", 0o755), regular("d/f", "f0"), regular("mine", "m0"), regular("both", "b0"), regular("alike", "a0"),
		regular("theirs", "t0"), symlink("link", "mine"), regular("removed", "r0"), regular("kept", "k0"),
	}
	here := map[string]string{
		"d/f": "f0", "mine": "m1", "both": "b1", "alike": "a1", "theirs": "t0", "link -> mine": "", "kept": "k0", "own": "o",
	}
	session := func(more ...entry) []byte {
		return pack(t, append([]entry{
			directory("d", 0o755), regular("d/f", "f0"), regular("mine", "m0"), regular("alike", "a1"), regular("theirs", "t2"),
			symlink("link", "theirs"), regular("new", "n"),
		}, more...)...)
	}
	for _, tt := range []struct {
		name             string
		more             []entry
		force            bool
		changed, blocked []string
		want             map[string]string // of what is not as it was here; "" is gone
	}{
		{"no conflict", nil, false, nil, nil, map[string]string{"theirs": "t2", "link": "-> theirs", "new": "n"}},
		{"both", []entry{regular("both", "b2")}, false, []string{"both"}, nil, nil},
		{"both, forced", []entry{regular("both", "b2")}, true, nil, nil, map[string]string{"theirs": "t2", "link": "-> theirs", "new": "n", "both": "b2"}},
		{"unknown", []entry{regular("own", "x")}, false, []string{"own"}, nil, nil},
		{"unknown and alike", []entry{regular("own", "o")}, false, nil, nil, map[string]string{"theirs": "t2", "link": "-> theirs", "new": "n"}},
		{"removed here", []entry{regular("removed", "r2")}, false, []string{"removed"}, nil, nil},
		{"removed here, unchanged there", []entry{regular("removed", "r0")}, false, nil, nil, map[string]string{"theirs": "t2", "link": "-> theirs", "new": "n"}},
		{"directory for a file of ours", []entry{directory("own", 0o755), regular("own/x", "y")}, false, []string{"own"}, nil, nil},
		{"directory for an untouched file", []entry{directory("kept", 0o755), regular("kept/x", "y")}, false, nil, nil, map[string]string{"theirs": "t2", "link": "-> theirs", "new": "n", "kept": "", "kept/x": "y"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			plant(t, dir, here)
			before := tree(t, dir)
			report, err := unpack(bytes.NewReader(session(tt.more...)), dir, Options{Base: stateOf(t, base...), Force: tt.force})
			conflict, _ := errors.AsType[*ConflictError](err)
			if tt.changed != nil || tt.blocked != nil {
				if conflict == nil || cmp.Diff(tt.changed, conflict.Changed) != "" || cmp.Diff(tt.blocked, conflict.Blocked) != "" {
					t.Fatalf("unpack() = %v; want a conflict of %q and %q", err, tt.changed, tt.blocked)
				}
				if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
					t.Errorf("something was written:\n%s", diff)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			after := tree(t, dir)
			for name, want := range tt.want {
				if got := after[name]; want != "" && !strings.HasSuffix(got, want) {
					t.Errorf("%s is %q; want %q", name, got, want)
				}
			}
			for name, was := range before {
				if _, ok := tt.want[name]; !ok && after[name] != was {
					t.Errorf("%s is %q; it was %q", name, after[name], was)
				}
			}
			if tt.name == "no conflict" {
				if diff := cmp.Diff([]string{"both", "kept"}, report.Deleted); diff != "" {
					t.Errorf("deleted in the session (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// The second time what was taken is what is known.
func TestInboxTwice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := unpack(bytes.NewReader(pack(t, regular("f", "1"), regular("g", "1"))), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "g"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	second, err := unpack(bytes.NewReader(pack(t, regular("f", "2"), regular("g", "1"))), dir, Options{Base: first.State})
	if err != nil || second.Written != 1 {
		t.Errorf("the second time: %+v, %v; want one file written", second, err)
	}
	_, err = unpack(bytes.NewReader(pack(t, regular("f", "3"), regular("g", "3"))), dir, Options{Base: second.State})
	if c, ok := errors.AsType[*ConflictError](err); !ok || cmp.Diff([]string{"g"}, c.Changed) != "" {
		t.Errorf("the third time: %v; want a conflict of g", err)
	}
}

// Neither a directory nor what lies behind a link is replaced, not even by force.
func TestInboxBlocked(t *testing.T) {
	t.Parallel()
	for name, archive := range map[string][]byte{
		"directory": pack(t, regular("dir", "x")),
		"link":      pack(t, regular("away/f", "x")),
		"file":      pack(t, regular("precious/x", "x")),
	} {
		outer := t.TempDir()
		dir := filepath.Join(outer, "here")
		plant(t, outer, map[string]string{"away/f": "mine", "here/dir/f": "mine", "here/precious": "mine", "here/away -> ../away": ""})
		before := tree(t, outer)
		_, err := unpack(bytes.NewReader(archive), dir, Options{})
		if _, ok := errors.AsType[*ConflictError](err); !ok {
			t.Errorf("%s: unpack() = %v; want a conflict", name, err)
		}
		if name == "directory" {
			if _, err := unpack(bytes.NewReader(archive), dir, Options{Force: true}); err == nil {
				t.Errorf("%s: unpack(force) = nil; want a conflict", name)
			}
		}
		if diff := cmp.Diff(before, tree(t, outer)); diff != "" {
			t.Errorf("%s: changed:\n%s", name, diff)
		}
	}
}

func TestInboxNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{"f": "old", "known": "mine", ".env": "mine"})
	base := stateOf(t, regular("known", "was"))
	for name, want := range map[string]string{"f": "new", "known": "mine", ".env": "new"} {
		_, err := unpack(bytes.NewReader(pack(t, regular(name, "new"))), dir, Options{Base: base, Named: true, Leave: func(name string) bool { return name == ".env" }})
		b, _ := os.ReadFile(filepath.Join(dir, name))
		if string(b) != want || (err == nil) != (want == "new") {
			t.Errorf("%s: %v, %q; want %q", name, err, b, want)
		}
	}
	if _, err := unpack(bytes.NewReader(pack(t, regular("f", "new"))), filepath.Join(dir, ".git", "hooks"), Options{Named: true}); err == nil || !strings.Contains(err.Error(), "left out") {
		t.Errorf("a hook by name: %v; want it left out", err)
	}
}

// A file that is all holes takes no space, and a directory left by a process that
// has died is removed.
func TestInboxSpaceAndRemains(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{stagePrefix + "1/lock": "", stagePrefix + "1/7": "x", stagePrefix + "mine/f": "not ours: no lock"})
	big := strings.Repeat("\x00", 8<<20) + "end"
	if _, err := unpack(bytes.NewReader(pack(t, regular("big", big), regular("zero", big[:5<<20]))), dir, Options{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"big": big, "zero": big[:5<<20]} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(b) != want {
			t.Errorf("%s has %d bytes, %v; want %d", name, len(b), err, len(want))
		}
		if n := blocks(t, filepath.Join(dir, name)); n > 1<<20 {
			t.Errorf("%s takes %d bytes of disk; want next to none", name, n)
		}
	}
	got := tree(t, dir)
	if got[stagePrefix+"1"] != "" || got[stagePrefix+"mine/f"] == "" {
		t.Errorf("remains: %v", got)
	}
}
