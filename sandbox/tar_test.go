package sandbox

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// plant makes files below dir: a name with a slash at its end is a directory, one
// with " -> " a link.
func plant(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		name, target, isLink := strings.Cut(name, " -> ")
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		case isLink:
			err = os.Symlink(target, path)
		case err == nil:
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// list reads a tar stream: name to content, "-> target" for links.
func list(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	all := map[string]string{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if all[h.Name] = string(b); h.Typeflag == tar.TypeSymlink {
			all[h.Name] = "-> " + h.Linkname
		}
	}
}

func TestTarOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{
		"empty": "", "with space": "a", "ünïcode/文": "b", "line\nbreak": "c", "dir/": "", "sub/deep/f": "d",
		"link -> sub": "", "out -> /etc/passwd": "", "up -> ../..": "",
		".env": "x", ".env.local": "x", ".env.example": "fine", "sub/.npmrc": "x", ".ssh/id_rsa": "x", ".aws/credentials": "x",
		"sub/.git-credentials": "x", ".netrc": "x", "id_ed25519": "x", ".environment": "fine",
		".git/config": "[remote]\n\turl = https://me:tok@example.org/r\n\tfetch = +x\n[http]\n\textraheader = AUTHORIZATION: basic c2VjcmV0\n",
		".git/HEAD":   "ref: x\n",
	})
	var buf bytes.Buffer
	out := newTarOut(&buf)
	if err := errors.Join(out.tree(dir), out.archive.Close()); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"empty": "", "with space": "a", "ünïcode/": "", "ünïcode/文": "b", "line\nbreak": "c", "dir/": "", "sub/": "", "sub/deep/": "", "sub/deep/f": "d",
		"link": "-> sub", "out": "-> /etc/passwd", "up": "-> ../..", ".env.example": "fine", ".environment": "fine", ".git/": "", ".git/HEAD": "ref: x\n",
		".git/config": "[remote]\n\turl = https://example.org/r\n\tfetch = +x\n[http]\n",
	}
	if diff := cmp.Diff(want, list(t, &buf)); diff != "" {
		t.Errorf("the archive (-want +got):\n%s", diff)
	}
	left := []string{".aws", ".env", ".env.local", ".git/config (credentials in it)", ".netrc", ".ssh", "id_ed25519", "sub/.git-credentials", "sub/.npmrc"}
	slices.Sort(out.left)
	if diff := cmp.Diff(left, out.left); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}
}

func TestTarOutNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{"a/b": "x", "f": "y", "l -> f": "", "fifo/": "", "a/.env": "secret"})
	for _, tt := range []struct {
		src  string
		want map[string]string
		left []string
	}{
		{"a", map[string]string{"a/": "", "a/b": "x"}, []string{".env"}},
		{"a/", map[string]string{"a/": "", "a/b": "x"}, []string{".env"}},
		{"f", map[string]string{"f": "y"}, nil},
		{"l", map[string]string{"l": "y"}, nil}, // a link that is named is followed
	} {
		var buf bytes.Buffer
		out := newTarOut(&buf)
		if err := errors.Join(out.named(filepath.Join(dir, tt.src)), out.archive.Close()); err != nil {
			t.Errorf("named(%s) = %v", tt.src, err)
		}
		if diff := cmp.Diff(tt.want, list(t, &buf)); diff != "" || !slices.Equal(out.left, tt.left) {
			t.Errorf("named(%s) left out %q (-want +got):\n%s", tt.src, out.left, diff)
		}
	}
	for _, src := range []string{"none", "f/x", ""} {
		if err := newTarOut(io.Discard).named(filepath.Join(dir, src, "none")); err == nil {
			t.Errorf("named(%s) = nil; want an error", src)
		}
	}
}

func TestIsCredential(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		".env": true, "a/b/.env": true, ".env.production": true, ".env.example": false, ".env.sample": false, ".env.template": false,
		".envrc": false, "env": false, "x.env": false, ".npmrc": true, ".ssh": true, "a/.ssh": true, "id_rsa": true, "id_rsa.pub": false,
		".docker": true, "docker": false, ".kube": true, "": false, ".": false,
	} {
		if got := isCredential(name); got != want {
			t.Errorf("isCredential(%q) = %t; want %t", name, got, want)
		}
	}
}

func TestIsGitConfig(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		".git/config": true, "a/.git/config": true, ".git/modules/m/config": true, "x/.git/modules/a/b/config": true,
		"config": false, ".git/config.x": false, "git/config": false, ".git/hooks/config": false, "a.git/config": false,
	} {
		if got := isGitConfig(name); got != want {
			t.Errorf("isGitConfig(%q) = %t; want %t", name, got, want)
		}
	}
}

func TestCleanGitConfig(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"[core]\n\tbare = false\n", "[core]\n\tbare = false\n"},
		{"[core]\n\tbare = false", "[core]\n\tbare = false"},
		{"\tExtraHeader=x\n", ""},
		{"\textraheader = x", ""},
		{"\thelper = store\nrest\n", "rest\n"},
		{"\turl = ssh://git@host/x\n", "\turl = ssh://host/x\n"},
		{"\turl = https://u:p@h/x\n", "\turl = https://h/x\n"},
		{"\turl = https://u:p%40@h/x\n", "\turl = https://h/x\n"},
		{"\turl = git@host:x\n", "\turl = git@host:x\n"},
		{"[url \"https://tok@h/\"]\n\tinsteadOf = x\n", "[url \"https://h/\"]\n\tinsteadOf = x\n"},
		{"[http] extraheader = AUTHORIZATION: secret\n\tproxy = x\n", "[http]\n\tproxy = x\n"},
		{"[http \"https://x]y/\"]extraheader=secret\n", "[http \"https://x]y/\"]\n"},
		{"[http]\n\textraheader = a \\\n  secret\n\tproxy = x\n", "[http]\n\tproxy = x\n"},
		{"[http]\n\textraheader = secret\r\n", "[http]\n"},
	} {
		if got := string(cleanGitConfig([]byte(tt.in))); got != tt.want {
			t.Errorf("cleanGitConfig(%q) = %q; want %q", tt.in, got, tt.want)
		}
	}
}

// entry is one of an archive.
type entry struct {
	tar.Header
	content string
}

func pack(tb testing.TB, entries ...entry) []byte {
	tb.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		e.Size = int64(len(e.content))
		if err := w.WriteHeader(&e.Header); err != nil {
			tb.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

func regular_(name, content string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, content}
}

func symlink(name, target string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}, ""}
}

// unpack extracts an archive as Pull does.
func unpack(archive io.Reader, dir string) ([]string, error) {
	in, err := newTarIn(dir)
	if err != nil {
		return nil, err
	}
	defer in.root.Close()
	if err := readTar(archive, in.entry); err != nil {
		return in.skipped, err
	}
	return in.skipped, in.finish()
}

// tree describes a directory: mode and content, or target.
func tree(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		what := info.Mode().String()
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			what = "-> " + target
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			what += " " + string(b)
		}
		all[name] = what
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

func TestTarIn(t *testing.T) {
	t.Parallel()
	const file = "-rw-r--r-- "
	for _, tt := range []struct {
		name    string
		entries []entry
		want    map[string]string // nil: not looked at
		skipped int
		err     string // part of it; "" is none
	}{
		{"plain", []entry{regular_("a", "x"), regular_("b c/ü", "y"), symlink("l", "a")}, map[string]string{"a": file + "x", "b c": "drwxr-xr-x", "b c/ü": file + "y", "l": "-> a"}, 0, ""},
		{"newline in a name", []entry{regular_("a\nb", "x")}, map[string]string{"a\nb": file + "x"}, 0, ""},
		{"parent", []entry{regular_("../evil", "x")}, nil, 0, "leads out"},
		{"parent inside", []entry{regular_("a/../../evil", "x")}, nil, 0, "leads out"},
		{"parent that stays", []entry{regular_("a/../b", "x")}, map[string]string{"b": file + "x"}, 0, ""},
		{"absolute", []entry{regular_("/evil", "x")}, nil, 0, "leads out"},
		{"nothing", []entry{{tar.Header{Name: "", Typeflag: tar.TypeReg}, "x"}}, nil, 0, "directory"},
		{"absolute link", []entry{symlink("l", "/etc/passwd")}, map[string]string{}, 1, ""},
		{"link out", []entry{symlink("l", "../x")}, map[string]string{}, 1, ""},
		{"link out from below", []entry{symlink("a/l", "../../x")}, map[string]string{"a": "drwxr-xr-x"}, 1, ""},
		{"link that stays", []entry{symlink("a/l", "../x")}, map[string]string{"a": "drwxr-xr-x", "a/l": "-> ../x"}, 0, ""},
		{"through a link that was left out", []entry{symlink("l", "/tmp"), regular_("l/evil", "x")}, map[string]string{"l": "drwxr-xr-x", "l/evil": file + "x"}, 1, ""},
		{"through a link out in two steps", []entry{symlink("a", "b"), symlink("b/x", "../.."), regular_("a/x/evil", "x")}, nil, -1, "any"},
		{"file in place of a link", []entry{symlink("l", "a"), regular_("l", "x")}, map[string]string{"l": file + "x"}, 0, ""},
		{"link to itself", []entry{symlink("l", "l"), regular_("l/x", "y")}, nil, 0, "any"},
		{"hard link", []entry{{tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}, ""}}, map[string]string{}, 1, ""},
		{"device", []entry{{tar.Header{Name: "d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 5}, ""}}, map[string]string{}, 1, ""},
		{"block device", []entry{{tar.Header{Name: "d", Typeflag: tar.TypeBlock, Devmajor: 8}, ""}}, map[string]string{}, 1, ""},
		{"fifo", []entry{{tar.Header{Name: "f", Typeflag: tar.TypeFifo}, ""}}, map[string]string{}, 1, ""},
		{"setuid", []entry{{tar.Header{Name: "s", Typeflag: tar.TypeReg, Mode: 0o7755}, "x"}}, map[string]string{"s": "-rwxr-xr-x x"}, 0, ""},
		{"setgid directory", []entry{{tar.Header{Name: "s/", Typeflag: tar.TypeDir, Mode: 0o7777}, ""}}, map[string]string{"s": "drwxrwxrwx"}, 0, ""},
		{"read-only directory", []entry{{tar.Header{Name: "r/", Typeflag: tar.TypeDir, Mode: 0o555}, ""}, regular_("r/f", "x")}, map[string]string{"r": "drwxr-xr-x", "r/f": file + "x"}, 0, ""},
		{"twice", []entry{regular_("a", "x"), regular_("a", "y")}, map[string]string{"a": file + "y"}, 0, ""},
		{"file, then directory", []entry{regular_("a", "x"), regular_("a/b", "y")}, nil, 0, "any"},
		{"directory, then file", []entry{{tar.Header{Name: "a/", Typeflag: tar.TypeDir, Mode: 0o755}, ""}, regular_("a", "y")}, nil, 0, "in the way"},
		{"too deep", []entry{regular_(strings.Repeat("d/", 300)+"f", "x")}, nil, 0, "deeper than 256"},
		{"long name", []entry{regular_(strings.Repeat("n", 256), "x")}, nil, 0, "any"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			outer := t.TempDir()
			dir := filepath.Join(outer, "a", "b", "dir")
			skipped, err := unpack(bytes.NewReader(pack(t, tt.entries...)), dir)
			switch {
			case tt.err == "" && err != nil, tt.err != "" && err == nil && tt.err != "any":
				t.Errorf("unpack() = %v; want %q", err, tt.err)
			case tt.err != "" && tt.err != "any" && !strings.Contains(err.Error(), tt.err):
				t.Errorf("unpack() = %v; want %q", err, tt.err)
			}
			if tt.skipped >= 0 && len(skipped) != tt.skipped {
				t.Errorf("left out %q; want %d", skipped, tt.skipped)
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

// onlyInside checks that nothing but dir and its parents was made below outer.
func onlyInside(tb testing.TB, outer, dir string) {
	tb.Helper()
	for name := range tree(tb, outer) {
		path := filepath.Join(outer, name)
		if !strings.HasPrefix(path+"/", dir+"/") && !strings.HasPrefix(dir+"/", path+"/") {
			tb.Errorf("%s was made outside of %s", path, dir)
		}
	}
}

// A link that the host's user had there leads nowhere either.
func TestTarInExistingLinks(t *testing.T) {
	t.Parallel()
	outer := t.TempDir()
	dir := filepath.Join(outer, "dir")
	plant(t, outer, map[string]string{"dir/": "", "precious": "mine", "away/": ""})
	plant(t, dir, map[string]string{"f -> ../precious": "", "d -> ../away": ""})
	if _, err := unpack(bytes.NewReader(pack(t, regular_("f", "evil"))), dir); err != nil {
		t.Errorf("unpack(f) = %v", err)
	}
	if _, err := unpack(bytes.NewReader(pack(t, regular_("d/x", "evil"))), dir); err == nil {
		t.Error("unpack(d/x) through a link out = nil; want an error")
	}
	if got := tree(t, outer); !strings.HasSuffix(got["precious"], "mine") || got["away/x"] != "" || !strings.HasSuffix(got["dir/f"], "evil") {
		t.Errorf("made %v", got)
	}
}

// header makes the bytes of one tar header with any size in it.
func header(t *testing.T, name string, size int64) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := tar.NewWriter(&buf).WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: size, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestReadTarCaps(t *testing.T) {
	t.Parallel()
	nothing := func(*tar.Header, io.Reader) error { return nil }
	if err := readTar(bytes.NewReader(header(t, "big", maxPullBytes+1)), nothing); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Errorf("readTar(one huge file) = %v; want it to be refused by its size", err)
	}
	if err := readTar(bytes.NewReader(header(t, "half", 1<<20)), nothing); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("readTar(a stream cut off) = %v; want unexpected EOF", err)
	}
	entries := 0
	many := &endless{one: header(t, "f", 0)}
	err := readTar(many, func(*tar.Header, io.Reader) error { entries++; return nil })
	if err == nil || !strings.Contains(err.Error(), "more than") || entries != maxPullEntries {
		t.Errorf("readTar(endless files) = %v after %d; want a refusal after %d", err, entries, maxPullEntries)
	}
	stop := errors.New("stop")
	if err := readTar(bytes.NewReader(pack(t, regular_("a\x1b[2J", "x"))), func(*tar.Header, io.Reader) error { return stop }); !errors.Is(err, stop) || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("readTar() = %q; want the error, and the name made safe", err)
	}
}

// endless repeats one header for ever.
type endless struct {
	one []byte
	at  int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.one[e.at:])
	e.at = (e.at + n) % len(e.one)
	return n, nil
}
