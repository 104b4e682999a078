package transfer

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// side is a tree in memory: a file's content, "d" for a directory, "-> target" for a link.
type side map[string]string

// randomSide makes a tree of a few names, so that trees made from one have much in common.
func randomSide(r *rand.Rand) side {
	s := side{}
	for range r.IntN(12) {
		name := []string{"a", "b", "d", "d/a", "d/b", "d/e", "d/e/f", "g", "g/h", "l"}[r.IntN(10)]
		if kind := r.IntN(8); kind == 0 {
			s.put(name, "-> none")
		} else if kind < 3 {
			s.put(name, "d")
		} else {
			s.put(name, fmt.Sprint("content ", r.IntN(3)))
		}
	}
	return s
}

// put sets an entry, with the directories that it lies in, and without what was below it.
func (s side) put(name, what string) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		s[dir] = "d"
	}
	if s[name] = what; what != "d" {
		maps.DeleteFunc(s, func(other, _ string) bool { return strings.HasPrefix(other, name+"/") })
	}
}

func (s side) names() []string { return slices.Sorted(maps.Keys(s)) }

func (s side) entries() []entry {
	var all []entry
	for _, name := range s.names() {
		switch target, link := strings.CutPrefix(s[name], "-> "); {
		case link:
			all = append(all, symlink(name, target))
		case s[name] == "d":
			all = append(all, directory(name, 0o755))
		default:
			all = append(all, regular(name, s[name]))
		}
	}
	return all
}

func (s side) plant(t *testing.T, dir string) {
	t.Helper()
	files := map[string]string{}
	for name, what := range s {
		switch target, link := strings.CutPrefix(what, "-> "); {
		case link:
			files[name+" -> "+target] = ""
		case what == "d":
			files[name+"/"] = ""
		default:
			files[name] = what
		}
	}
	plant(t, dir, files)
}

// sideOf reads a directory.
func sideOf(t *testing.T, dir string) side {
	t.Helper()
	s := side{}
	for name, what := range tree(t, dir) {
		switch mode, content, file := strings.Cut(what, " "); {
		case name == ".":
		case strings.HasPrefix(what, "-> "):
			s[name] = what
		case strings.HasPrefix(mode, "d"):
			s[name] = "d"
		case file:
			s[name] = content
		}
	}
	return s
}

// TestInboxModel takes trees that a session may have made of one into directories that a user may
// have made of it. Whatever is where: nothing of the user's is lost, nothing of the session's is
// missing afterwards, and a conflict changes nothing.
func TestInboxModel(t *testing.T) {
	t.Parallel()
	outcomes := map[string]int{}
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 2))
		base, here, theirs := randomSide(r), randomSide(r), randomSide(r)
		if r.IntN(2) == 0 {
			here = maps.Clone(base)
		}
		force := r.IntN(4) == 0
		dir := t.TempDir()
		here.plant(t, dir)
		report, err := unpack(bytes.NewReader(pack(t, theirs.entries()...)), dir, Options{Base: stateOf(t, base.entries()...), Force: force})
		after := sideOf(t, dir)
		about := fmt.Sprintf("seed %d: base %v, here %v, in the session %v, force %t", seed, base, here, theirs, force)
		if err != nil {
			conflict, ok := errors.AsType[*ConflictError](err)
			switch {
			case !ok:
				t.Errorf("%s: %v; want a conflict or none", about, err)
			case cmp.Diff(here, after) != "":
				t.Errorf("%s: a conflict has changed something (-before +after):\n%s", about, cmp.Diff(here, after))
			case force && len(conflict.Changed) > 0:
				t.Errorf("%s: forced, and %q are a conflict", about, conflict.Changed)
			}
			for _, name := range conflict.Changed {
				if here[name] == theirs[name] || base[name] == theirs[name] {
					t.Errorf("%s: %s is a conflict: alike, or not changed in the session", about, name)
				}
			}
			outcomes["conflict"]++
			continue
		}
		outcomes["taken"]++
		want := maps.Clone(here)
		written := 0
		for _, name := range theirs.names() {
			if theirs[name] != base[name] && theirs[name] != here[name] {
				written++
				want.put(name, theirs[name])
			}
		}
		if diff := cmp.Diff(want, after); diff != "" {
			t.Errorf("%s (-want +got):\n%s", about, diff)
		}
		if report.Written != written || len(report.LeftOut) > 0 {
			t.Errorf("%s: %d written, %v left out; want %d and nothing", about, report.Written, report.LeftOut, written)
		}
		for name, what := range here {
			if after[name] != what && base[name] != what && !force {
				t.Errorf("%s: the user's %s is lost: %q is now %q", about, name, what, after[name])
			}
		}
		var gone []string
		for _, name := range base.names() {
			_, there := theirs[name]
			_, still := after[name]
			if !there && still && !slices.ContainsFunc(gone, func(dir string) bool { return strings.HasPrefix(name, dir+"/") }) {
				gone = append(gone, name)
			}
		}
		if diff := cmp.Diff(gone, report.Deleted); diff != "" {
			t.Errorf("%s: deleted (-want +got):\n%s", about, diff)
		}
		for _, name := range theirs.names() {
			if e, ok := report.State.Find(name); !ok || !e.Same(stateOf(t, side{name: theirs[name]}.entries()...)[0]) {
				t.Errorf("%s: of %s the state knows %v, %t", about, name, e, ok)
			}
		}
	}
	if outcomes["conflict"] < 50 || outcomes["taken"] < 50 {
		t.Errorf("the trees ended as %v; want enough of both", outcomes)
	}
}

// TestDeltasModel compares random states with what a comparison name by name finds.
func TestDeltasModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		was, now := randomSide(r), randomSide(r)
		var want []Change
		all := maps.Clone(was)
		maps.Copy(all, now)
		for _, name := range all.names() {
			c := Change{Path: name, Kind: "modified", By: Session}
			kind := func(what string) string {
				if strings.HasPrefix(what, "content") {
					return "file"
				}
				return strings.Fields(what)[0]
			}
			switch _, hasWas := was[name]; {
			case was[name] == now[name]:
				continue
			case !hasWas:
				c.Kind = "added"
			case now[name] == "":
				c.Kind = "deleted"
			case kind(was[name]) != kind(now[name]):
				c.Kind = "type"
			}
			want = append(want, c)
		}
		var got []Change
		for _, d := range Deltas(stateOf(t, was.entries()...), stateOf(t, now.entries()...)) {
			got = append(got, d.Change())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Deltas(%v, %v) (-want +got):\n%s", was, now, diff)
		}
	}
}

// What lies aside comes to its place on another file system whole or not at all, and takes nothing
// along if it fails.
func TestAcross(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{"mounted/old": "mine", "mounted/dir/f": "mine", "mounted/taken": "mine"})
	in, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("\x00", 3*len(zeros)) + "end"
	err = errors.Join(
		in.makeStage(),
		os.WriteFile(filepath.Join(dir, in.stage, "1"), []byte(long), 0o751),
		os.Symlink("old", filepath.Join(dir, in.stage, "2")),
		os.Mkdir(filepath.Join(dir, in.stage, "4"), 0o755),
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		staged, name, want string
		fails              bool
	}{
		{"1", "mounted/new", "-rwxr-x--x " + long, false},
		{"1", "mounted/old", "-rwxr-x--x " + long, false}, // it replaces
		{"2", "mounted/link", "-> old", false},
		{"2", "mounted/taken", "-> old", false},
		{"1", "mounted/dir", "drwxr-xr-x", true}, // not a directory that is not empty
		{"1", "none/new", "", true},
		{"3", "mounted/none", "", true},                  // nothing lies aside
		{"4", "mounted/old", "-rwxr-x--x " + long, true}, // what was there stays
	} {
		err := in.across(filepath.Join(in.stage, row.staged), filepath.FromSlash(row.name))
		if got := tree(t, dir)[row.name]; (err != nil) != row.fails || got != row.want {
			t.Errorf("across(%s, %s) = %v, it is %.40q; want %.40q, an error: %t", row.staged, row.name, err, got, row.want, row.fails)
		}
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	var left []string
	for name := range tree(t, dir) {
		if strings.Contains(name, stagePrefix) {
			left = append(left, name)
		}
	}
	if len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// Two names that are one where capitals do not count are refused there, but not those that are
// left out.
func TestOneName(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		names []string
		fails bool
	}{
		{[]string{"a", "b", "a/b", "b/a"}, false},
		{[]string{"README", "readme"}, true},
		{[]string{"d/Makefile", "d/makefile"}, true},
		{[]string{"D/x", "d/y"}, false},
		{[]string{"D", "d"}, true},
		{[]string{"a", "a."}, true},
		{[]string{"a", "a "}, true},
		{[]string{"a", "a:b"}, true},
		{[]string{"a\u200cb", "ab"}, true},
		{[]string{"ſ", "s"}, true}, // a long s: one letter by its case
	} {
		items := make([]item, len(row.names))
		for i, name := range row.names {
			items[i] = item{Entry: Entry{Name: name}, what: write}
		}
		err := oneName(items)
		if (err != nil) != row.fails || row.fails && !strings.Contains(err.Error(), "nothing was written") {
			t.Errorf("oneName(%q) = %v; want an error: %t", row.names, err, row.fails)
		}
		items[len(items)-1].what = leave
		if err := oneName(items); err != nil {
			t.Errorf("oneName(%q), the last left out = %v; want nil", row.names, err)
		}
	}
}

// An inbox says where it cannot be opened, and leaves nothing of what it has made on the way.
func TestOpenFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{"file": "mine", "dangling -> none/deep": ""})
	before := tree(t, dir)
	for _, name := range []string{"file", "file/below", "dangling/x", "new/" + strings.Repeat("n", 300)} {
		in, err := Open(filepath.Join(dir, name), Options{})
		if err == nil {
			t.Errorf("Open(%.20s) = nil; want an error", name)
			_ = in.Close()
		}
	}
	if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
		t.Errorf("they have left behind (-before +after):\n%s", diff)
	}
}

// A content that breaks off in the middle is never taken for a file.
func TestTakeBroken(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, len(zeros), len(zeros) + 1, 5 * len(zeros)} {
		dir := filepath.Join(t.TempDir(), "new")
		in, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		broken := errors.New("broken")
		e := Entry{Name: "f", Kind: File, Mode: 0o644, Size: int64(size)}
		if err := in.Take(e, &failing{left: size - 1, err: broken}); !errors.Is(err, broken) {
			t.Errorf("%d bytes: Take() = %v; want %v", size, err, broken)
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%d bytes: the directory is there: %v", size, err)
		}
	}
}

// failing is a reader of zeros that ends with an error.
type failing struct {
	left int
	err  error
}

func (f *failing) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, f.err
	}
	n := min(len(p), f.left)
	clear(p[:n])
	f.left -= n
	return n, nil
}

// Every limit of Read holds to the byte and to the entry.
func TestReadLimits(t *testing.T) {
	t.Parallel()
	archive := pack(t, regular("d/a", "1234"), regular("d/bc", "12345"), symlink("d/l", "a"))
	whole := Limits{Bytes: 9, Entries: 4, Names: int64(len("d" + "d/a" + "d/bc" + "d/l" + "a")), Depth: 1}
	for _, row := range []struct {
		name   string
		change func(*Limits)
		err    string
	}{
		{"all that it has", func(*Limits) {}, ""},
		{"bytes", func(l *Limits) { l.Bytes-- }, "larger than 8 bytes"},
		{"entries", func(l *Limits) { l.Entries-- }, "more than 3 files"},
		{"names", func(l *Limits) { l.Names-- }, "more than 11 bytes"},
		{"depth", func(l *Limits) { l.Depth-- }, "deeper than 0 directories"},
	} {
		limits := whole
		row.change(&limits)
		in, err := Open(t.TempDir(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(Read(bytes.NewReader(archive), limits, in.Take), in.Close())
		if row.err == "" && err != nil || row.err != "" && (err == nil || !strings.Contains(err.Error(), row.err)) {
			t.Errorf("%s: Read() = %v; want %q", row.name, err, row.err)
		}
	}
}

// Headers of entries that no tree has are refused, or are entries of no kind that is made.
func TestHostileHeaders(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		h    tar.Header
		err  string
	}{
		{"a NUL in the name", tar.Header{Name: "a\x00b", Typeflag: tar.TypeReg}, "NUL"},
		{"a NUL in the target", tar.Header{Name: "l", Linkname: "a\x00b", Typeflag: tar.TypeSymlink}, "NUL"},
		{"a long target", tar.Header{Name: "l", Linkname: strings.Repeat("x", maxPath+1), Typeflag: tar.TypeSymlink}, "the target of a link has 4097 bytes"},
		{"a negative size", tar.Header{Name: "f", Typeflag: tar.TypeReg, Size: -1}, "negative"},
		{"a link in place of the tree", tar.Header{Name: "./", Linkname: "x", Typeflag: tar.TypeSymlink}, "not a directory"},
		{"a global header", tar.Header{Name: "g", Typeflag: tar.TypeXGlobalHeader}, "not taken"},
		{"a sparse file of GNU", tar.Header{Name: "s", Typeflag: tar.TypeGNUSparse}, "not taken"},
		{"the tree itself", tar.Header{Name: "./", Typeflag: tar.TypeDir}, ""},
		{"the longest name", tar.Header{Name: strings.Repeat("n", maxName), Typeflag: tar.TypeReg}, ""},
		{"a FIFO of some size", tar.Header{Name: "p", Typeflag: tar.TypeFifo, Size: 1 << 40}, ""},
	} {
		e, err := DefaultLimits.entry(&row.h)
		if row.err == "" && err != nil || row.err != "" && (err == nil || !strings.Contains(err.Error(), row.err)) {
			t.Errorf("%s: entry() = %+v, %v; want %q", row.name, e, err, row.err)
		}
		if row.h.Typeflag == tar.TypeFifo && (e.Kind != Other || e.Size != 0) {
			t.Errorf("%s: entry() = %+v; want one of no size that is not made", row.name, e)
		}
	}
}
