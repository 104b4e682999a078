//go:build linux

package tree

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// grow makes a tree with one of each kind of entry, and odd ones.
func grow(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(at(name)), 0o755), os.WriteFile(at(name), []byte(text), 0o600), os.Chmod(at(name), mode)); err != nil {
			t.Fatal(err)
		}
	}
	write("a", "text", 0o644)
	write("empty", "", 0o600)
	write("script", "#!/bin/sh\n", 0o755)
	write("setuid", "x", os.ModeSetuid|os.ModeSetgid|0o755)
	write("d/e/f", strings.Repeat("0123456789", 100_000), 0o400)
	write("d/new\nline", "n", 0o644)
	write("d/\xff\xfe not utf-8", "u", 0o644)
	write("d/"+strings.Repeat("l", 255), "long", 0o644)
	write("d/=x%3D", "odd", 0o644)
	write("z/last", "z", 0o644)
	deep := at(strings.Repeat("deep/", 60))
	write("many/x", "", 0o644)
	for i := range 3 * part {
		write("many/"+strconv.Itoa(i), strconv.Itoa(i), 0o644)
	}
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	must(
		os.MkdirAll(deep, 0o700), os.Mkdir(at("nothing"), 0o700), os.Mkdir(at("sticky"), 0o700), os.Chmod(at("sticky"), os.ModeSticky|0o777),
		os.Symlink("a", at("link")), os.Symlink("/etc/passwd", at("away")), os.Symlink(strings.Repeat("t/", 300), at("d/dangling")),
		os.Link(at("a"), at("hard")), os.Link(at("a"), at("d/e/hard")), os.Link(at("link"), at("hardlink")),
		unix.Mkfifo(at("fifo"), 0o640), os.Link(at("fifo"), at("z/fifo")),
		unix.Setxattr(at("a"), "user.note", []byte("with\x00zero"), 0), unix.Setxattr(at("d"), "user.a=b%", []byte("x"), 0),
	)
	hole, err := os.Create(at("hole"))
	must(err)
	for _, off := range []int64{0, 1 << 20, 9<<20 + 123} {
		_, err := hole.WriteAt([]byte("data"), off)
		must(err)
	}
	must(hole.Truncate(20<<20), hole.Close())
	nothing, err := os.Create(at("allhole"))
	must(err, nothing.Truncate(64<<20), nothing.Close())
	if os.Getuid() == 0 {
		must(os.Chown(at("z/last"), 12345, 54321), os.Lchown(at("away"), 1, 2))
	}
	old := unix.NsecToTimespec(981173106_123456789)
	for i, name := range []string{"a", "link", "d/e/f", "fifo", "d/e", "d", "nothing", "hole", "."} {
		old.Sec += int64(i)
		must(unix.UtimesNanoAt(unix.AT_FDCWD, at(name), []unix.Timespec{old, old}, unix.AT_SYMLINK_NOFOLLOW))
	}
	must(unix.UtimesNanoAt(unix.AT_FDCWD, at("empty"), []unix.Timespec{{Sec: -2, Nsec: 5}, {Sec: -2, Nsec: 500_000_000}}, 0))
	must(os.Chmod(at("d/e/f"), 0), os.Chmod(at("nothing"), 0), os.Chmod(dir, 0o750))
	t.Cleanup(func() { _ = os.Chmod(at("nothing"), 0o700) })
	time.Sleep(2 * racy) // what is younger counts as changing
	return dir
}

// described returns one line for each entry of a tree: everything that must come back.
func described(t *testing.T, dir string) map[string]string {
	t.Helper()
	out, first := map[string]string{}, map[uint64]string{}
	err := filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, name)
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err != nil {
			return err
		}
		text := fmt.Sprintf("%o %d:%d %d.%09d", st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			b, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(b)
			text += fmt.Sprintf(" %d %s", st.Size, hex.EncodeToString(sum[:8]))
			if st.Size > 1<<20 {
				text += fmt.Sprintf(" sparse=%v", sparse(&st))
			}
		case unix.S_IFLNK:
			target, _ := os.Readlink(name)
			text += " -> " + target
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR && st.Nlink > 1 {
			if first[st.Ino] == "" {
				first[st.Ino] = rel
			}
			text += " = " + first[st.Ino]
		}
		if st.Mode&unix.S_IFMT == unix.S_IFREG || st.Mode&unix.S_IFMT == unix.S_IFDIR {
			fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			all, err := attributes(fd)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %q", all)
		}
		out[rel] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func differ(t *testing.T, got, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("%q: %s; want %s", name, got[name], want[name])
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%q is there; want nothing", name)
		}
	}
}

// needsRoot skips a test that reads what its owner cannot, and changes owners.
func needsRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("the verbs run as uid 0, with its capabilities")
	}
}

// What is copied is the same in everything but inode and ctime.
func TestCopy(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	from, to := grow(t), t.TempDir()
	want := described(t, from)
	report, err := Copy(from, to, DefaultLimits)
	if err != nil {
		t.Fatalf("Copy() = %v; want nil", err)
	}
	if report.ChangedCount != 0 || report.LeftOutCount != 0 || report.Entries != int64(len(want)-1) {
		t.Errorf("Copy() = %+v; want %d entries, nothing changed and nothing left out", report, len(want)-1)
	}
	differ(t, described(t, to), want)
	differ(t, described(t, from), want) // nothing of the original has changed
}

// What is packed and unpacked is the same too, and GNU tar reads it.
func TestPackUnpack(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	from, to := grow(t), t.TempDir()
	want := described(t, from)
	var stream bytes.Buffer
	packed, err := Pack(&stream, from, DefaultLimits)
	if err != nil {
		t.Fatalf("Pack() = %v; want nil", err)
	}
	if packed.ChangedCount != 0 || packed.LeftOutCount != 0 || packed.Entries != int64(len(want)-1) {
		t.Errorf("Pack() = %+v; want %d entries, nothing changed and nothing left out", packed, len(want)-1)
	}
	if stream.Len() > 10<<20 {
		t.Errorf("Pack() wrote %d bytes; want holes left out", stream.Len())
	}
	got, err := Unpack(bytes.NewReader(stream.Bytes()), to, Owners{}, DefaultLimits)
	if err != nil {
		t.Fatalf("Unpack() = %v; want nil", err)
	}
	if got.Sum != packed.Sum || got.Entries != packed.Entries || got.Bytes != packed.Bytes {
		t.Errorf("Unpack() = %+v; want %+v", got, packed)
	}
	differ(t, described(t, to), want)
	var again bytes.Buffer
	if _, err := Pack(&again, to, DefaultLimits); err != nil || !bytes.Equal(again.Bytes(), stream.Bytes()) {
		t.Errorf("Pack() of what was unpacked has %d other bytes, %v; want the same %d", again.Len(), err, stream.Len())
	}
}

// Sockets and devices are left out, and named.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), t.TempDir()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(from, "s")}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * racy)
	for name, do := range map[string]func() (wire.Tree, error){
		"Copy": func() (wire.Tree, error) { return Copy(from, to, DefaultLimits) },
		"Pack": func() (wire.Tree, error) { return Pack(io.Discard, from, DefaultLimits) },
	} {
		if got, err := do(); err != nil || !slices.Equal(got.LeftOut, []string{"s (a socket)"}) || got.ChangedCount != 0 {
			t.Errorf("%s() = %+v, %v; want the socket left out", name, got, err)
		}
	}
}

// What changes while it is read, or has just changed, is named.
func TestChanged(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	for _, row := range []struct {
		name   string
		change func(dir string) error
		want   []string
	}{
		{"nothing", func(string) error { return nil }, nil},
		{"content", func(dir string) error { return os.WriteFile(filepath.Join(dir, "a"), []byte("b"), 0o600) }, []string{"a"}},
		{"a mode", func(dir string) error { return os.Chmod(filepath.Join(dir, "a"), 0o700) }, []string{"a"}},
		{"gone", func(dir string) error { return os.Remove(filepath.Join(dir, "d/f")) }, []string{"d", "d/f"}},
		{"new", func(dir string) error { return os.WriteFile(filepath.Join(dir, "n"), nil, 0o600) }, []string{"."}},
		{"a directory becomes a link", func(dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, "d")), os.Symlink("/", filepath.Join(dir, "d")))
		}, []string{".", "d"}},
	} {
		dir := t.TempDir()
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "a"), nil, 0o600), os.Mkdir(filepath.Join(dir, "d"), 0o700), os.WriteFile(filepath.Join(dir, "d/f"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * racy)
		top := &node{}
		p := &packing{raw: io.Discard, tar: tar.NewWriter(io.Discard), limits: DefaultLimits, hard: map[inode]string{}}
		fd, err := unix.Open(dir, openDir, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		if err := errors.Join(p.dir(fd, top, 0), row.change(dir)); err != nil {
			t.Fatal(err)
		}
		var report wire.Tree
		if err := top.compare(fd, &report); err != nil || !slices.Equal(report.Changed, row.want) {
			t.Errorf("%s: compare() = %q, %v; want %q", row.name, report.Changed, err, row.want)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "young"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Copy(dir, t.TempDir(), DefaultLimits); err != nil || got.ChangedCount == 0 {
		t.Errorf("Copy() of a file that has just been made = %+v, %v; want it named as one that may have changed", got, err)
	}
}

// While a command swaps directories for links that lead out, nothing from there is copied or packed.
func TestSwappedForLinks(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	dir, outside := t.TempDir(), t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600), os.Mkdir(filepath.Join(dir, "real"), 0o700),
		os.Symlink(outside, filepath.Join(dir, "link")), os.WriteFile(filepath.Join(dir, "real/secret"), []byte("plain"), 0o600)); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "real"), unix.AT_FDCWD, filepath.Join(dir, "link"), unix.RENAME_EXCHANGE)
			}
		}
	}()
	for range 300 {
		to := t.TempDir()
		if _, err := Copy(dir, to, DefaultLimits); err != nil {
			t.Fatalf("Copy() = %v; want nil", err)
		}
		for _, name := range []string{"real", "link"} {
			info, err := os.Lstat(filepath.Join(to, name))
			if err != nil || !info.IsDir() {
				continue
			}
			if b, _ := os.ReadFile(filepath.Join(to, name, "secret")); string(b) == "secret" {
				t.Fatalf("Copy() copied what a link leads to")
			}
		}
		var out bytes.Buffer
		if _, err := Pack(&out, dir, DefaultLimits); err != nil || bytes.Contains(out.Bytes(), []byte("secret\x00\x00\x00")) && bytes.Contains(out.Bytes(), []byte("\x00secret\x00")) {
			t.Fatalf("Pack() = %v, and took what a link leads to", err)
		}
	}
	close(stop)
	<-done
}

// Trees beyond the bounds are refused.
func TestLimits(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		make func(dir string) error
		l    Limits
		want string
	}{
		{"fits", func(dir string) error { return os.MkdirAll(filepath.Join(dir, "a/b"), 0o700) }, Limits{2, 2, 0}, ""},
		{"too many", func(dir string) error { return os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o700) }, Limits{2, 9, 0}, "a/b: there are more than 2 files"},
		{"too deep", func(dir string) error { return os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o700) }, Limits{9, 2, 0}, "a/b/c: it is deeper than 2 directories"},
		{"too large", func(dir string) error { return os.WriteFile(filepath.Join(dir, "f"), make([]byte, 11), 0o600) }, Limits{9, 2, 10}, "f: all files together are larger than 10 bytes"},
		{"a hole counts", func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "f"), nil, 0o600), os.Truncate(filepath.Join(dir, "f"), 1<<41))
		}, DefaultLimits, "f: all files together are larger than 1099511627776 bytes"},
	} {
		dir := t.TempDir()
		if err := row.make(dir); err != nil {
			t.Fatal(err)
		}
		_, copyErr := Copy(dir, t.TempDir(), row.l)
		_, packErr := Pack(io.Discard, dir, row.l)
		for name, err := range map[string]error{"Copy": copyErr, "Pack": packErr} {
			if text := fmt.Sprint(err); (row.want == "") != (err == nil) || err != nil && text != row.want {
				t.Errorf("%s: %s() = %v; want %q", row.name, name, err, row.want)
			}
		}
	}
	full := t.TempDir()
	if err := os.Mkdir(filepath.Join(full, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Copy(t.TempDir(), full, DefaultLimits); err == nil {
		t.Error("Copy() into a directory with something in it = nil; want an error")
	}
	if _, err := Unpack(strings.NewReader(""), full, Owners{}, DefaultLimits); err == nil {
		t.Error("Unpack() into a directory with something in it = nil; want an error")
	}
}
