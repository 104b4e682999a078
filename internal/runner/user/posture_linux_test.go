package user

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// What is masked has nothing in it, and a pipe without a writer does not delay the report.
func TestReadable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{"full": "x", "empty": ""} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(at("bare"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(at("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		at("full"): "something", at("empty"): "nothing", at("bare"): "nothing", dir: "something", at("fifo"): "nothing",
		at("none"): "nothing", "/dev/null": "nothing", "/dev/zero": "something",
	} {
		if got := readable(path); got != want {
			t.Errorf("readable(%s) = %s; want %s", path, got, want)
		}
	}
	if os.Getuid() == 0 {
		return // nothing is closed to uid 0
	}
	if err := os.Chmod(at("full"), 0); err != nil {
		t.Fatal(err)
	}
	if got := readable(at("full")); got != "closed" {
		t.Errorf("readable(a file without permissions) = %s; want closed", got)
	}
}

// postureOf runs the verb as a user, and reads its answer.
func postureOf(t *testing.T, as *syscall.Credential, masked ...string) wire.Posture {
	t.Helper()
	stdout, stderr, code := verb(t, as, nil, "posture", masked...)
	if code != 0 {
		t.Fatalf("posture ends with %d and says %q", code, stderr)
	}
	p, err := wire.ParsePosture([]byte(stdout))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A posture has every fact that the host compares, once, and none of them is empty unless
// there is nothing to say.
func TestPosture(t *testing.T) {
	t.Parallel()
	p := postureOf(t, nil, "/proc/kcore", "/none")
	count := map[wire.FactKey]int{}
	for _, f := range p {
		count[f.Key]++
		if strings.ContainsAny(f.Value, "\n\r") {
			t.Errorf("the value of %s is %q; want one line", f.Key, f.Value)
		}
		if m, ok := f.Mount(); ok != (f.Key == wire.FactMount || f.Key == wire.FactPlace) || ok && m.Target == "" {
			t.Errorf("fact %+v is the mount %+v, %t", f, m, ok)
		}
	}
	want := append(wire.StatusKeys(), wire.FactOOMScore, wire.FactCgroup, wire.FactHosts, wire.FactInterfaces,
		wire.FactLimit.Of("memory"), wire.FactLimit.Of("pids"), wire.FactLimit.Of("cpu"),
		wire.FactRlimit.Of("nofile"), wire.FactRlimit.Of("core"), wire.FactMasked.Of("/proc/kcore"), wire.FactMasked.Of("/none"),
		wire.FactResolver.Of("nameserver"), wire.FactResolver.Of("search"), wire.FactResolver.Of("options"), wire.FactSysctl.Of(wire.UnprivilegedPorts))
	for _, name := range []string{"unshare", "mount", "io_uring", "keyctl", "bpf", "userfaultfd", "af_alg", "af_vsock", "af_packet", "kill_init", "ptrace"} {
		want = append(want, wire.FactTry.Of(name))
	}
	for _, name := range []string{"public", "public6", "dns", "gateway", "metadata"} {
		want = append(want, wire.FactReach.Of(name))
	}
	for _, key := range want {
		if count[key] != 1 {
			t.Errorf("%d facts of %s; want 1", count[key], key)
		}
		delete(count, key)
	}
	if count[wire.FactMount] == 0 || count[wire.FactMount] != count[wire.FactPlace] {
		t.Errorf("%d mounts at %d places; want as many, and some", count[wire.FactMount], count[wire.FactPlace])
	}
	delete(count, wire.FactMount)
	delete(count, wire.FactPlace)
	if len(count) > 0 {
		t.Errorf("there are facts that no host knows: %v", count)
	}
	if !p.Has(wire.FactMasked.Of("/none"), wire.MaskedNothing) {
		t.Error("a path with nothing at it is not reported as such")
	}
}

// The attempts show what the kernel does: a user is refused what uid 0 of this machine is not.
func TestPostureOfUser(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := openDir(t)
	closed := filepath.Join(dir, "closed")
	if err := os.WriteFile(closed, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	user := postureOf(t, &syscall.Credential{Uid: other, Gid: other}, closed)
	for _, want := range []wire.Fact{
		{Key: "Uid", Value: "12345 12345 12345 12345"},
		{Key: "Gid", Value: "12345 12345 12345 12345"},
		{Key: "Groups", Value: ""},
		{Key: "CapPrm", Value: "0000000000000000"},
		{Key: "CapEff", Value: "0000000000000000"},
		{Key: wire.FactTry.Of("kill_init"), Value: "EPERM"},
		{Key: wire.FactTry.Of("mount"), Value: "EPERM"},
		{Key: wire.FactTry.Of("af_packet"), Value: "EPERM"},
		{Key: wire.FactTry.Of("ptrace"), Value: "ESRCH"},
		{Key: wire.FactMasked.Of(closed), Value: wire.MaskedClosed},
	} {
		if !user.Has(want.Key, want.Value) {
			t.Errorf("the posture of a user lacks %s=%s", want.Key, want.Value)
		}
	}
	root := postureOf(t, nil, closed)
	if !root.Has(wire.FactTry.Of("kill_init"), wire.TryAllowed) || !root.Has(wire.FactMasked.Of(closed), wire.MaskedSomething) {
		t.Error("the posture of uid 0 does not show what it may do")
	}
}
