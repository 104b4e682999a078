//go:build linux

package user

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/transfer"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// role makes the test binary a runner's verb: a transfer changes the user of its process.
const role = "SANDBOXBASH_TEST_VERB"

// other is the session's user.
const other = 12345

func TestMain(m *testing.M) {
	var err error
	switch args := os.Args[1:]; os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "push":
		err = Push(args, os.Stdin, os.Stdout)
	case "pull":
		err = Pull(args, os.Stdout)
	case "update":
		err = Update(args, os.Stdin, os.Stdout)
	case "posture":
		err = Posture(os.Stdout, args)
	case "status":
		if _, err = transferAs(args); err == nil {
			var b []byte
			b, err = os.ReadFile("/proc/thread-self/status")
			fmt.Printf("%s", b)
			if info, statErr := os.Stat("/proc/self/fd"); statErr == nil {
				fmt.Printf("Owner:\t%d\n", info.Sys().(*syscall.Stat_t).Uid)
			}
		}
	}
	if _, ok := errors.AsType[transfer.MissingError](err); ok {
		os.Exit(wire.ExitNoInput)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// verb runs a verb in a process of its own.
func verb(t *testing.T, as *syscall.Credential, stdin io.Reader, name string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), role+"="+name)
	cmd.Stdin = stdin
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), said.String(), cmd.ProcessState.ExitCode()
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("to act for another user needs uid 0")
	}
}

// openDir makes a directory that the session's user can reach, as no test's own can be.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sandboxbash-user-") //nolint:usetesting // /tmp is what another user may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// archive is a tar stream of plain files.
func archive(t *testing.T, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(name))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A transfer has the rights of its user alone, keeps uid 0 as its real and saved user so that
// no command can signal or trace it, and cannot be read through /proc.
func TestTransferUser(t *testing.T) {
	t.Parallel()
	needRoot(t)
	status, stderr, code := verb(t, nil, nil, "status", "12345:54321", "/")
	if code != 0 {
		t.Fatalf("it ends with %d and says %q", code, stderr)
	}
	for key, want := range map[string]string{
		"Uid": "0 12345 0 12345", "Gid": "0 54321 0 54321", "Groups": "", "CapEff": "0000000000000000", "Owner": "0",
	} {
		got := "none"
		for line := range strings.Lines(status) {
			if name, value, _ := strings.Cut(line, ":"); name == key {
				got = strings.Join(strings.Fields(value), " ")
			}
		}
		if got != want {
			t.Errorf("%s is %q; want %q", key, got, want)
		}
	}
}

// What is pushed is the user's, and is written only where the user may write.
func TestPush(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := openDir(t)
	own, closed := filepath.Join(dir, "own"), filepath.Join(dir, "closed")
	if err := errors.Join(os.Mkdir(own, 0o755), os.Chown(own, other, other), os.Mkdir(closed, 0o755)); err != nil {
		t.Fatal(err)
	}
	stream := archive(t, "a", "d/b")
	sum := wire.Sum(sha256.Sum256(stream))
	for _, row := range []struct {
		name, path string
		stdin      []byte
		code       int
		says       string
	}{
		{"its own directory", own, stream, 0, ""},
		{"a new one below it", own + "/new/deep", stream, 0, ""},
		{"another's", closed, stream, 1, "permission denied"},
		{"a new one below another's", closed + "/new", stream, 1, "permission denied"},
		{"a file", own + "/a", stream, 1, "not a directory"},
		{"half a stream", own, stream[:512], 1, "unexpected EOF"},
		{"no stream", own, []byte("no archive at all" + strings.Repeat("x", 512)), 1, "invalid tar header"},
	} {
		stdout, stderr, code := verb(t, nil, bytes.NewReader(row.stdin), "push", "12345:12345", row.path)
		want := ""
		if row.code == 0 {
			want = string(sum.Append(nil))
		}
		if code != row.code || stdout != want || !strings.Contains(stderr, row.says) {
			t.Errorf("%s: push ends with %d, answers %q and says %q; want %d, %q, %q", row.name, code, stdout, stderr, row.code, want, row.says)
		}
	}
	for _, name := range []string{"a", "d/b", "new/deep/a"} {
		info, err := os.Lstat(filepath.Join(own, name))
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != other || info.Sys().(*syscall.Stat_t).Gid != other {
			t.Errorf("%s: %+v, %v; want a file of the user's", name, info, err)
		}
	}
	if list, err := os.ReadDir(closed); len(list) != 0 || err != nil {
		t.Errorf("another's directory has %v, %v; want nothing", list, err)
	}
}

// What is pulled is what the user could read; a path with nothing at it has its own end.
func TestPull(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := openDir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(
		os.Mkdir(at("tree"), 0o755), os.WriteFile(at("tree/open"), []byte("text"), 0o644),
		os.Mkdir(at("closed"), 0o700), os.WriteFile(at("closed/inside"), nil, 0o644),
		os.WriteFile(at("secret"), []byte("secret"), 0o600), os.Symlink("secret", at("link")),
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, path string
		code       int
		holds      string
		says       string
	}{
		{"a tree", "tree", 0, "text", ""},
		{"a file", "tree/open", 0, "text", ""},
		{"nothing", "none", wire.ExitNoInput, "", ""},
		{"below a file", "tree/open/x", wire.ExitNoInput, "", ""},
		{"another's file", "secret", 1, "", "permission denied"},
		{"below another's directory", "closed/inside", 1, "", "permission denied"},
		{"a link", "link", 1, "", "neither a regular file nor a directory"},
	} {
		stdout, stderr, code := verb(t, nil, nil, "pull", "12345:12345", at(row.path))
		if code != row.code || !strings.Contains(stdout, row.holds) || strings.Contains(stdout, "secret\x00") || !strings.Contains(stderr, row.says) {
			t.Errorf("%s: pull ends with %d, answers %d bytes and says %q; want %d, %q, %q", row.name, code, len(stdout), stderr, row.code, row.holds, row.says)
		}
	}
}

// Without its arguments a transfer does nothing: it would act as uid 0.
func TestTransferArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"1000:1000"}, {"1000", "/tmp"}, {"x:1", "/tmp"}, {"1:-1", "/tmp"}, {"4294967295:1", "/tmp"}, {"1:1", "/tmp", "x"}} {
		if _, err := transferAs(args); err == nil {
			t.Errorf("transferAs(%q) = nil; want an error", args)
		}
	}
	if uid := os.Geteuid(); uid != os.Getuid() {
		t.Errorf("the effective user is %d; want it unchanged", uid)
	}
}

// An update has the rights of its user alone, and says what it found.
func TestUpdate(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := openDir(t)
	own, closed := filepath.Join(dir, "own"), filepath.Join(dir, "closed")
	for _, at := range []string{own, closed} {
		if err := errors.Join(os.Mkdir(at, 0o755), os.WriteFile(filepath.Join(at, "gone"), nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chown(own, other, other), os.Chown(filepath.Join(own, "gone"), other, other)); err != nil {
		t.Fatal(err)
	}
	empty := transfer.Sum(sha256.Sum256(nil))
	deltas := []transfer.Delta{
		{Name: "gone", Was: transfer.Entry{Name: "gone", Kind: transfer.File, Mode: 0o644, Sum: &empty}},
		{Name: "made", Now: transfer.Entry{Name: "made", Kind: transfer.Dir, Mode: 0o755}},
	}
	ask, do := transfer.AppendUpdate(nil, deltas, true), transfer.AppendUpdate(nil, deltas, false)
	do = append(do, archive(t)...)
	for _, row := range []struct {
		name, path string
		stdin      []byte
		code       int
		answers    string
		says       string
	}{
		{"asked", own, ask, 0, "tt.", ""},
		{"another's directory", closed, do, 1, "", "permission denied"},
		{"its own directory", own, do, 0, "tt.", ""},
		{"again", own, do, 0, "ss.", ""},
		{"no directory", own + "/none", do, wire.ExitNoInput, "", ""},
		{"no update", own, []byte("x"), 1, "", "not an update"},
	} {
		stdout, stderr, code := verb(t, nil, bytes.NewReader(row.stdin), "update", "12345:12345", row.path)
		if code != row.code || stdout != row.answers || !strings.Contains(stderr, row.says) {
			t.Errorf("%s: update ends with %d, answers %q and says %q; want %d, %q, %q", row.name, code, stdout, stderr, row.code, row.answers, row.says)
		}
	}
	info, err := os.Stat(filepath.Join(own, "made"))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != other {
		t.Errorf("what was made is %v, %v; want it to be the user's", info, err)
	}
}
