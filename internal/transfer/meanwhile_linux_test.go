package transfer

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// changes are what can become of the entry z while its directory is read.
var changes = []struct {
	name string
	do   func(z string) error
}{
	{"it vanishes", os.Remove},
	{"it becomes a link", func(z string) error { return errors.Join(os.Remove(z), os.Symlink("/etc/passwd", z)) }},
	{"it becomes a FIFO", func(z string) error { return errors.Join(os.Remove(z), syscall.Mkfifo(z, 0o600)) }},
	{"it becomes a directory", func(z string) error { return errors.Join(os.Remove(z), os.Mkdir(z, 0o755)) }},
}

// Commands run on while a session is packed: what vanishes or changes its kind meanwhile is left
// out or packed as what it is, and nothing behind a link is.
func TestPackMeanwhile(t *testing.T) {
	t.Parallel()
	for n := range 2 * len(changes) {
		row, dir := changes[n/2], t.TempDir()
		plant(t, dir, []map[string]string{{"a": "1", "z": "2"}, {"a": "1", "z/": ""}}[n%2])
		var b bytes.Buffer
		var done error
		err := Pack(&hook{&b, "a", func() { done = row.do(filepath.Join(dir, "z")) }}, dir)
		if err = errors.Join(err, done); err != nil {
			t.Errorf("%s: Pack() = %v; want nil", row.name, err)
			continue
		}
		got := list(t, &b)
		if content := got["z"]; got["a"] != "1" || content != "" && content != "-> /etc/passwd" {
			t.Errorf("%s: packed is %q; want a, and nothing of z's content", row.name, got)
		}
	}
	dir := t.TempDir()
	plant(t, dir, map[string]string{"shrinks": strings.Repeat("x", 4000)})
	var done error
	err := Pack(&hook{io.Discard, "shrinks", func() { done = os.Truncate(filepath.Join(dir, "shrinks"), 10) }}, dir)
	if done != nil || err == nil || !strings.Contains(err.Error(), "shrinks: it changed while it was read") {
		t.Errorf("a file that shrinks: Pack() = %v, %v; want an error that names it", err, done)
	}
	if err := Pack(&ends{2000, io.ErrClosedPipe}, dir); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a stream that fails: Pack() = %v; want %v", err, io.ErrClosedPipe)
	}
}

// So it is for the hashes of a comparison.
func TestManifestMeanwhile(t *testing.T) {
	t.Parallel()
	for _, row := range changes {
		for _, kind := range []string{"z", "z/", "z -> a"} {
			dir := t.TempDir()
			plant(t, dir, map[string]string{kind: "2"})
			open, err := os.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = open.Close() })
			stale, err := open.ReadDir(-1)
			if err != nil || len(stale) != 1 {
				t.Fatalf("%v, %v; want one entry", stale, err)
			}
			if err := row.do(filepath.Join(dir, "z")); err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			m := &manifest{out: bufio.NewWriter(&b), limits: DefaultLimits, buf: [readers][]byte{make([]byte, 8), make([]byte, 8)}}
			if err := m.list(position{fd: int(open.Fd())}, "", stale); err != nil {
				t.Errorf("%s, it was %s: list() = %v; want nil", row.name, kind, err)
			}
			if err := m.out.Flush(); err != nil {
				t.Fatal(err)
			}
			list, err := ParseManifest([]byte(stateVersion+b.String()+manifestEnd), DefaultLimits)
			if err != nil {
				t.Errorf("%s, it was %s: what was written is not a manifest: %v", row.name, kind, err)
			}
			for _, e := range list {
				if e.Kind == File {
					t.Errorf("%s, it was %s: the manifest has %+v; want no file", row.name, kind, e)
				}
			}
		}
	}
}

// A tree that is as large as the limits has a manifest, a larger one has none.
func TestManifestLimits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{"f": strings.Repeat("xy", 100)})
	whole := func(l Limits) (State, error) {
		var b bytes.Buffer
		if err := Manifest(&b, dir, l); err != nil {
			return nil, err
		}
		return ParseManifest(b.Bytes(), l)
	}
	exact := Limits{Bytes: 200, Entries: 1, Names: 1, Depth: 0}
	got, err := whole(exact)
	want := Sum(sha256.Sum256([]byte(strings.Repeat("xy", 100))))
	if err != nil || len(got) != 1 || *got[0].Sum != want {
		t.Errorf("at its limits the manifest is %v, %v", got, err)
	}
	plant(t, dir, map[string]string{"d/": ""})
	flat := DefaultLimits
	flat.Depth = 0
	if _, err := whole(flat); err == nil || !strings.Contains(err.Error(), "deeper than 0") {
		t.Errorf("a directory below the limit's depth: %v; want an error", err)
	}
	if err := Manifest(&ends{10, io.ErrClosedPipe}, dir, DefaultLimits); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a stream that fails: Manifest() = %v; want %v", err, io.ErrClosedPipe)
	}
}

// The three verbs tell a path with nothing at it from all other errors, and keep its cause.
func TestMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{"f": "x"})
	for verb, run := range map[string]func(path string) error{
		"Pack":     func(path string) error { return Pack(io.Discard, path) },
		"Manifest": func(path string) error { return Manifest(io.Discard, path, DefaultLimits) },
		"Pick":     func(path string) error { return Pick(io.Discard, path, strings.NewReader("f\x00")) },
	} {
		for path, cause := range map[string]error{"none": fs.ErrNotExist, "f/below": syscall.ENOTDIR} {
			err := run(filepath.Join(dir, path))
			e, ok := errors.AsType[MissingError](err)
			if !ok || !errors.Is(err, cause) || e.Error() != e.Err.Error() {
				t.Errorf("%s(%s) = %v; want a MissingError for %v", verb, path, err, cause)
			}
		}
		if err := syscall.Mkfifo(filepath.Join(dir, verb), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run(filepath.Join(dir, verb)); err == nil {
			t.Errorf("%s(a FIFO) = nil; want an error", verb)
		}
		err := run(filepath.Join(dir, strings.Repeat("n", 300)))
		if _, ok := errors.AsType[MissingError](err); ok || err == nil {
			t.Errorf("%s(a name that is too long) = %v; want an error that is not a MissingError", verb, err)
		}
	}
}

// What the names of a Pick are is up to the other end of the stream.
func TestPickHostile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{"f": "x", "d/g": "y"})
	for asked, want := range map[string]map[string]string{
		"":                                   {},
		"\x00":                               {},
		"\x00\x00\x00":                       {},
		".":                                  {},
		"f":                                  {"f": "x"}, // the last need not end
		"f\x00f\x00":                         {"f": "x"},
		"./f\x00d/../f\x00d//g\x00":          {"./f": "x", "d/../f": "x", "d//g": "y"},
		"../" + filepath.Base(dir) + "/f":    {},
		"/proc/self/environ\x00d/../../f":    {},
		strings.Repeat("d/", 5000) + "g\x00": {},
	} {
		var b bytes.Buffer
		if err := Pick(&b, dir, strings.NewReader(asked)); err != nil {
			t.Errorf("Pick(%.40q) = %v; want nil", asked, err)
			continue
		}
		if diff := cmp.Diff(want, list(t, &b)); diff != "" {
			t.Errorf("Pick(%.40q) (-want +got):\n%s", asked, diff)
		}
	}
	if err := Pick(io.Discard, dir, &failing{0, io.ErrClosedPipe}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("names that break off: Pick() = %v; want %v", err, io.ErrClosedPipe)
	}
}

// Where nothing can be unpacked it is said, and nothing is made.
func TestUnpackFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{"f": "mine", "out -> /": ""})
	for _, at := range []string{"f", "f/below", strings.Repeat("n", 300)} {
		if _, err := Unpack(filepath.Join(dir, at), bytes.NewReader(pack(t, regular("x", "1")))); err == nil {
			t.Errorf("Unpack(%.20s) = nil; want an error", at)
		}
	}
	broken := errors.New("broken")
	in := io.MultiReader(bytes.NewReader(pack(t, regular("x", "1"))), &failing{100, broken})
	if _, err := Unpack(filepath.Join(dir, "new"), in); !errors.Is(err, broken) {
		t.Errorf("padding that breaks off: Unpack() = %v; want %v", err, broken)
	}
	if got := read(t, dir, "f"); got != "mine" {
		t.Errorf("f is %q; want it as it was", got)
	}
}

// What another user's apply keeps is left alone, and the error says whose it is.
func TestStageOfAnotherUser(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	if err := os.Mkdir(filepath.Join(dir, applyDir), 0); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine, and root's rights are not taken back
		if err := syscall.Setfsuid(65534); err != nil {
			refused <- err
			return
		}
		_, err := openStage(root)
		refused <- err
	}()
	if err := <-refused; !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "another user's apply") {
		t.Errorf("openStage() = %v; want another user's apply", err)
	}
	if _, err := os.Stat(filepath.Join(dir, applyDir)); err != nil {
		t.Error(err)
	}
}
