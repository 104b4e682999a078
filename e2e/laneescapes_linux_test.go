package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/e2e/probe/expect"
)

// escapeChecks are of the threat model's rows E, beyond the probe's lines.
var escapeChecks = []laneCheck{
	{"E: the probe", func(t *testing.T, on *laneRun) {
		out, code := on.in(t, on.session, "--timeout", "90s", "./probe all")
		if code != 0 {
			t.Errorf("the probe's exit status is %d", code)
		}
		on.checkProbe(t, expect.Strict, out)
	}},
	{"E1: the same on a terminal", func(t *testing.T, on *laneRun) {
		out := on.onTerminal(t, "for k in CapEff CapBnd NoNewPrivs Seccomp; do grep ^$k: /proc/self/status; done", 0)
		got := strings.Join(strings.Fields(out), " ")
		if want := "CapEff: 0000000000000000 CapBnd: 00000000000000e0 NoNewPrivs: 1 Seccomp: 2"; got != want {
			t.Errorf("on a terminal: %s; want %s", got, want)
		}
	}},
	{"E27: an image fills no volume of ours", checkHostileImage},
	{"E19: working directories that are descriptors", func(t *testing.T, on *laneRun) {
		for _, dir := range []string{"/proc/self/fd/3", "/proc/self/fd/7", "/proc/self/fd/8", "/proc/1/root", "fd"} {
			on.in(t, on.session, "ln -sfn /proc/self/fd/8 fd")
			if out, code := on.in(t, on.session, "--cwd", dir, "pwd"); code != 2 || out != "" {
				t.Errorf("--cwd %s: %q, status %d; want it refused, 2", dir, out, code)
			}
		}
	}},
	{"E20: an image whose system directories are links", checkLinkedImage},
	{"E23: sessions do not see each other", checkNeighbour},
}

// checkLinkedImage starts from images whose system directories lead elsewhere: there
// is no session, or the engine has put its own in their place.
func checkLinkedImage(t *testing.T, on *laneRun) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("not run: there is no busybox here (Debian package busybox-static)")
	}
	for _, link := range [][2]string{{"dev", "/tmp"}, {"proc", "/tmp"}} {
		root := t.TempDir()
		tag := "sbx-e2e-lane-links-" + strings.Trim(strings.ReplaceAll(link[0], "/", "-"), ".") + ":1"
		script := `mkdir -p bin "$(dirname "$1")" && cp "$3" bin/busybox && ln -s busybox bin/sh && ln -s "$2" "$1" && tar -cf ../"$4" . && mv ../"$4" image.tar`
		cmd := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", link[0], link[1], busybox, filepath.Base(root)+".tar")
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		on.run(t, "image", "load", filepath.Join(root, "image.tar"), tag)
		args := []string{"run", "--image", tag, "--shell", "sh"}
		if on.runtime != "" {
			args = append(args, "--runtime", on.runtime)
		}
		out, err := on.try(t.Context(), append(args, `b=/bin/busybox
for p in proc dev dev/null .sandboxbash; do if $b test -L /$p; then echo "/$p is a link"; exit 3; fi; done
$b grep -q " /proc proc " /proc/mounts && $b grep -q " /dev tmpfs " /proc/mounts && $b test -c /dev/null || exit 4
echo x >/dev/null && echo x >/workspace/x || exit 5
if echo x >/.sandboxbash/x; then exit 6; fi`)...)
		if code := status(err); code != 0 && code != 125 {
			t.Errorf("/%s -> %s: %q, status %d; want a session whose directories are real, or none\n%v", link[0], link[1], out, code, err)
		}
		if _, err := on.docker(t.Context(), "rmi", tag); err != nil {
			t.Error(err)
		}
	}
}

// checkNeighbour leaves what processes meet by in one session, and looks for it from
// another. The first finds it: the looking works.
func checkNeighbour(t *testing.T, on *laneRun) {
	other := on.begin(t)
	on.in(t, on.session, `echo x >/dev/shm/lane; perl -e 'shmget(4242, 4096, 0600 | 01000) or die'
setsid -f perl -e 'use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, pack_sockaddr_un(qq(\0lane-meeting))) or die; listen(S, 1); sleep 60' >/dev/null 2>&1
for i in $(seq 100); do grep -q lane-meeting /proc/net/unix && break; sleep 0.1; done`)
	const look = `ls /dev/shm | grep -c lane; grep -c lane-meeting /proc/net/unix; perl -e 'print defined shmget(4242, 0, 0) ? 1 : 0, qq(\n)'
cat /proc/[0-9]*/cmdline | tr '\0' '\n' | grep -c 'lane-meet[i]ng))'`
	if out, _ := on.in(t, on.session, look); out != "1\n1\n1\n1" {
		t.Errorf("the session itself sees of file, socket, memory, process: %q; want one of each: this check is broken", out)
	}
	if out, _ := on.in(t, other, look); out != "0\n0\n0\n0" {
		t.Errorf("another session sees of file, socket, memory, process: %q; want none", out)
	}
	on.in(t, on.session, `rm /dev/shm/lane; perl -e 'shmctl(shmget(4242, 0, 0), 0, 0)'`)
}

// checkHostileImage starts from an image that brings files for all our volumes,
// writable for the session's user, where the engine has lost the runner's volume.
func checkHostileImage(t *testing.T, on *laneRun) {
	const tag = "sbx-e2e-lane-hostile:1"
	host := on.run(t, "image", "host")
	build := t.TempDir()
	dir := filepath.Join(build, "files")
	script := "mkdir -p /x/.sandboxbash /x/run/jobs /x/workspace && echo 'echo pwned' >/x/.sandboxbash/runner && echo planted | tee /x/run/jobs/planted >/x/workspace/planted && chmod -R 777 /x"
	cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(script, "/x", dir))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := on.docker(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	must("tag", host, "sbx-e2e-lane-base:1")
	if err := os.WriteFile(filepath.Join(build, "Dockerfile"), []byte("FROM sbx-e2e-lane-base:1\nCOPY --chown=1000:1000 files /\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	on.run(t, "image", "build", build, tag)
	t.Cleanup(func() {
		for _, name := range []string{tag, "sbx-e2e-lane-base:1"} {
			_, _ = on.docker(context.WithoutCancel(t.Context()), "rmi", name)
		}
	})
	id := on.begin(t, "--image", tag)
	out, code := on.in(t, id, "id -u; ls -A /workspace /run/jobs; touch /run/jobs/x /.sandboxbash/x; stat -c %u /run/jobs; head -c 4 /.sandboxbash/runner | tail -c 3")
	if want := "1000\n/run/jobs:\n\n/workspace:\n0\nELF"; code != 0 || out != want {
		t.Errorf("on a hostile image: %q, status %d; want %q", out, code, want)
	}
}
