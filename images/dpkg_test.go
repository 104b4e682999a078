package images

import (
	"crypto/md5" //nolint:gosec // as dpkg does
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// status is what dpkg says of some packages.
const status = `Package: gcc
Status: install ok installed
Architecture: amd64
Depends: cpp (= 4:12.2.0-3), gcc-12 (>= 12.2.0-1~), x | libgone | binutils (>= 2)
Description: the compiler
 Depends: a line of the description

Package: cpp
Status: install ok installed
Architecture: amd64
Depends: gcc-12, debconf (>= 0.5) | debconf-2.0, libmissing

Package: gcc-12
Status: install ok installed
Architecture: amd64
Pre-Depends: libc6:any (>= 2.36), c-compiler
Conffiles:
 /etc/gcc.conf 0123
 /etc/old.conf 4567 obsolete

Package: binutils-real
Status: install ok installed
Architecture: amd64
Provides: binutils (= 2.40), c-compiler

Package: libc6
Status: install ok installed
Architecture: amd64

Package: x
Status: deinstall ok config-files
Architecture: all

Package: debconf
Status: install ok installed
Architecture: all
Depends: perl

Package: perl
Status: install ok installed
Architecture: all
`

func debianOf(t *testing.T, lists map[string]string) *debian {
	t.Helper()
	files := map[string][]byte{"status": []byte(status)}
	for name, text := range lists {
		files[name] = []byte(text)
	}
	dir := writeAll(t, files)
	d, err := readDebian(filepath.Join(dir, "status"), dir)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func packageNames(list []*debianPackage) string {
	names := make([]string, 0, len(list))
	for _, p := range list {
		names = append(names, p.name)
	}
	return strings.Join(names, " ")
}

func TestDebianNeeded(t *testing.T) {
	t.Parallel()
	d := debianOf(t, nil)
	for _, row := range []struct{ names, want string }{
		{"gcc", "binutils-real cpp gcc gcc-12 libc6"}, // by a virtual name; without debconf and what that needs
		{"gcc libc6 gcc", "binutils-real cpp gcc gcc-12 libc6"},
		{"perl", "perl"},
		{"x", ""}, // it was removed
		{"unknown", ""},
		{"", ""},
	} {
		if got := packageNames(d.needed(strings.Fields(row.names))); got != row.want {
			t.Errorf("needed(%s) = %q; want %q", row.names, got, row.want)
		}
	}
}

func TestDebianOwners(t *testing.T) {
	t.Parallel()
	d := debianOf(t, map[string]string{
		"gcc.list":         "/.\n/usr/bin/gcc\n",
		"gcc-12.list":      "/usr/bin/x86_64-linux-gnu-gcc-12\n",
		"libc6:amd64.list": "/bin/ldd\n/lib/libc.so.6\n",
	})
	for path, want := range map[string]string{"/usr/bin/gcc": "gcc", "/usr/bin/ldd": "libc6", "/bin/ldd": "libc6", "/usr/local/bin/gcc": ""} {
		if got := strings.Join(d.owners(map[string]bool{path: true}), " "); got != want {
			t.Errorf("owners(%s) = %q; want %q", path, got, want)
		}
	}
	if got, want := d.files(d.byName["libc6"]), []string{"/bin/ldd", "/lib/libc.so.6"}; !slices.Equal(got, want) {
		t.Errorf("files(libc6) = %q; want %q, of the list with an architecture", got, want)
	}
	if got := d.files(d.byName["perl"]); got != nil {
		t.Errorf("files(perl) = %q; want none without a list", got)
	}
}

// A configuration file that was edited here may hold anything.
func TestUnedited(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "conf")
	if err := os.WriteFile(path, []byte("as packaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	sum := fmt.Sprintf("%x", md5.Sum([]byte("as packaged"))) //nolint:gosec // as above
	for _, row := range []struct {
		path, sum string
		want      bool
	}{
		{path, sum, true},
		{path, strings.Repeat("0", 32), false},
		{path, "", false}, // a file that the package does not have as configuration
		{dir, "", true},
		{filepath.Join(dir, "link"), "", true},
		{filepath.Join(dir, "gone"), sum, false},
	} {
		if got := unedited(row.path, row.sum); got != row.want {
			t.Errorf("unedited(%s, %q) = %t; want %t", row.path, row.sum, got, row.want)
		}
	}
}

func TestReadDebianWithout(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, err := readDebian(filepath.Join(dir, "status"), dir)
	if err != nil || len(d.byName) != 0 || d.owners(map[string]bool{"/usr/bin/gcc": true}) != nil {
		t.Errorf("readDebian() of no file = %+v, %v; want no packages", d, err)
	}
	if _, err := readDebian(dir, dir); err == nil {
		t.Error("readDebian() of a directory = nil; want an error")
	}
}
