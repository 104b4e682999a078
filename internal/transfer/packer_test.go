package transfer

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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

func TestPacker(t *testing.T) {
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
	out := NewPacker(&buf)
	if err := errors.Join(out.Tree(dir), out.Close()); err != nil {
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
	slices.Sort(out.Left)
	if diff := cmp.Diff(left, out.Left); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}
}

func TestPackerNamed(t *testing.T) {
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
		out := NewPacker(&buf)
		if err := errors.Join(out.Named(filepath.Join(dir, tt.src)), out.Close()); err != nil {
			t.Errorf("Named(%s) = %v", tt.src, err)
		}
		if diff := cmp.Diff(tt.want, list(t, &buf)); diff != "" || !slices.Equal(out.Left, tt.left) {
			t.Errorf("Named(%s) left out %q (-want +got):\n%s", tt.src, out.Left, diff)
		}
	}
	for _, src := range []string{"none", "f/x", ""} {
		if err := NewPacker(io.Discard).Named(filepath.Join(dir, src, "none")); err == nil {
			t.Errorf("Named(%s) = nil; want an error", src)
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
		if got := IsCredential(name); got != want {
			t.Errorf("IsCredential(%q) = %t; want %t", name, got, want)
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
