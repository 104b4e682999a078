//go:build linux

package tree

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// archive makes a tar stream of headers. A file has its name as its content.
func archive(tb testing.TB, headers ...*tar.Header) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		h.Format = tar.FormatPAX
		if err := w.WriteHeader(h); err != nil {
			tb.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(h.Name)); err != nil {
				tb.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func dirEntry(name string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}
}

func fileEntry(name string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}
}

func linkEntry(kind byte, name, to string) *tar.Header {
	return &tar.Header{Typeflag: kind, Name: name, Linkname: to, Mode: 0o777}
}

func with(h *tar.Header, change func(*tar.Header)) *tar.Header {
	change(h)
	return h
}

// Archives of strangers: what Pack does not write is refused, and the error says where.
func TestUnpackRefuses(t *testing.T) {
	t.Parallel()
	top := dirEntry("./")
	for _, row := range []struct {
		name    string
		headers []*tar.Header
		want    string // a part of the error; "": none
	}{
		{"a plain one", []*tar.Header{top, dirEntry("./a/"), fileEntry("./a/b"), fileEntry("./c")}, ""},
		{"nothing", nil, "it has no entries"},
		{"no top", []*tar.Header{fileEntry("./a")}, "entry 1, a: the first entry is not ./"},
		{"the top twice", []*tar.Header{top, dirEntry("./")}, "entry 2, : its name does not begin with ./"},
		{"absolute", []*tar.Header{top, fileEntry("/etc/passwd")}, "entry 2, /etc/passwd: its name does not begin with ./"},
		{"without ./", []*tar.Header{top, fileEntry("a")}, "its name does not begin with ./"},
		{"up", []*tar.Header{top, fileEntry("./../a")}, "entry 2, ../a: its name is not that of an entry below the top"},
		{"up from below", []*tar.Header{top, dirEntry("./a/"), fileEntry("./a/../../b")}, "its name is not that of an entry below the top"},
		{"a dot", []*tar.Header{top, dirEntry("./a/"), fileEntry("./a/./b")}, "its name is not that of an entry below the top"},
		{"two slashes", []*tar.Header{top, dirEntry("./a/"), fileEntry("./a//b")}, "its name is not that of an entry below the top"},
		{"a file with a slash", []*tar.Header{top, fileEntry("./a/b")}, "has not come right before it"},
		{"twice", []*tar.Header{top, fileEntry("./a"), fileEntry("./a")}, "entry 3, a: it comes twice"},
		{"a file and a directory", []*tar.Header{top, fileEntry("./a"), dirEntry("./a/")}, "it comes twice"},
		{"not sorted", []*tar.Header{top, fileEntry("./b"), fileEntry("./a")}, "not in the order of names"},
		{"a directory again", []*tar.Header{top, dirEntry("./a/"), fileEntry("./b"), fileEntry("./a/c")}, "has not come right before it"},
		{"below a link", []*tar.Header{top, linkEntry(tar.TypeSymlink, "./a", "/tmp"), fileEntry("./a/b")}, "has not come right before it"},
		{"a directory without a slash", []*tar.Header{top, with(dirEntry("./a/"), func(h *tar.Header) { h.Name = "./a" })}, "does not end in a slash"},
		{"a long name", []*tar.Header{top, fileEntry("./" + strings.Repeat("x", 256))}, "a name has more than 255 bytes"},
		{"a device", []*tar.Header{top, {Typeflag: tar.TypeChar, Name: "./null", Devmajor: 1, Devminor: 3}}, `entries of type '3' are not taken`},
		{"a block device", []*tar.Header{top, {Typeflag: tar.TypeBlock, Name: "./sda", Devmajor: 8}}, `entries of type '4' are not taken`},
		{"a link to what is not there", []*tar.Header{top, linkEntry(tar.TypeLink, "./a", "./b")}, "a link to ./b: no such file"},
		{"a link up", []*tar.Header{top, linkEntry(tar.TypeLink, "./a", "./../b")}, "its name is not that of an entry below the top"},
		{"a link to the machine's", []*tar.Header{top, linkEntry(tar.TypeLink, "./a", "/etc/passwd")}, "its name does not begin with ./"},
		{"a link through a link", []*tar.Header{top, linkEntry(tar.TypeSymlink, "./a", "/etc"), linkEntry(tar.TypeLink, "./b", "./a/passwd")}, "a link to ./a/passwd: not a directory"},
		{"a link to a directory", []*tar.Header{top, dirEntry("./a/"), linkEntry(tar.TypeLink, "./b", "./a")}, "operation not permitted"},
		{"a link to itself", []*tar.Header{top, linkEntry(tar.TypeLink, "./a", "./a")}, "a link to itself"},
		{"a record", []*tar.Header{top, with(fileEntry("./a"), func(h *tar.Header) { h.PAXRecords = map[string]string{"VENDOR.x": "1"} })}, "record VENDOR.x: it is not one that is taken"},
		{"a capability", []*tar.Header{top, with(fileEntry("./a"), func(h *tar.Header) {
			h.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": "x"}
		})}, "extended attribute security.capability: it is not one that is taken"},
		{"a trusted attribute", []*tar.Header{top, with(dirEntry("./a/"), func(h *tar.Header) {
			h.PAXRecords = map[string]string{"SCHILY.xattr.trusted.overlay.opaque": "y"}
		})}, "extended attribute trusted.overlay.opaque: it is not one that is taken"},
		{"an attribute of a link", []*tar.Header{top, with(linkEntry(tar.TypeSymlink, "./a", "b"), func(h *tar.Header) {
			h.PAXRecords = map[string]string{"SCHILY.xattr.user.x": "x"}
		})}, "which only files and directories have"},
		{"another's", []*tar.Header{top, with(fileEntry("./a"), func(h *tar.Header) { h.Uid = 33 })}, "it belongs to user 33"},
		{"another group's", []*tar.Header{top, with(fileEntry("./a"), func(h *tar.Header) { h.Gid = 33 })}, "it belongs to group 33"},
		{"no user's", []*tar.Header{top, with(fileEntry("./a"), func(h *tar.Header) { h.Uid = 1<<32 - 1 })}, "is not a user"},
		{"bits beyond a mode", []*tar.Header{top, with(fileEntry("./a"), func(h *tar.Header) { h.Mode = 0o100644 })}, "has bits that are none of a mode"},
		{"too many", []*tar.Header{top, fileEntry("./a"), fileEntry("./b"), fileEntry("./c"), fileEntry("./d"), fileEntry("./e")}, "entry 6, e: there are more than 4 files"},
		{"too deep", []*tar.Header{top, dirEntry("./a/"), dirEntry("./a/a/"), dirEntry("./a/a/a/")}, "entry 4, a/a/a/: it is deeper than 2 directories"},
		{"too large", []*tar.Header{top, fileEntry("./" + strings.Repeat("x", 200)), fileEntry("./y" + strings.Repeat("x", 200))}, "all files together are larger than 300 bytes"},
	} {
		to := t.TempDir()
		_, err := Unpack(bytes.NewReader(archive(t, row.headers...)), to, Owners{To: User{uint32(os.Getuid()), uint32(os.Getgid())}, Only: true}, Limits{Entries: 4, Depth: 2, Bytes: 300})
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: Unpack() = %v; want %q", row.name, err, row.want)
		}
		if _, err := os.Lstat(filepath.Join(filepath.Dir(to), "b")); err == nil {
			t.Fatalf("%s: Unpack() wrote outside of its directory", row.name)
		}
	}
}

// A stream that was cut, or that goes on behind its end, is refused.
func TestUnpackEnds(t *testing.T) {
	t.Parallel()
	whole := archive(t, dirEntry("./"), fileEntry("./a"))
	owners := Owners{To: User{uint32(os.Getuid()), uint32(os.Getgid())}}
	for name, stream := range map[string][]byte{
		"in a header":    whole[:1000],
		"in a content":   whole[:len(whole)-1024-510],
		"garbage behind": append(bytes.Clone(whole), 'x'),
		"another behind": append(bytes.Clone(whole), whole...),
		"not a tar":      bytes.Repeat([]byte("x"), 4096),
	} {
		if _, err := Unpack(bytes.NewReader(stream), t.TempDir(), owners, DefaultLimits); err == nil {
			t.Errorf("%s: Unpack() = nil; want an error", name)
		}
	}
	if _, err := Unpack(bytes.NewReader(append(bytes.Clone(whole), make([]byte, 10240)...)), t.TempDir(), owners, DefaultLimits); err != nil {
		t.Errorf("Unpack() of one with zeros behind = %v; want nil", err)
	}
}

// The session's user owns what the archive's did. Others keep their number where the profile has them.
func TestOwners(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		o                Owners
		uid, gid         int
		wantUID, wantGID int
		ok               bool
	}{
		{Owners{From: User{1000, 1000}, To: User{501, 20}, Only: true}, 1000, 1000, 501, 20, true},
		{Owners{From: User{1000, 1000}, To: User{501, 20}, Only: true}, 0, 1000, 0, 0, false},
		{Owners{From: User{1000, 1000}, To: User{501, 20}, Only: true}, 1000, 0, 0, 0, false},
		{Owners{From: User{0, 0}, To: User{1000, 1000}, Only: true}, 0, 0, 1000, 1000, true},
		{Owners{From: User{0, 0}, To: User{0, 0}}, 33, 44, 33, 44, true},
		{Owners{From: User{1000, 1000}, To: User{0, 0}}, 1000, 44, 0, 44, true},
		{Owners{}, -1, 0, 0, 0, false},
	} {
		uid, gid, err := row.o.of(&tar.Header{Uid: row.uid, Gid: row.gid})
		if uid != row.wantUID || gid != row.wantGID || (err == nil) != row.ok {
			t.Errorf("%+v.of(%d:%d) = %d, %d, %v; want %d, %d, ok %v", row.o, row.uid, row.gid, uid, gid, err, row.wantUID, row.wantGID, row.ok)
		}
	}
}

// Any bytes: no panic, nothing outside, nothing without an end.
func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, dirEntry("./"), dirEntry("./a/"), fileEntry("./a/b"), linkEntry(tar.TypeSymlink, "./l", "/etc"), linkEntry(tar.TypeLink, "./m", "./a/b")))
	f.Add(archive(f, dirEntry("./"), with(fileEntry("./a"), func(h *tar.Header) {
		h.ModTime, h.PAXRecords = time.Unix(-1, 5), map[string]string{"SCHILY.xattr.user.x": "y"}
	})))
	dir := f.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "s"), []byte("data"), 0o600); err != nil {
		f.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "s"), 1<<20); err != nil {
		f.Fatal(err)
	}
	var sparse bytes.Buffer
	if _, err := Pack(&sparse, dir, DefaultLimits); err != nil {
		f.Fatal(err)
	}
	f.Add(sparse.Bytes())
	f.Fuzz(func(t *testing.T, stream []byte) {
		above := t.TempDir()
		to := filepath.Join(above, "to")
		if err := os.Mkdir(to, 0o700); err != nil {
			t.Fatal(err)
		}
		limits := Limits{Entries: 100, Depth: 5, Bytes: 4 << 20}
		report, err := Unpack(bytes.NewReader(stream), to, Owners{To: User{uint32(os.Getuid()), uint32(os.Getgid())}, Only: true}, limits)
		if list, _ := os.ReadDir(above); len(list) != 1 {
			t.Fatalf("Unpack() made %v outside of its directory", list)
		}
		if err == nil && (report.Entries > 100 || report.Bytes > 4<<20) {
			t.Errorf("Unpack() = %+v; want it within %+v", report, limits)
		}
		_ = os.Chmod(to, 0o700)
	})
}
