//go:build linux

package prepare

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/runner/proc"
	"github.com/sandboxbash/sandboxbash/internal/runner/shells"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Bounds of what is copied. Debian's /etc is 1 MiB in 300 entries, Fedora's 30 MiB.
const (
	maxEtcBytes   = 64 << 20
	maxEtcEntries = 20_000
	maxEtcDepth   = 32
	maxAccounts   = 1 << 20 // bytes of passwd(5), and of group(5)
)

// errOdd and errLarge are the reasons for not copying a directory.
var (
	errOdd   = errors.New("it is not what it should be")
	errLarge = errors.New("it is too large")
)

// account is the user and group that passwd(5) and group(5) must have.
type account struct {
	uid, gid   uint64
	name, home string
	shell      string
}

// Accounts copies an image's /etc and adds a name for the session's user. It runs as uid 0
// in a container of that image that was created for it. The image chooses every byte of the
// directory FROM, so Accounts runs nothing of it, follows no link, and leaves out special
// files and what is mounted there. It writes the file passwd last. A copy that has passwd is
// complete, and is not changed.
func Accounts(args []string) (int, error) {
	var a wire.AccountsArgs
	if err := wire.ParseArgs(args, &a); err != nil {
		return 0, err
	}
	unix.Umask(0)
	err := copyAccounts(a.From, a.To, account{uid: uint64(a.UID), gid: uint64(a.GID), name: a.Name, home: a.Home, shell: someShell()})
	switch {
	case errors.Is(err, errThere):
		return wire.ExitAccountsThere, nil
	case errors.Is(err, errOdd), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
		return wire.ExitAccountsOdd, nil
	case errors.Is(err, errLarge):
		return wire.ExitAccountsLarge, nil
	}
	return 0, err
}

// errThere is the reason why nothing needs to be copied.
var errThere = errors.New("there are entries for the user and the group")

func someShell() string {
	found := shells.Find()
	for _, name := range []string{"bash", "sh"} {
		if s, ok := found[name]; ok {
			return s.Name
		}
	}
	return "/bin/sh"
}

func copyAccounts(from, to string, a account) error {
	const dir = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	mounts, err := mountPoints()
	if err != nil {
		return err
	}
	if !mounts[to] {
		return fmt.Errorf("%s: %w: nothing is mounted there", to, errOdd)
	}
	dst, err := unix.Open(to, dir, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", to, err)
	}
	defer unix.Close(dst)
	var st unix.Stat_t
	if unix.Fstatat(dst, "passwd", &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		return nil
	}
	src, err := unix.Open(from, dir, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	defer unix.Close(src)
	passwd, err := readAccounts(src, "passwd")
	if err != nil {
		return err
	}
	group, err := readAccounts(src, "group")
	if err != nil {
		return err
	}
	newPasswd, newGroup := a.addTo(passwd, group)
	if newPasswd == nil && newGroup == nil {
		return errThere
	}
	if err := emptyDir(to); err != nil { // an earlier run may have died half way
		return err
	}
	c := copier{mounts: mounts, bytes: maxEtcBytes, entries: maxEtcEntries, skip: map[string]bool{from + "/passwd": true, from + "/group": true}}
	if err := c.dir(src, dst, from, 0); err != nil {
		return err
	}
	return writeAccounts(dst, append(passwd, newPasswd...), append(group, newGroup...))
}

// writeAccounts writes the files that engines mount over, then the groups, and the users
// last.
func writeAccounts(dst int, passwd, group []byte) error {
	for _, name := range []string{"hosts", "hostname", "resolv.conf"} {
		if err := writeAt(dst, name, nil); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	if err := writeAt(dst, "group", group); err != nil {
		return err
	}
	const whole = ".passwd"
	if err := writeAt(dst, whole, passwd); err != nil {
		return err
	}
	return unix.Renameat(dst, whole, dst, "passwd")
}

// writeAt makes a file that all may read.
func writeAt(dir int, name string, content []byte) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// readAccounts reads a file of accounts. A missing file counts as empty.
func readAccounts(dir int, name string) ([]byte, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(errOdd, err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxAccounts+1))
	if err == nil && len(b) > maxAccounts {
		err = errLarge
	}
	return b, err
}

// addTo returns the lines that are missing in passwd(5) and in group(5), or nil.
func (a account) addTo(passwd, group []byte) (user, grp []byte) {
	if names, there := accountNames(passwd, a.uid, 4); !there {
		name := freeName(names, a.name, a.uid)
		user = fmt.Appendf(lineBreak(passwd), "%s:x:%d:%d::%s:%s\n", name, a.uid, a.gid, a.home, a.shell)
	}
	if names, there := accountNames(group, a.gid, 3); !there {
		grp = fmt.Appendf(lineBreak(group), "%s:x:%d:\n", freeName(names, a.name, a.gid), a.gid)
	}
	return user, grp
}

// lineBreak returns a line feed if the last line of file has none.
func lineBreak(file []byte) []byte {
	if len(file) > 0 && file[len(file)-1] != '\n' {
		return []byte("\n")
	}
	return nil
}

// accountNames lists the names of a file of accounts, and reports whether it has an
// entry of that number. A line of fewer fields is none.
func accountNames(file []byte, id uint64, fields int) (names map[string]bool, there bool) {
	names = map[string]bool{}
	for line := range bytes.Lines(file) {
		f := strings.Split(strings.TrimSpace(string(line)), ":")
		if len(f) < fields || f[0] == "" || f[0][0] == '#' {
			continue
		}
		names[f[0]] = true
		if n, err := strconv.ParseUint(f[2], 10, 32); err == nil && n == id {
			there = true
		}
	}
	return names, there
}

// freeName returns the name, or the name followed by the id if the name is taken.
func freeName(taken map[string]bool, name string, id uint64) string {
	if taken[name] {
		name += strconv.FormatUint(id, 10)
	}
	for taken[name] {
		name += "x"
	}
	return name
}

// mountPoints are the places where something is mounted.
func mountPoints() (map[string]bool, error) {
	mounts, err := proc.Mounts()
	points := map[string]bool{}
	for _, m := range mounts {
		points[m.Target] = true
	}
	return points, err
}
