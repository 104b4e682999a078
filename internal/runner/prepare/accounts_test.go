//go:build linux

package prepare

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Each row is what an image has, and the lines that are missing for user 1000 of group 100.
func TestAddTo(t *testing.T) {
	t.Parallel()
	const user, group = "agent:x:1000:100::/home/agent:/bin/sh\n", "agent:x:100:\n"
	for _, row := range []struct{ name, passwd, group, wantUser, wantGroup string }{
		{"nothing", "", "", user, group},
		{"others", "root:x:0:0::/:/bin/sh\n", "root:x:0:\n", user, group},
		{"both", "me:x:1000:5::/:/bin/sh\n", "us:x:100:\n", "", ""},
		{"a number at another's place", "a:x:5:1000::/:/bin/sh\n", "b:100:7:\n", user, group},
		{"a last line without an end", "root:x:0:0::/:/bin/sh", "root:x:0:", "\n" + user, "\n" + group},
		{"the name is taken", "agent:x:5:5::/:/bin/sh\n", "agent:x:5:\n", "agent1000:x:1000:100::/home/agent:/bin/sh\n", "agent100:x:100:\n"},
		{"the other name too", "agent:x:5:5\nagent1000:x:6:6\n", "", "agent1000x:x:1000:100::/home/agent:/bin/sh\n", group},
		{"comments", "#me:x:1000:5::/:/bin/sh\n", "#us:x:100:\n", user, group},
		{"too few fields", "me:x:1000\n", "us:x\n", user, group},
		{"not a number", "me:x:0x3e8:5::/:/bin/sh\nme:x:-1000:5::\n", "us:x: 100:\n", user, group},
		{"numbers beyond the range", "me:x:4294968296:5::/:\n", "us:x:4294967396:\n", user, group},
	} {
		a := account{uid: 1000, gid: 100, name: "agent", home: "/home/agent", shell: "/bin/sh"}
		gotUser, gotGroup := a.addTo([]byte(row.passwd), []byte(row.group))
		if string(gotUser) != row.wantUser || string(gotGroup) != row.wantGroup {
			t.Errorf("%s: addTo(%q, %q) = %q, %q; want %q, %q", row.name, row.passwd, row.group, gotUser, gotGroup, row.wantUser, row.wantGroup)
		}
	}
}

// An image's own files of accounts may be anything: only plain ones are read, and no more
// than so much of them.
func TestReadAccounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, size := range map[string]int64{"plain": 3, "full": maxAccounts, "large": maxAccounts + 1} {
		if err := errors.Join(os.WriteFile(at(name), nil, 0o600), os.Truncate(at(name), size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("plain", at("link")), os.Mkdir(at("dir"), 0o700), unix.Mkfifo(at("fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	top := openDir(t, dir)
	for _, row := range []struct {
		name string
		size int
		err  error
	}{
		{"none", 0, nil},
		{"plain", 3, nil},
		{"full", maxAccounts, nil},
		{"large", maxAccounts + 1, errLarge},
		{"link", 0, unix.ELOOP},
		{"dir", 0, errOdd},
		{"fifo", 0, errOdd}, // and does not wait for a writer
	} {
		if b, err := readAccounts(top, row.name); len(b) != row.size || !errors.Is(err, row.err) || (err != nil) != (row.err != nil) {
			t.Errorf("readAccounts(%s) = %d bytes, %v; want %d, %v", row.name, len(b), err, row.size, row.err)
		}
	}
}

func openDir(t *testing.T, path string) int {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// A copy has files, directories and links as they are, and nothing else: no device, no
// bits beyond permissions, nothing from behind a link or from what is mounted.
func TestCopyTree(t *testing.T) {
	t.Parallel()
	from, to, outside := t.TempDir(), t.TempDir(), t.TempDir()
	src := func(name string) string { return filepath.Join(from, name) }
	dst := func(name string) string { return filepath.Join(to, name) }
	write := func(path, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(outside, "secret"), "secret")
	write(src("file"), "text")
	write(src("dir/below"), "below")
	write(src("mounted/hidden"), "hidden")
	write(src("hosts"), "of the engine's")
	write(src("passwd"), "skipped")
	old := time.Unix(1e9, 0)
	err := errors.Join(
		os.Symlink(outside, src("link")), os.Symlink("/none", src("dangling")), unix.Mkfifo(src("fifo"), 0o600),
		os.Chmod(src("file"), os.ModeSetuid|0o755), os.Chmod(src("dir"), os.ModeSticky|0o711), os.Chtimes(src("file"), old, old),
	)
	if err != nil {
		t.Fatal(err)
	}
	c := copier{
		mounts: map[string]bool{src("mounted"): true, src("hosts"): true}, skip: map[string]bool{src("passwd"): true},
		bytes: 1 << 10, entries: 100,
	}
	if err := c.dir(openDir(t, from), openDir(t, to), from, 0); err != nil {
		t.Fatalf("dir() = %v; want nil", err)
	}
	for name, want := range map[string]string{"file": "text", "dir/below": "below", "hosts": ""} {
		if b, err := os.ReadFile(dst(name)); string(b) != want || err != nil {
			t.Errorf("%s holds %q, %v; want %q", name, b, err, want)
		}
	}
	for name, want := range map[string]string{"link": outside, "dangling": "/none"} {
		if got, err := os.Readlink(dst(name)); got != want || err != nil {
			t.Errorf("%s leads to %q, %v; want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"fifo", "passwd", "mounted/hidden"} {
		if _, err := os.Lstat(dst(name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v; want it left out", name, err)
		}
	}
	for name, want := range map[string]os.FileMode{"file": 0o755, "dir": os.ModeDir | 0o711, "mounted": os.ModeDir | 0o755} {
		if info, err := os.Lstat(dst(name)); err != nil || info.Mode() != want {
			t.Errorf("%s has mode %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
	if info, err := os.Stat(dst("file")); err != nil || !info.ModTime().Equal(old) {
		t.Errorf("the file's time is %v, %v; want %v", info.ModTime(), err, old)
	}
}

// An image without end is not copied: the bounds hold for bytes, entries, links and depth.
func TestCopyTreeBounds(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		make    func(dir string) error
		bytes   int64
		entries int
		want    error
	}{
		{"just fits", func(dir string) error { return os.WriteFile(filepath.Join(dir, "f"), make([]byte, 10), 0o600) }, 10, 1, nil},
		{"a byte too many", func(dir string) error { return os.WriteFile(filepath.Join(dir, "f"), make([]byte, 11), 0o600) }, 10, 1, errLarge},
		{"two files", func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "f"), make([]byte, 6), 0o600), os.WriteFile(filepath.Join(dir, "g"), make([]byte, 6), 0o600))
		}, 10, 2, errLarge},
		{"an entry too many", func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "a"), 0o700), os.Mkdir(filepath.Join(dir, "a/b"), 0o700))
		}, 10, 1, errLarge},
		{"a long link", func(dir string) error { return os.Symlink(strings.Repeat("x", 11), filepath.Join(dir, "l")) }, 10, 1, errLarge},
		{"a sparse file", func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "f"), nil, 0o600), os.Truncate(filepath.Join(dir, "f"), 1<<40))
		}, maxEtcBytes, 1, errLarge},
		{"as deep as it may be", func(dir string) error {
			return os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", maxEtcDepth)), 0o700)
		}, 10, 100, nil},
		{"too deep", func(dir string) error {
			return os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", maxEtcDepth+1)), 0o700)
		}, 10, 100, errLarge},
	} {
		from := t.TempDir()
		if err := row.make(from); err != nil {
			t.Fatal(err)
		}
		c := copier{bytes: row.bytes, entries: row.entries}
		err := c.dir(openDir(t, from), openDir(t, t.TempDir()), from, 0)
		if !errors.Is(err, row.want) || (err != nil) != (row.want != nil) {
			t.Errorf("%s: dir() = %v; want %v", row.name, err, row.want)
		}
	}
}

// What is in the way of an engine's own files stays, and the file that says that all is
// there comes last.
func TestWriteAccounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hosts"), []byte("own"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeAccounts(openDir(t, dir), []byte("users"), []byte("groups")); err != nil {
		t.Fatalf("writeAccounts() = %v; want nil", err)
	}
	for name, want := range map[string]string{"hosts": "own", "hostname": "", "resolv.conf": "", "group": "groups", "passwd": "users"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); string(b) != want || err != nil {
			t.Errorf("%s holds %q, %v; want %q", name, b, err, want)
		}
	}
	// A group file that is there already is of a copy that has gone wrong.
	again := t.TempDir()
	if err := os.WriteFile(filepath.Join(again, "group"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeAccounts(openDir(t, again), nil, nil); !errors.Is(err, unix.EEXIST) {
		t.Errorf("writeAccounts() over a group file = %v; want %v", err, unix.EEXIST)
	}
	if _, err := os.Lstat(filepath.Join(again, "passwd")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("passwd after an error: %v; want none", err)
	}
}

// Nothing is written where nothing is mounted: that would be the image's own.
func TestAccountsNotMounted(t *testing.T) {
	to := t.TempDir()
	code, err := Accounts([]string{"/etc", to, "1000", "1000", "agent", "/home/agent"})
	if code != wire.ExitAccountsOdd || err != nil {
		t.Errorf("Accounts() = %d, %v; want %d, nil", code, err, wire.ExitAccountsOdd)
	}
	if list, err := os.ReadDir(to); len(list) != 0 || err != nil {
		t.Errorf("it has left %v, %v; want nothing", list, err)
	}
}

// mounted is a directory where something is mounted: Accounts writes to no other.
func mounted(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
		t.Skip("this machine lets the test mount nothing: " + err.Error())
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// accountsOf runs the verb for user 1000 of group 100.
func accountsOf(from, to string) (int, error) {
	return Accounts(wire.VerbAccounts.Command(&wire.AccountsArgs{From: from, To: to, UID: 1000, GID: 100, Name: "agent", Home: "/home/agent"})[1:])
}

// An image may have anything for its /etc. A copy is whole or has no passwd; why there is
// none is the exit code.
func TestAccounts(t *testing.T) {
	const passwd, group = "root:x:0:0::/root:/bin/sh\n", "root:x:0:\n"
	file := func(name, text string) func(string) error {
		return func(etc string) error { return os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644) }
	}
	link := func(to, name string) func(string) error {
		return func(etc string) error { return os.Symlink(to, filepath.Join(etc, name)) }
	}
	fifo := func(name string) func(string) error {
		return func(etc string) error { return unix.Mkfifo(filepath.Join(etc, name), 0o644) }
	}
	dir := func(name string) func(string) error {
		return func(etc string) error { return os.Mkdir(filepath.Join(etc, name), 0o755) }
	}
	size := func(name string, n int64) func(string) error {
		return func(etc string) error {
			return errors.Join(file(name, "")(etc), os.Truncate(filepath.Join(etc, name), n))
		}
	}
	for _, row := range []struct {
		name  string
		image []func(etc string) error
		code  int
		user  bool // the copy names the user
	}{
		{"empty", nil, 0, true},
		{"usual", []func(string) error{file("passwd", passwd), file("group", group), file("motd", "hello")}, 0, true},
		{"both are there", []func(string) error{file("passwd", "me:x:1000:100::/:/bin/sh\n"), file("group", "us:x:100:\n")}, wire.ExitAccountsThere, false},
		{"one is there", []func(string) error{file("passwd", "me:x:1000:100::/:/bin/sh\n"), file("group", group)}, 0, false},
		{"passwd is a link", []func(string) error{link("/etc/passwd", "passwd")}, wire.ExitAccountsOdd, false},
		{"group is a link", []func(string) error{file("passwd", passwd), link("/etc/shadow", "group")}, wire.ExitAccountsOdd, false},
		{"passwd is a directory", []func(string) error{dir("passwd")}, wire.ExitAccountsOdd, false},
		{"group is a pipe", []func(string) error{fifo("group")}, wire.ExitAccountsOdd, false},
		{"passwd is too large", []func(string) error{size("passwd", maxAccounts+1)}, wire.ExitAccountsLarge, false},
		{"a file is too large", []func(string) error{size("blob", maxEtcBytes+1)}, wire.ExitAccountsLarge, false},
		{"a directory named as the last file", []func(string) error{dir(".passwd")}, 1, false},
	} {
		from, to := t.TempDir(), mounted(t)
		for _, add := range row.image {
			if err := add(from); err != nil {
				t.Fatal(err)
			}
		}
		code, err := accountsOf(from, to)
		if err != nil {
			code = 1 // as main does
		}
		if code != row.code {
			t.Errorf("%s: Accounts() = %d, %v; want %d", row.name, code, err, row.code)
		}
		b, readErr := os.ReadFile(filepath.Join(to, "passwd"))
		if whole := readErr == nil; whole != (row.code == 0) {
			t.Errorf("%s: the copy has passwd: %v; want it only if the copy is whole", row.name, readErr)
		}
		if named := strings.Contains(string(b), "agent:x:1000:100::/home/agent:/"); named != row.user {
			t.Errorf("%s: passwd is %q; want the user named: %t", row.name, b, row.user)
		}
		if names, err := filepath.Glob(filepath.Join(from, "*")); err != nil || len(names) > len(row.image) {
			t.Errorf("%s: the image has %q, %v; want it unchanged", row.name, names, err)
		}
	}
}

// A copy that was broken off is made again from the start; one that is whole stays as it is.
func TestAccountsAgain(t *testing.T) {
	from, to := t.TempDir(), mounted(t)
	at := func(name string) string { return filepath.Join(to, name) }
	if err := errors.Join(
		os.WriteFile(filepath.Join(from, "motd"), []byte("new"), 0o644), os.WriteFile(at("motd"), []byte("half"), 0o600),
		os.WriteFile(at("group"), []byte("half"), 0o600), os.MkdirAll(at("left/over"), 0o700), os.WriteFile(at(".passwd"), nil, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	if code, err := accountsOf(from, to); code != 0 || err != nil {
		t.Fatalf("Accounts() over half a copy = %d, %v; want 0", code, err)
	}
	list, err := os.ReadDir(to)
	var names []string
	for _, entry := range list {
		names = append(names, entry.Name())
	}
	if got, want := strings.Join(names, " "), "group hostname hosts motd passwd resolv.conf"; got != want || err != nil {
		t.Errorf("the copy has %s, %v; want %s", got, err, want)
	}
	if b, err := os.ReadFile(at("motd")); string(b) != "new" || err != nil {
		t.Errorf("motd is %q, %v; want the image's", b, err)
	}
	if err := os.WriteFile(filepath.Join(from, "motd"), []byte("newer"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, err := accountsOf(from, to); code != 0 || err != nil {
		t.Errorf("Accounts() over a whole copy = %d, %v; want 0", code, err)
	}
	if b, err := os.ReadFile(at("motd")); string(b) != "new" || err != nil {
		t.Errorf("motd is %q, %v; want a whole copy unchanged", b, err)
	}
	if code, err := accountsOf(filepath.Join(from, "none"), mounted(t)); code != 0 || err == nil {
		t.Errorf("Accounts() of an image without /etc = %d, %v; want an error", code, err)
	}
	link := filepath.Join(t.TempDir(), "etc")
	if err := os.Symlink("/etc", link); err != nil {
		t.Fatal(err)
	}
	if code, err := accountsOf(link, mounted(t)); code != wire.ExitAccountsOdd || err != nil {
		t.Errorf("Accounts() of an /etc that is a link = %d, %v; want %d", code, err, wire.ExitAccountsOdd)
	}
}

// A copy has the owners of its originals, also of links, and gives no rights besides.
func TestCopyTreeOwners(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("files of several users need uid 0")
	}
	from, to := t.TempDir(), t.TempDir()
	if err := errors.Join(
		os.Mkdir(filepath.Join(from, "dir"), 0o700), os.WriteFile(filepath.Join(from, "file"), nil, 0o600), os.Symlink("none", filepath.Join(from, "link")),
	); err != nil {
		t.Fatal(err)
	}
	for id, name := range []string{"dir", "file", "link"} {
		if err := os.Lchown(filepath.Join(from, name), 500+id, 600+id); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(from, "file"), os.ModeSetuid|os.ModeSetgid|0o777); err != nil {
		t.Fatal(err)
	}
	c := copier{bytes: 1 << 10, entries: 100}
	if err := c.dir(openDir(t, from), openDir(t, to), from, 0); err != nil {
		t.Fatal(err)
	}
	for id, name := range []string{"dir", "file", "link"} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(to, name), &st); err != nil || st.Uid != uint32(500+id) || st.Gid != uint32(600+id) || st.Mode&0o7000 != 0 {
			t.Errorf("%s is of %d:%d with mode %o, %v; want %d:%d without special bits", name, st.Uid, st.Gid, st.Mode, err, 500+id, 600+id)
		}
	}
}

// Names are bytes: what an image calls its files reaches no path but its own.
func TestCopyTreeNames(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), t.TempDir()
	names := []string{"\n", " ", "-rf", "\xff\xfe", `a\b`, "..x", "...", strings.Repeat("n", 255)}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(from, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := copier{bytes: 1 << 10, entries: len(names)}
	if err := c.dir(openDir(t, from), openDir(t, to), from, 0); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if b, err := os.ReadFile(filepath.Join(to, name)); string(b) != name || err != nil {
			t.Errorf("the copy of %q holds %q, %v", name, b, err)
		}
	}
	// A name that is taken in the copy is not followed or overwritten.
	again := copier{bytes: 1 << 10, entries: 100}
	if err := again.dir(openDir(t, from), openDir(t, to), from, 0); !errors.Is(err, unix.EEXIST) {
		t.Errorf("a copy over another = %v; want %v", err, unix.EEXIST)
	}
}
