package images

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/ociarchive"
)

func machine(t *testing.T) *snapshot {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("a snapshot is of a linux machine")
	}
	snap, err := newSnapshot(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

func TestLibrariesAsTheLinkerFindsThem(t *testing.T) {
	t.Parallel()
	snap := machine(t)
	for _, program := range []string{"/bin/bash", "/usr/bin/git", "/usr/bin/perl", "/usr/bin/curl"} {
		if _, ok := snap.entries[program]; !ok && program != "/bin/bash" {
			t.Logf("%s is not on this machine", program)
			continue
		}
		out, err := exec.CommandContext(t.Context(), "ldd", program).Output()
		if err != nil {
			t.Skipf("no ldd to compare with: %v", err)
		}
		for line := range strings.Lines(string(out)) {
			for field := range strings.FieldsSeq(line) {
				if !strings.HasPrefix(field, "/") {
					continue
				}
				target, err := filepath.EvalSymlinks(field)
				if err != nil {
					t.Fatal(err)
				}
				if _, ok := snap.entries[target]; !ok {
					t.Errorf("the snapshot lacks %s, which ldd names for %s", field, program)
				}
			}
		}
	}
}

func TestSnapshotContent(t *testing.T) {
	t.Parallel()
	snap := machine(t)
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		pw.CloseWithError(snap.write(t.Context(), pw, func(int64) {}))
	}()
	seen := make(map[string]*tar.Header)
	links := make(map[string]string)
	for tr := tar.NewReader(pr); ; {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		seen[hdr.Name] = hdr
		checkEntry(t, hdr)
		if hdr.Typeflag == tar.TypeLink {
			links[hdr.Name] = hdr.Linkname
		}
	}
	<-done
	for from, to := range links {
		if seen[to] == nil {
			t.Errorf("%s is a hard link to %s, which is not there", from, to)
		}
	}
	for name, mode := range map[string]int64{"tmp/": 0o1777, "var/tmp/": 0o1777, "home/agent/": 0o705, "workspace/": 0o705, "run/": 0o705, "etc/passwd": 0o604} {
		if hdr := seen[name]; hdr == nil || hdr.Mode != mode {
			t.Errorf("the snapshot has %s as %+v; want mode %o", name, hdr, mode)
		}
	}
	if snap.entries["/usr/bin/false"].size == 0 {
		t.Error("the snapshot has no /usr/bin/false")
	}
}

// checkEntry holds the rules for everything in a snapshot.
func checkEntry(t *testing.T, hdr *tar.Header) {
	t.Helper()
	if hdr.Uid != 0 || hdr.Gid != 0 || hdr.Uname != "" {
		t.Errorf("%s is owned by %d:%d %q; want 0:0", hdr.Name, hdr.Uid, hdr.Gid, hdr.Uname)
	}
	if hdr.Mode&0o6000 != 0 {
		t.Errorf("%s has mode %o; want no setuid or setgid", hdr.Name, hdr.Mode)
	}
	switch hdr.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink:
	default:
		t.Errorf("%s has type %c; want a file, directory or link", hdr.Name, hdr.Typeflag)
	}
	if !strings.HasSuffix(hdr.Name, ".py") && !hdr.ModTime.Equal(ociarchive.Epoch) {
		t.Errorf("%s has time %v; want %v", hdr.Name, hdr.ModTime, ociarchive.Epoch)
	}
	made := map[string]bool{"etc/passwd": true, "etc/group": true, "etc/nsswitch.conf": true, "etc/hosts": true, "etc/ld.so.cache": true, "home/agent/": true, "usr/lib/locale/locale-archive": true, "var/tmp/": true}
	top, below, _ := strings.Cut(strings.TrimSuffix(hdr.Name, "/"), "/")
	switch {
	case below == "" || made[hdr.Name]:
	case top == "etc" && (hdr.Typeflag == tar.TypeDir || permitted("/"+hdr.Name)):
	case top == "usr" || top == "bin" || top == "sbin" || strings.HasPrefix(top, "lib") || top == "opt":
	default:
		t.Errorf("%s is in the snapshot; want nothing of this machine's own there", hdr.Name)
	}
}

func TestSnapshotIsReproducible(t *testing.T) {
	t.Parallel()
	small := newTree()
	small.make("/b/file", 0o644, "x")
	small.make("/a", 0o755, "y")
	small.link("/l", "a")
	var first, second bytes.Buffer
	for _, w := range []*bytes.Buffer{&first, &second} {
		if err := small.write(t.Context(), w, func(int64) {}); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("write() gave different bytes for the same tree")
	}
	before := small.digest("1")
	small.make("/a", 0o755, "z")
	if before == small.digest("1") {
		t.Error("digest() is the same after a file has changed")
	}
	if one, two := machine(t).hash, machine(t).hash; one != two {
		t.Errorf("newSnapshot() gave digests %s and %s for the same machine", one, two)
	}
}

func TestPermitted(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"/usr/bin/test": true, "/bin/sh": true, "/etc/ssl/certs/a.pem": true, "/etc/ssl/openssl.cnf": true,
		"/etc/shadow": false, "/etc/ssl/private/k": false, "/root/.ssh/id": false, "/home/a/bin/x": false,
		"/usr/lib/python3/dist-packages/x": false, "/usr/lib/python3.11/test/x.py": false, "/usr/share/doc/x": false,
		"/usr/lib/libx.a": false, "/var/lib/x": false, "/proc/self/exe": false, "/usrx": false,
	} {
		if got := permitted(path); got != want {
			t.Errorf("permitted(%q) = %v; want %v", path, got, want)
		}
	}
}

func TestShorten(t *testing.T) {
	t.Parallel()
	tr := newTree()
	tr.link("/lib", "usr/lib")
	for _, tt := range []struct{ path, link, want string }{
		{"/usr/lib64/ld.so", "/lib/x/ld.so.2", "../lib/x/ld.so.2"},
		{"/usr/bin/vi", "/usr/bin/vim", "vim"},
		{"/usr/bin/awk", "/etc/alternatives/awk", "/etc/alternatives/awk"},
		{"/usr/bin/view", "vim", "vim"},
		{"/etc/alternatives/awk", "/usr/bin/mawk", "/usr/bin/mawk"},
		{"/usr/share/up", "/usr/../etc/x", "/usr/../etc/x"},
	} {
		tr.link(tt.path, tt.link)
		tr.shorten("/usr")
		if got := tr.entries[tt.path].link; got != tt.want {
			t.Errorf("%s -> %s = %s; want %s", tt.path, tt.link, got, tt.want)
		}
	}
}
