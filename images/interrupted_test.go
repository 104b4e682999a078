package images

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/patternmatcher"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/enginetest"
)

// An engine that refuses an image, before it reads it, in the midst or at the end, is the
// error of the call, and no goroutine waits for it.
func TestEngineRefuses(t *testing.T) {
	t.Parallel()
	refusal := &engine.Error{Op: "load images", Kind: engine.ErrDenied, Err: errors.New("authorization denied by plugin")}
	data := archive(t, []file{{"manifest.json", `[{"Config":"c","Layers":[]}]`}, {"c", strings.Repeat("x", 1<<20)}})
	rootfs := archive(t, []file{{"bin/sh", strings.Repeat("x", 1<<20)}})
	dir := writeAll(t, map[string][]byte{"Dockerfile": []byte("FROM scratch"), "big": make([]byte, 1<<20)})
	for _, reads := range []int64{1, 600, 512 << 10, 0} {
		for name, call := range map[string]func(*Resolver) error{
			"an archive": func(r *Resolver) error { _, err := r.Load(t.Context(), store(t, data, "plain"), "", nil); return err },
			"a root file system": func(r *Resolver) error {
				_, err := r.Load(t.Context(), store(t, rootfs, "gzip"), "a:1", nil)
				return err
			},
			"a build": func(r *Resolver) error {
				_, err := r.Build(t.Context(), dir, BuildOptions{Ref: "a:1"}, nil)
				return err
			},
			"the base image": func(r *Resolver) error { _, err := r.Build(t.Context(), BaseDir, BuildOptions{}, nil); return err },
		} {
			eng := newFake()
			eng.loadErr, eng.reads = refusal, reads
			err := call(resolver(t, eng))
			if !errors.Is(err, engine.ErrDenied) || !strings.Contains(err.Error(), "authorization denied") || len(eng.Refs()) > 0 {
				t.Errorf("%s that the engine refuses after %d bytes = %v; want its refusal", name, reads, err)
			}
		}
	}
}

// What the engine finds wrong in a Dockerfile is a fault of the source.
func TestBuildOfBadDockerfile(t *testing.T) {
	t.Parallel()
	eng := newFake()
	eng.loadErr = &engine.Error{Op: "build", Kind: engine.ErrInvalid, Err: errors.New("unknown instruction: FORM")}
	_, err := resolver(t, eng).Build(t.Context(), writeAll(t, map[string][]byte{"Dockerfile": []byte("FORM scratch")}), BuildOptions{}, nil)
	if _, ok := errors.AsType[*SourceError](err); !ok || !strings.Contains(err.Error(), "unknown instruction") {
		t.Errorf("Build() = %v; want a *SourceError with the engine's words", err)
	}
}

// What is asked of the engine is what the options say.
func TestBuildOptions(t *testing.T) {
	t.Parallel()
	dir := writeAll(t, map[string][]byte{"Dockerfile": []byte("ARG BASE\nFROM $BASE")})
	for _, tt := range []struct {
		name string
		dir  string
		opts BuildOptions
		want engine.Build
		err  string
	}{
		{"nothing", dir, BuildOptions{}, engine.Build{}, ""},
		{"a name", dir, BuildOptions{Ref: "app"}, engine.Build{Ref: "app:latest"}, ""},
		{"a base", dir, BuildOptions{Base: "debian:12", Network: "none"}, engine.Build{Args: map[string]string{"BASE": "debian:12"}, Network: "none"}, ""},
		{"an argument wins over the base", dir, BuildOptions{Base: "debian:12", Args: map[string]string{"BASE": "x", "A": "1"}}, engine.Build{Args: map[string]string{"BASE": "x", "A": "1"}}, ""},
		{"the embedded directory", BaseDir, BuildOptions{}, engine.Build{Dockerfile: "base/Dockerfile"}, ""},
		{"a reserved name", dir, BuildOptions{Ref: "sandboxbash/runner:1"}, engine.Build{}, "reserved"},
		{"a bad base", dir, BuildOptions{Base: "A"}, engine.Build{}, "not a valid reference"},
		{"no directory", dir + "/none", BuildOptions{}, engine.Build{}, "has no Dockerfile"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			eng := newFake()
			img, err := resolver(t, eng).Build(t.Context(), tt.dir, tt.opts, nil)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || eng.Loaded() != nil {
					t.Errorf("Build() = %v; want %q, and nothing sent", err, tt.err)
				}
				return
			}
			got := eng.built
			if err != nil || img.ID == "" || got.Ref != tt.want.Ref || got.Network != tt.want.Network || got.Dockerfile != tt.want.Dockerfile || len(got.Args) != len(tt.want.Args) {
				t.Fatalf("Build() = %v, asked for %+v; want %+v", err, got, tt.want)
			}
			for name, value := range tt.want.Args {
				if got.Args[name] != value {
					t.Errorf("Build() has the argument %s=%q; want %q", name, got.Args[name], value)
				}
			}
			if got.Labels[engine.LabelRole] != roleImage {
				t.Errorf("Build() has the labels %v; want the role %q", got.Labels, roleImage)
			}
		})
	}
}

// namesOf lists a tar.
func namesOf(t *testing.T, data []byte) (names []string) {
	t.Helper()
	for tr := tar.NewReader(bytes.NewReader(data)); ; {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, hdr.Name)
	}
}

func contextOf(t *testing.T, files map[string]string) ([]string, error) {
	t.Helper()
	all := map[string][]byte{}
	for name, content := range files {
		all[name] = []byte(content)
	}
	dir := writeAll(t, all)
	ignored, err := readIgnored(dir, dockerfile)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := writeContext(&out, dir, ignored); err != nil {
		return nil, err
	}
	return namesOf(t, out.Bytes()), nil
}

// The rules of .dockerignore are Docker's.
func TestIgnored(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		ignore string
		want   string // of a, b/c, b/d.md and d.md, joined by spaces
	}{
		{"", "a b/ b/c b/d.md d.md"},
		{"# a comment\n\n", "a b/ b/c b/d.md d.md"},
		{"*", ""},
		{"*\n!b/c", "b/c"},
		{"b", "a d.md"},
		{"b/", "a d.md"},
		{"/b", "a d.md"},
		{"b\n!b/c", "a b/c d.md"},
		{"*.md", "a b/ b/c b/d.md"},
		{"**/*.md", "a b/ b/c"},
		{"b/*", "a b/ d.md"},
		{"?", "d.md"},
		{"c", "a b/ b/c b/d.md d.md"},
		{"Dockerfile\n.dockerignore", "a b/ b/c b/d.md d.md"}, // they are always sent
		{"../a", "a b/ b/c b/d.md d.md"},
	} {
		got, err := contextOf(t, map[string]string{"Dockerfile": "", ".dockerignore": tt.ignore, "a": "", "b/c": "", "b/d.md": "", "d.md": ""})
		if err != nil || !slices.Equal(got[:2], []string{".dockerignore", "Dockerfile"}) || strings.Join(got[2:], " ") != tt.want {
			t.Errorf(".dockerignore %q sends %q, %v; want %q", tt.ignore, got, err, tt.want)
		}
	}
	for _, bad := range []string{"[", "a\n[x\n", "b/[^"} {
		if got, err := contextOf(t, map[string]string{"Dockerfile": "", ".dockerignore": bad}); err == nil || !strings.Contains(err.Error(), ".dockerignore") {
			t.Errorf(".dockerignore %q sends %q, %v; want an error that names it", bad, got, err)
		}
	}
}

// A context has files, directories and links, all of them root's. Links stay links,
// wherever they lead: nothing from outside the directory is sent.
func TestContextEntries(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("windows has no such links and pipes")
	}
	dir := writeAll(t, map[string][]byte{"run.sh": []byte("x")})
	if err := errors.Join(os.Chmod(filepath.Join(dir, "run.sh"), 0o755), os.Symlink("/etc/shadow", filepath.Join(dir, "out")), //nolint:gosec // a program
		os.Symlink("none", filepath.Join(dir, "broken")), os.Mkdir(filepath.Join(dir, "empty"), 0o700)); err != nil {
		t.Fatal(err)
	}
	listener, err := listenUnix(t, filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // of a test
	none, err := patternmatcher.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := writeContext(&out, dir, none); err != nil {
		t.Fatal(err)
	}
	want := map[string]tar.Header{
		"run.sh": {Typeflag: tar.TypeReg, Mode: 0o755, Size: 1}, "empty/": {Typeflag: tar.TypeDir, Mode: 0o700},
		"out": {Typeflag: tar.TypeSymlink, Mode: 0o777, Linkname: "/etc/shadow"}, "broken": {Typeflag: tar.TypeSymlink, Mode: 0o777, Linkname: "none"},
	}
	tr := tar.NewReader(&out)
	for range len(want) {
		hdr, err := tr.Next()
		if err != nil {
			t.Fatal(err)
		}
		w := want[hdr.Name]
		if hdr.Typeflag != w.Typeflag || hdr.Mode&0o777 != w.Mode || hdr.Size != w.Size || hdr.Linkname != w.Linkname || hdr.Uid != 0 || hdr.Gid != 0 || hdr.Uname != "" {
			t.Errorf("the context has %+v; want %+v, of root", hdr, w)
		}
	}
	if hdr, err := tr.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("the context has %v, %v too; want no socket", hdr, err)
	}
}

// A directory that cannot be read is an error, unless it is ignored.
func TestUnreadableContext(t *testing.T) {
	t.Parallel()
	dir := writeAll(t, map[string][]byte{".dockerignore": []byte("secret\n"), "secret/key": nil, "other/x": nil})
	ignored, err := readIgnored(dir, dockerfile)
	if err != nil {
		t.Fatal(err)
	}
	c := contextWriter{tw: tar.NewWriter(io.Discard), dir: dir, ignored: ignored}
	for name, want := range map[string]error{"secret": fs.SkipDir, "other": fs.ErrPermission, ".": fs.ErrPermission} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.visit(filepath.Join(dir, name), fs.FileInfoToDirEntry(info), fs.ErrPermission); !errors.Is(err, want) {
			t.Errorf("visit(%s) that cannot be read = %v; want %v", name, err, want)
		}
	}
}

// changing is a file that does something when its content is read.
type changing struct {
	*os.File
	during func()
}

func (c *changing) Read(p []byte) (int, error) {
	if c.during != nil {
		c.during()
		c.during = nil
	}
	return c.File.Read(p)
}

// A file that changes while it is copied is an error: not its start with another's end,
// and not a part of it.
func TestCopyOfChangingFiles(t *testing.T) {
	t.Parallel()
	const content = "0123456789"
	for _, tt := range []struct {
		name   string
		during func(path string) error
		want   error
	}{
		{"it stays", func(string) error { return nil }, nil},
		{"its mode changes", func(path string) error { return os.Chmod(path, 0o600) }, nil},
		{"it shrinks", func(path string) error { return os.Truncate(path, 5) }, errChanged},
		{"it is emptied", func(path string) error { return os.Truncate(path, 0) }, errChanged},
		{"it grows", func(path string) error { return os.WriteFile(path, []byte(content+"more"), 0o600) }, errChanged},
		{"it is written again", func(path string) error {
			return errors.Join(os.WriteFile(path, []byte("9876543210"), 0o600), os.Chtimes(path, time.Time{}, time.Unix(2e9, 0)))
		}, errChanged},
		{"its time changes", func(path string) error { return os.Chtimes(path, time.Time{}, time.Unix(2e9, 0)) }, errChanged},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(writeAll(t, map[string][]byte{"f": []byte(content)}), "f")
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var out bytes.Buffer
			err = copyWhole(&out, &changing{f, func() {
				if err := tt.during(path); err != nil {
					t.Error(err)
				}
			}}, info.Size(), info.ModTime(), nil)
			if !errors.Is(err, tt.want) {
				t.Errorf("copyWhole() = %v, %q; want %v", err, out.String(), tt.want)
			}
			if err == nil && out.String() != content {
				t.Errorf("copyWhole() wrote %q; want %q", out.String(), content)
			}
		})
	}
}

// A snapshot whose files have changed since they were looked at is not made: its digest
// would say that the image has the old ones.
func TestSnapshotOfChangedFiles(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(path string) error
		want   string
	}{
		{"no change", func(string) error { return nil }, ""},
		{"a file has grown", func(path string) error { return os.WriteFile(path, []byte("longer than before"), 0o600) }, "changed while it was read"},
		{"a file has shrunk", func(path string) error { return os.Truncate(path, 1) }, "changed while it was read"},
		{"a package was upgraded", func(path string) error {
			return errors.Join(os.WriteFile(path+".new", []byte("other"), 0o600), os.Chtimes(path+".new", time.Time{}, time.Unix(2e9, 0)), os.Rename(path+".new", path))
		}, "changed while it was read"},
		{"a package was removed", os.Remove, "no such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(writeAll(t, map[string][]byte{"program": []byte("first")}), "program")
			e, ok := look(path)
			if !ok {
				t.Fatalf("look(%s) finds nothing", path)
			}
			snap := &snapshot{tree: newTree(), hash: strings.Repeat("ab", 32)}
			snap.entries[path] = e
			if err := tt.change(path); err != nil {
				t.Fatal(err)
			}
			eng := newFake()
			eng.Facts.Arch = runtime.GOARCH
			r := resolver(t, eng)
			r.cache = t.TempDir()
			r.snapshot = func(context.Context, []string) (*snapshot, error) { return snap, nil }
			_, err := r.host(t.Context(), HostRef, quiet)
			if runtime.GOOS != "linux" {
				t.Skip("a snapshot is of a linux machine")
			}
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("host() = %v; want %q", err, tt.want)
			}
			if err != nil && (len(eng.Refs()) > 0 || r.remembered(stamp()) != "") {
				t.Errorf("after %v the engine has %q, and the cache %q; want neither", err, eng.Refs(), r.remembered(stamp()))
			}
		})
	}
}

// The image of another snapshot that has our name is not taken for ours.
func TestSnapshotImage(t *testing.T) {
	t.Parallel()
	hash := strings.Repeat("ab", 32)
	good := engine.Image{ID: "sha256:1", Arch: runtime.GOARCH, Labels: map[string]string{labelDigest: hash}}
	for _, tt := range []struct {
		name string
		img  engine.Image
		err  error
		want error
	}{
		{"ours", good, nil, nil},
		{"of other files", engine.Image{ID: "sha256:1", Arch: runtime.GOARCH, Labels: map[string]string{labelDigest: hash[:62] + "cd"}}, nil, engine.ErrNotFound},
		{"without a digest", engine.Image{ID: "sha256:1", Arch: runtime.GOARCH}, nil, engine.ErrNotFound},
		{"of another architecture", engine.Image{ID: "sha256:1", Arch: "s390x", Labels: good.Labels}, nil, engine.ErrNotFound},
		{"an engine that does not answer", good, engine.ErrUnreachable, engine.ErrUnreachable},
	} {
		eng := &fakeEngine{ImageStore: enginetest.ImageStore{Err: tt.err}}
		eng.Put(hostRepo+":"+hash[:12], tt.img)
		if got, err := resolver(t, eng).snapshotImage(t.Context(), hash); !errors.Is(err, tt.want) || err == nil && got.ID != tt.img.ID {
			t.Errorf("%s: snapshotImage() = %v, %v; want %v", tt.name, got, err, tt.want)
		}
	}
}

// A copy that its caller gives up ends, and makes no image.
func TestSnapshotIsCancelled(t *testing.T) {
	t.Parallel()
	mine := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(mine)
	tr := newTree()
	tr.make("/a", 0o644, "x")
	var out bytes.Buffer
	if err := tr.write(ctx, &out, func(int64) {}); !errors.Is(err, mine) || out.Len() > 0 {
		t.Errorf("write() = %v after %d bytes; want its caller's cause", err, out.Len())
	}
}
