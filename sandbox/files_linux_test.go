package sandbox

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/internal/transfer"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// filesLab is a session whose files lie in a directory of this machine, and are transferred by the runner's
// own code.
type filesLab struct {
	*Session

	t    *testing.T
	root string // of the session's files
	dir  string // that was copied
}

// newFilesLab starts a session on a copy of a directory with files.
func newFilesLab(t *testing.T, files map[string]string) *filesLab {
	t.Helper()
	l := &filesLab{t: t, root: t.TempDir(), dir: t.TempDir()}
	l.here(files)
	d := newFakeEngine(t)
	d.files = l.answer
	_, l.Session = start(t, d, Spec{Workspace: Workspace{Kind: WorkspaceCopy, Dir: l.dir}})
	t.Cleanup(l.Release)
	return l
}

// answer answers a verb that transfers files.
func (l *filesLab) answer(f *fakeRunner) {
	answer, err := l.transfer(wire.Verb(f.current.Args[0]), f.current.Args[2], f.stdin)
	if err == nil {
		f.answer(answer)
		return
	}
	exit := wire.Exit{Seq: f.current.Seq, Code: 1, Stderr: uint64(len(err.Error()))}
	if _, ok := errors.AsType[transfer.MissingError](err); ok {
		exit.Code = wire.ExitNoInput
	}
	f.send(wire.TypeStderr, []byte(err.Error()))
	f.send(wire.TypeExit, exit.Append(nil))
}

func (l *filesLab) transfer(verb wire.Verb, name string, in []byte) ([]byte, error) {
	var out bytes.Buffer
	at := filepath.Join(l.root, name)
	switch verb {
	case wire.VerbPush:
		sum, err := transfer.Unpack(at, bytes.NewReader(in))
		return wire.Sum(sum).Append(nil), err
	case wire.VerbPull:
		return bytesOf(&out, transfer.Pack(&out, at))
	case wire.VerbManifest:
		return bytesOf(&out, transfer.Manifest(&out, at, transfer.DefaultLimits))
	case wire.VerbPick:
		return bytesOf(&out, transfer.Pick(&out, at, bytes.NewReader(in)))
	default:
		return bytesOf(&out, transfer.Update(&out, at, bytes.NewReader(in)))
	}
}

func bytesOf(out *bytes.Buffer, err error) ([]byte, error) { return out.Bytes(), err }

// putFiles writes files; the content "-" removes one.
func putFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		name = filepath.Join(dir, name)
		err := os.RemoveAll(name)
		if content != "-" {
			err = errors.Join(err, os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (l *filesLab) here(files map[string]string) { l.t.Helper(); putFiles(l.t, l.dir, files) }
func (l *filesLab) inside(files map[string]string) {
	l.t.Helper()
	putFiles(l.t, filepath.Join(l.root, "workspace"), files)
}

// contents returns the files of a directory by name.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name)
		all[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// want compares the workspace with files.
func (l *filesLab) want(files map[string]string) {
	l.t.Helper()
	if diff := cmp.Diff(files, contents(l.t, filepath.Join(l.root, "workspace"))); diff != "" {
		l.t.Errorf("the session has (-want +got):\n%s", diff)
	}
}

// sync syncs, and returns what it says: a letter and a path for each change and conflict.
func (l *filesLab) sync(o SyncOptions) string {
	l.t.Helper()
	done, err := l.Sync(l.t.Context(), o)
	if err != nil {
		l.t.Fatalf("Sync() = %v", err)
	}
	var all []string
	for _, c := range done.Changes {
		all = append(all, c.Kind+" "+c.Path)
	}
	for _, c := range done.Conflicts {
		all = append(all, "conflict "+c.Path)
	}
	return strings.Join(all, ", ")
}

// changed returns what Changes says.
func (l *filesLab) changed() string {
	l.t.Helper()
	c, err := l.Changes(l.t.Context(), ".", l.dir)
	if err != nil {
		l.t.Fatalf("Changes() = %v", err)
	}
	var all []string
	for _, f := range c.Files {
		all = append(all, f.Kind+" "+f.Path)
	}
	return strings.Join(all, ", ")
}

func (l *filesLab) equal(what, got, want string) {
	l.t.Helper()
	if got != want {
		l.t.Errorf("%s: %q; want %q", what, got, want)
	}
}

// Edits here come in, conflicts stay, and Changes is about the session alone.
func TestSync(t *testing.T) {
	t.Parallel()
	l := newFilesLab(t, map[string]string{"mine": "1", "theirs": "1", "both": "1", "alike": "1", "gone/f": "1", ".env": "secret"})
	l.equal("without changes", l.sync(SyncOptions{}), "")
	l.here(map[string]string{"mine": "here", "both": "here", "alike": "same", "gone": "-", "new/f": "here", ".env": "other"})
	l.inside(map[string]string{"theirs": "there", "both": "there", "alike": "same", "own": "there"})
	const want = "deleted gone, modified mine, added new, added new/f, conflict both"
	before := contents(t, l.root)
	l.equal("a check", l.sync(SyncOptions{Check: true}), want)
	if diff := cmp.Diff(before, contents(t, l.root)); diff != "" {
		t.Errorf("a check has changed the session:\n%s", diff)
	}
	l.equal("a sync", l.sync(SyncOptions{}), want)
	l.want(map[string]string{"mine": "here", "theirs": "there", "both": "there", "alike": "same", "new/f": "here", "own": "there"})
	l.equal("the session's changes", l.changed(), "modified both, added own, modified theirs")
	l.equal("a second sync", l.sync(SyncOptions{}), "conflict both")

	// A copy chooses a side.
	if _, err := l.CopyIn(t.Context(), []Source{{Path: filepath.Join(l.dir, "both")}}, "."); err != nil {
		t.Fatal(err)
	}
	l.equal("after a copy", l.sync(SyncOptions{}), "")
	l.equal("the session's changes then", l.changed(), "added own, modified theirs")
	if _, err := l.Apply(t.Context(), ".", l.dir, ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	l.equal("after an apply", l.sync(SyncOptions{}), "")
	l.equal("the session's changes at last", l.changed(), "")
}

// A file of the directory is read only if it may have changed.
func TestSyncReadsLittle(t *testing.T) {
	t.Parallel()
	l := newFilesLab(t, map[string]string{"a": "1", "b": "1"})
	l.sync(SyncOptions{})
	base, index, err := l.recallIndexed(t.Context(), l.pairOf(l.dir, "/workspace"))
	if err != nil || len(base) != 2 {
		t.Fatalf("recallIndexed() = %v, %v, %v", base, index, err)
	}
	// A record that cannot be used is an error, an index is only made again.
	copied := filepath.Join(l.root, copiedDir)
	if err := os.WriteFile(filepath.Join(copied, "workspace.index"), []byte("forged"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.here(map[string]string{"a": "2"})
	l.equal("with a forged index", l.sync(SyncOptions{}), "modified a")
	if err := os.WriteFile(filepath.Join(copied, "workspace"), []byte("forged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Sync(t.Context(), SyncOptions{}); !errors.Is(err, ErrRecordAltered) {
		t.Errorf("Sync() with a forged record = %v; want %v", err, ErrRecordAltered)
	}
	if err := os.RemoveAll(copied); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Sync(t.Context(), SyncOptions{}); !errors.Is(err, ErrNotRecorded) {
		t.Errorf("Sync() without a record = %v; want %v", err, ErrNotRecorded)
	}
}

// Files go in as cp has it, and what was copied is known when it comes out.
func TestCopyIn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		from []string
		to   string
		want map[string]string // what is new in the workspace; nil: it is refused
	}{
		{"a file", []string{"f"}, ".", map[string]string{"f": "1"}},
		{"a file, renamed", []string{"f"}, "new", map[string]string{"new": "1"}},
		{"a file over one", []string{"f"}, "there", map[string]string{"there": "1"}},
		{"a file into a new directory", []string{"f"}, "a/b/", map[string]string{"a/b/f": "1"}},
		{"a file into a directory", []string{"f"}, "dir", map[string]string{"dir/f": "1"}},
		{"several", []string{"f", "d"}, "dir", map[string]string{"dir/f": "1", "dir/d/g": "2"}},
		{"several to nothing", []string{"f", "d"}, "none", nil},
		{"several to a file", []string{"f", "d"}, "there", nil},
		{"a directory, renamed", []string{"d"}, "new", map[string]string{"new/g": "2"}},
		{"a directory into one", []string{"d"}, "dir", map[string]string{"dir/d/g": "2"}},
		{"what is in it", []string{"d/."}, "dir", map[string]string{"dir/g": "2"}},
		{"nothing", []string{"none"}, ".", nil},
	} {
		l := newFilesLab(t, map[string]string{"there": "0", "dir/kept": "0"})
		src := t.TempDir()
		putFiles(t, src, map[string]string{"f": "1", "d/g": "2", "d/.env": "secret"})
		var from []Source
		for _, name := range tt.from {
			from = append(from, Source{Path: src + "/" + name})
		}
		done, err := l.CopyIn(t.Context(), from, tt.to)
		want := map[string]string{"there": "0", "dir/kept": "0"}
		maps.Copy(want, tt.want)
		l.want(want)
		if tt.want == nil && !errors.As(err, new(*InputError)) || tt.want != nil && (err != nil || done.Files != len(tt.want)) {
			t.Errorf("%s: CopyIn() = %+v, %v", tt.name, done, err)
		}
	}
}

// What was copied in and comes out again is known, file by file and as a directory.
func TestCopyRoundTrip(t *testing.T) {
	t.Parallel()
	l := newFilesLab(t, nil)
	src := t.TempDir()
	putFiles(t, src, map[string]string{"d/a": "1", "d/e/b": "1"})
	if _, err := l.CopyIn(t.Context(), []Source{{Path: filepath.Join(src, "d")}}, "."); err != nil {
		t.Fatal(err)
	}
	into := PullOptions{Into: true}
	done, err := l.Pull(t.Context(), "d", src, into)
	if err != nil || done.Written != 0 || done.Alike != 2 {
		t.Errorf("Pull() = %+v, %v; want nothing written", done, err)
	}
	l.inside(map[string]string{"d/a": "there", "d/e/b": "there"})
	putFiles(t, src, map[string]string{"d/e/b": "here"})
	if _, err := l.Pull(t.Context(), "d", src, into); !errors.As(err, new(*ConflictError)) {
		t.Errorf("Pull() over a change = %v; want a *ConflictError", err)
	}
	if _, err := l.Pull(t.Context(), "d/e/b", filepath.Join(src, "d", "e"), into); !errors.As(err, new(*ConflictError)) {
		t.Errorf("Pull() of the changed file = %v; want a *ConflictError", err)
	}
	if done, err := l.Pull(t.Context(), "d/a", filepath.Join(src, "d"), into); err != nil || done.Files != 1 || done.Bytes != 5 {
		t.Errorf("Pull() of the other = %+v, %v", done, err)
	}
	o := PullOptions{Into: true, Force: true, Skip: func(name string, _ bool) (bool, bool) { return name == "a", true }}
	if _, err := l.Pull(t.Context(), "d", src, o); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"d/a": "there", "d/e/b": "there"}, contents(t, src)); diff != "" {
		t.Errorf("here is (-want +got):\n%s", diff)
	}
	for to, want := range map[string]string{"new": "new/a", "new2/": "new2/d/a"} {
		if _, err := l.Pull(t.Context(), "d", src+"/"+to, into); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(src, want)); err != nil {
			t.Errorf("Pull() to %s: %v", to, err)
		}
	}
}

func TestWriteAndReadFile(t *testing.T) {
	t.Parallel()
	l := newFilesLab(t, map[string]string{"dir/f": "0"})
	for _, to := range []string{"new", "deep/er/new", "dir/f"} {
		if err := l.WriteFile(t.Context(), to, strings.NewReader("text"), 4); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if size, err := l.ReadFile(t.Context(), to, &out); err != nil || size != 4 || out.String() != "text" {
			t.Errorf("ReadFile(%s) = %d, %v, and %q", to, size, err, out.String())
		}
	}
	for _, to := range []string{".", "dir", "none/"} {
		if err := l.WriteFile(t.Context(), to, strings.NewReader(""), 0); !errors.As(err, new(*InputError)) {
			t.Errorf("WriteFile(%s) = %v; want an *InputError", to, err)
		}
	}
	for _, from := range []string{"dir", "none"} {
		if _, err := l.ReadFile(t.Context(), from, &bytes.Buffer{}); !errors.As(err, new(*InputError)) {
			t.Errorf("ReadFile(%s) = %v; want an *InputError", from, err)
		}
	}
}
