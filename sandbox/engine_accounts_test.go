package sandbox_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/docker"
	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// builtFrom builds an image on that of this machine's programs. Its name and what was
// made for it go with the test.
func builtFrom(t *testing.T, client *docker.Client, lines string) (ref string, r *images.Resolver) {
	t.Helper()
	r = resolver(t, client)
	host, err := r.Host(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM "+string(host.ID)+"\n"+lines), 0o600); err != nil {
		t.Fatal(err)
	}
	ref = "sbx-test-accounts:" + uuid.NewString()
	cli(t, "build", "-q", "--network", "none", "-t", ref, dir)
	removeLater(t, r, ref)
	return ref, r
}

func removeLater(t *testing.T, r *images.Resolver, ref string) {
	t.Helper()
	t.Cleanup(func() {
		out, err := osexec.Command("docker", "image", "inspect", "-f", "{{.Id}}", ref).Output() //nolint:noctx // the test's is over
		if err != nil {
			return // removed by the test
		}
		if err := r.Remove(context.WithoutCancel(t.Context()), ref); err != nil {
			cliLater(t, "rmi", ref)
		}
		if left := accountsVolumes(t, strings.TrimSpace(string(out))); left != "" {
			t.Errorf("image rm has left volumes: %s", left)
		}
	})
}

// accountsVolumes lists the volumes of an image's accounts.
func accountsVolumes(t *testing.T, id string) string {
	t.Helper()
	out, err := osexec.Command("docker", "volume", "ls", "-q", "--filter", "name=sandboxbash-accounts-"+strings.TrimPrefix(id, "sha256:")[:12]).Output() //nolint:noctx // the test's may be over
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

const whoAmI = `whoami; id -nG; python3 -c 'import pwd, os; print(pwd.getpwuid(os.getuid()))'
git init -q && git commit -q --allow-empty -m x 2>&1 | grep -o 'no name was given' ; echo ~agent`

// In an image without an entry for the session's user it has a name, and nothing else of
// the image's /etc is another.
func TestAccounts(t *testing.T) {
	t.Parallel()
	client := dockertest.Connect(t)
	ref, r := builtFrom(t, client, `RUN printf 'root:x:0:0:root:/root:/bin/bash\nagent:x:77:77::/:/bin/sh' >/etc/passwd && echo root:x:0: >/etc/group
RUN mkdir -p /etc/deep/er && echo kept >/etc/deep/er/file && chmod 4755 /etc/deep/er/file && ln -s ../../../etc/shadow /etc/deep/link && \
    mkfifo /etc/pipe && echo secret >/etc/shadow && chmod 600 /etc/shadow && echo mine >/etc/mine && chmod 600 /etc/mine && chown 1000:1000 /etc/mine && \
    touch "$(printf '/etc/a\nb')" && ln -s /proc/self/environ /etc/environ
`)
	s := startWith(t, client, r, sandbox.Spec{Image: ref})
	got := script(t, s, whoAmI)
	want := "agent1000\nagent\npwd.struct_passwd(pw_name='agent1000', pw_passwd='x', pw_uid=1000, pw_gid=1000, pw_gecos='', pw_dir='/home/agent', pw_shell='/bin/bash')\n"
	if !strings.HasPrefix(got, want) {
		t.Errorf("the user is %q; want %q", got, want)
	}
	got = script(t, s, `cd /etc; stat -c '%A %u %n' deep/er/file shadow mine; readlink deep/link environ; cat mine deep/er/file; ls pipe 2>&1; ls -d a?b; head -2 passwd; cat resolv.conf | head -1
touch /etc/x 2>&1; cat shadow 2>&1; true`)
	want = `-rwxr-xr-x 0 deep/er/file
-rw------- 0 shadow
-rw------- 1000 mine
../../../etc/shadow
/proc/self/environ
mine
kept
ls: cannot access 'pipe': No such file or directory
a
b
root:x:0:0:root:/root:/bin/bash
agent:x:77:77::/:/bin/sh
nameserver 127.0.0.1
touch: cannot touch '/etc/x': Read-only file system
cat: shadow: Permission denied
`
	if got != want {
		t.Errorf("/etc is\n%s\nwant\n%s", got, want)
	}

	// The volume is made once for an image and a user, however many sessions start, and
	// made again if it was removed.
	made := accountsVolumes(t, s.Info().ImageID)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { script(t, startWith(t, client, r, sandbox.Spec{Image: ref}), "whoami") })
	}
	wg.Wait()
	if again := accountsVolumes(t, s.Info().ImageID); again != made || strings.Count(made, "\n") != 1 {
		t.Errorf("volumes %q, then %q; want one and its mark", made, again)
	}
	if got := script(t, startWith(t, client, r, sandbox.Spec{Image: ref, User: &sandbox.User{UID: 4321, GID: 4322}}), "whoami; id -gn; cd; pwd"); got != "agent4321\nagent\n/home/agent\n" && got != "agent\nagent\n/home/agent\n" {
		t.Errorf("another user: %q", got)
	}
}

// A volume that was emptied behind our back is filled again.
func TestAccountsPruned(t *testing.T) {
	t.Parallel()
	client := dockertest.Connect(t)
	ref, r := builtFrom(t, client, "RUN echo root:x:0:0::/root:/bin/sh >/etc/passwd\n")
	first := startWith(t, client, r, sandbox.Spec{Image: ref})
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	volume := strings.Fields(accountsVolumes(t, first.Info().ImageID))[0]
	for _, spoil := range [][]string{{"volume", "rm", volume}, {"volume", "rm", volume + "-filled"}, nil} {
		if spoil == nil {
			cli(t, "volume", "rm", volume)
			cli(t, "volume", "create", volume)
		} else {
			cli(t, spoil...)
		}
		s := startWith(t, client, r, sandbox.Spec{Image: ref})
		if got := script(t, s, "whoami"); got != "agent\n" {
			t.Errorf("after %v: %q", spoil, got)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// An image may choose every byte: what cannot be copied is left, and that is said.
func TestAccountsOfHostileImages(t *testing.T) {
	t.Parallel()
	client := dockertest.Connect(t)
	for name, tt := range map[string]struct{ lines, note string }{
		"passwd is a link":      {"RUN mv /etc/passwd /passwd && ln -s /passwd /etc/passwd\n", "is a link or not a plain file"},
		"a large file":          {"RUN rm /etc/passwd && truncate -s 65M /etc/huge\n", "larger than what is copied"},
		"many files":            {"RUN rm /etc/passwd && seq 1 20100 | (cd /etc && xargs touch)\n", "larger than what is copied"},
		"a deep tree":           {"RUN rm /etc/passwd && cd /etc && for i in $(seq 40); do mkdir d && cd d; done\n", "larger than what is copied"},
		"entries are there":     {"RUN echo somebody:x:1000:1000::/:/bin/sh >/etc/passwd && echo some:x:1000: >/etc/group\n", ""},
		"only the group is not": {"RUN echo somebody:x:1000:1000::/:/bin/sh >/etc/passwd && echo root:x:0: >/etc/group\n", ""},
		"the place is a link":   {"RUN rm /etc/passwd && ln -s /etc /.sandboxbash-accounts\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ref, r := builtFrom(t, client, tt.lines)
			s := startWith(t, client, r, sandbox.Spec{Image: ref})
			notes := strings.Join(s.Notes(), "\n")
			if tt.note == "" && strings.Contains(notes, "no name in this image") && name != "the place is a link" || !strings.Contains(notes, tt.note) {
				t.Errorf("notes %q; want %q", notes, tt.note)
			}
			if got := script(t, s, "whoami 2>&1; id -gn 2>&1; true"); tt.note == "" && strings.Contains(got, "cannot find") && name != "the place is a link" {
				t.Errorf("the user is %q", got)
			}
		})
	}
}

// An image of one static program has no /etc at all.
func TestAccountsOfBareImage(t *testing.T) {
	t.Parallel()
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Skip("needs a static busybox: ", err)
	}
	client := dockertest.Connect(t)
	var rootfs bytes.Buffer
	w := tar.NewWriter(&rootfs)
	var errs []error
	add := func(h *tar.Header, content []byte) {
		h.Size, h.ModTime = int64(len(content)), time.Unix(1, 0)
		_, err := w.Write(nil)
		errs = append(errs, w.WriteHeader(h))
		if len(content) > 0 {
			_, err = w.Write(content)
		}
		errs = append(errs, err)
	}
	add(&tar.Header{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	add(&tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, busybox)
	for _, name := range []string{"sh", "whoami", "cat"} {
		add(&tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
	}
	if err := errors.Join(append(errs, w.Close())...); err != nil {
		t.Fatal(err)
	}
	ref := "sbx-test-accounts:" + uuid.NewString()
	if _, err := client.ImportImage(t.Context(), &rootfs, engine.ImageConfig{Ref: ref, OS: "linux", Arch: "amd64"}); err != nil {
		t.Fatal(err)
	}
	r := resolver(t, client)
	removeLater(t, r, ref)
	s := startWith(t, client, r, sandbox.Spec{Image: ref})
	got := run(t, s, sandbox.Command{Shell: "sh", Script: "whoami; cat /etc/passwd /etc/group"})
	if want := fmt.Sprintf("agent\nagent:x:1000:1000::/home/agent:%s\nagent:x:1000:\n", "/bin/sh"); got != want {
		t.Errorf("the user is %q; want %q", got, want)
	}
}
