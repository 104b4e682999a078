package engines

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// PodmanOptions are the options of a private Podman.
type PodmanOptions struct {
	Dir     string // see Options.Dir
	Runtime string // "runc" or "crun", on PATH
	Hide    []string
}

// Podman is a Podman service with the Docker API. It has its own storage, run-time state and
// configuration, and no network.
type Podman struct {
	opts    PodmanOptions
	service *exec.Cmd
	exited  chan struct{}
}

// StartPodman starts a Podman service and waits until it answers. The caller must call Close.
// If it cannot be started here, the error wraps ErrNotHere.
func StartPodman(ctx context.Context, opts PodmanOptions) (*Podman, error) {
	if os.Getuid() != 0 {
		return nil, fmt.Errorf("%w: it takes root", ErrNotHere)
	}
	for _, program := range []string{"podman", "conmon", "fuse-overlayfs", opts.Runtime} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("%w: it takes %s", ErrNotHere, program)
		}
	}
	p := &Podman{opts: opts, exited: make(chan struct{})}
	if err := p.configure(); err != nil {
		return nil, err
	}
	log, err := os.Create(p.in("log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.service = exec.CommandContext(context.WithoutCancel(ctx), "unshare", append([]string{"--net"},
		hiding(opts.Hide, "podman", "system", "service", "--time=0", p.Host())...)...)
	p.service.Dir = p.opts.Dir                                                                                                        // a monitor writes into its directory
	p.service.Env = append(os.Environ(), "CONTAINERS_CONF="+p.in("containers.conf"), "CONTAINERS_STORAGE_CONF="+p.in("storage.conf")) //nolint:forbidigo // it is for tests, and Podman needs all of it
	p.service.Stdout, p.service.Stderr = log, log
	if err := p.service.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.exited)
		_ = p.service.Wait() // how it ended does not matter
	}()
	if err := p.answers(ctx); err != nil {
		return nil, errors.Join(err, p.Close(context.WithoutCancel(ctx)))
	}
	return p, nil
}

func (p *Podman) in(name string) string { return filepath.Join(p.opts.Dir, name) }

// Host returns the address in the form of DOCKER_HOST.
func (p *Podman) Host() string { return "unix://" + p.in("podman.sock") }

// Log returns the output of the service.
func (p *Podman) Log() string {
	text, err := os.ReadFile(p.in("log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// configure writes the configuration. It sets limits for processes and files, because root
// without CAP_SYS_RESOURCE, as in a container, may not give Podman's own default limits.
func (p *Podman) configure() error {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	pids, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil {
		return err
	}
	limit := strings.TrimSpace(string(pids))
	runtime, err := exec.LookPath(p.opts.Runtime)
	if err != nil {
		return err
	}
	open := strconv.FormatUint(files.Max, 10)
	for name, text := range map[string]string{
		"containers.conf": fmt.Sprintf("[containers]\ndefault_ulimits=[\"nofile=%s:%[1]s\",\"nproc=%s:%[2]s\"]\n"+
			"[engine]\ncgroup_manager=\"cgroupfs\"\nevents_logger=\"file\"\nruntime=%q\ntmp_dir=%q\n[engine.runtimes]\n%s=[%q]\n[network]\nnetwork_config_dir=%q\n",
			open, limit, p.opts.Runtime, p.in("tmp"), p.opts.Runtime, runtime, p.in("net")),
		"storage.conf": fmt.Sprintf("[storage]\ndriver=\"overlay\"\ngraphroot=%q\nrunroot=%q\n[storage.options.overlay]\nmount_program=%q\n",
			p.in("data"), p.in("run"), "/usr/bin/fuse-overlayfs"),
	} {
		if err := os.WriteFile(p.in(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (p *Podman) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("Podman does not answer within %s", startTime))
	defer cancel()
	var d net.Dialer
	for {
		if conn, err := d.DialContext(ctx, "unix", p.in("podman.sock")); err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w:\n%s", context.Cause(ctx), p.Log())
		case <-p.exited:
			return fmt.Errorf("Podman has ended:\n%s", p.Log())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Close ends the service, and the monitors of containers and the mounts that it has left.
func (p *Podman) Close(ctx context.Context) error {
	_ = p.service.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(stopTime):
		_ = p.service.Process.Kill()
		<-p.exited
	}
	// The rest is that of any engine's directory.
	return (&Engine{opts: Options{Dir: p.opts.Dir, DataRoot: p.in("data")}}).Close(ctx)
}
