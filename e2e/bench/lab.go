package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/docker"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// sizes say how much is measured.
type sizes struct {
	echoes     int   // rounds of echo; the slow baselines take part in every 30th
	oneshots   int   // rounds
	starts     int   // rounds
	bytes      int64 // of output; a multiple of textSize
	outputs    int   // rounds
	operations int   // of all workers together
	storms     int   // rounds of operations
	endurance  int   // commands
	edge       int   // commands at the start and at the end that are compared
	idle       time.Duration
}

var (
	full  = sizes{3000, 40, 15, 1 << 30, 5, 1600, 9, 10000, 1000, 30 * time.Second}
	quick = sizes{30, 3, 2, 64 << 20, 1, 160, 1, 200, 20, 2 * time.Second}
)

// label is a label of every container that the lab creates itself.
const label = "sandboxbash.bench"

// closeTime bounds the removal of everything.
const closeTime = time.Minute

// lab is what measurements share: the engine, an image, and a plain container of
// it for the baselines.
type lab struct {
	options
	api    *client.Client
	docker *docker.Client
	images *images.Resolver
	info   engine.Info
	img    engine.Image
	plain  string // ID of a container with the engine's defaults
	mark   string // value of label
	cache  string // directory

	onClose []func(context.Context) error
}

func openLab(ctx context.Context, o options) (_ *lab, err error) {
	l := &lab{options: o, mark: strconv.Itoa(os.Getpid())}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	if l.docker, err = docker.Connect(ctx, docker.Options{Getenv: os.Getenv, Home: home}); err != nil {
		return nil, err
	}
	l.defers(func(context.Context) error { return l.docker.Close() })
	if l.info, err = l.docker.Info(ctx); err != nil {
		return nil, err
	}
	if l.api, err = client.NewClientWithOpts(client.WithHost(l.info.Address), client.WithAPIVersionNegotiation()); err != nil {
		return nil, err
	}
	l.defers(func(context.Context) error { return l.api.Close() })
	// As with the command line, the machine's programs are inspected once.
	if l.cache, err = os.MkdirTemp("", "bench-cache"); err != nil {
		return nil, err
	}
	l.defers(func(context.Context) error { return os.RemoveAll(l.cache) })
	if l.images, err = images.New(l.docker, images.Options{Cache: l.cache}); err != nil {
		return nil, err
	}
	if l.img, err = l.images.Resolve(ctx, o.image, nil); err != nil {
		return nil, err
	}
	l.defers(l.removeMarked)
	l.plain, err = l.startPlain(ctx)
	return l, err
}

func (l *lab) defers(f func(context.Context) error) { l.onClose = append(l.onClose, f) }

// close removes everything, in the reverse order of creation, even after errors.
func (l *lab) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	var errs []error
	for _, v := range slices.Backward(l.onClose) {
		errs = append(errs, v(ctx))
	}
	return errors.Join(errs...)
}

// startPlain starts the container of the baselines. The image must have bash, which waits
// for input that never comes.
func (l *lab) startPlain(ctx context.Context) (string, error) {
	made, err := l.api.ContainerCreate(ctx, &container.Config{
		Image: string(l.img.ID), Entrypoint: []string{"bash", "-c", "read"}, OpenStdin: true, Labels: map[string]string{label: l.mark},
	}, &container.HostConfig{
		// Many connections to one port use up all ports of their own, which else wait for a minute after their end.
		Sysctls: map[string]string{"net.ipv4.tcp_tw_reuse": "1"},
	}, nil, nil, "")
	if err != nil {
		return "", err
	}
	return made.ID, l.api.ContainerStart(ctx, made.ID, container.StartOptions{})
}

// removeMarked removes the containers with the lab's label: the plain one, and those that
// interrupted docker commands have left.
func (l *lab) removeMarked(ctx context.Context) error {
	all, err := l.api.ContainerList(ctx, container.ListOptions{
		All: true, Filters: filters.NewArgs(filters.Arg("label", label+"="+l.mark)),
	})
	errs := []error{err}
	for _, c := range all {
		errs = append(errs, l.api.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}))
	}
	return errors.Join(errs...)
}

// engine returns a sandbox.Engine. It is closed with the lab.
func (l *lab) engine(o sandbox.Options) *sandbox.Engine {
	e := sandbox.New(docker.NewEngine(l.docker, images.Runner), l.images, o)
	l.defers(e.Close)
	return e
}

// session starts a session as a user of the library would.
func (l *lab) session(ctx context.Context, e *sandbox.Engine) (*sandbox.Session, error) {
	return e.Start(ctx, l.spec())
}

func (l *lab) spec() sandbox.Spec { return sandbox.Spec{Image: l.image, Lease: time.Minute} }

// with starts a session with the options, calls use, and stops the session.
func (l *lab) with(ctx context.Context, o sandbox.Options, use func(*sandbox.Session) error) (err error) {
	if o.Ahead == 0 {
		o.Ahead = 1
	}
	s, err := l.session(ctx, l.engine(o))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop(context.WithoutCancel(ctx))) }()
	return use(s)
}

// greet is the command that every measurement of latency runs.
const greet = "echo hi"

// greeted checks the output of greet.
func greeted(out string) error {
	if out != "hi\n" {
		return fmt.Errorf("output %q; want %q", out, "hi\n")
	}
	return nil
}

// greeting returns a function that runs greet in a session.
func greeting(s *sandbox.Session) func(context.Context) error {
	return func(ctx context.Context) error {
		res, err := s.Run(ctx, sandbox.Command{Script: greet, Timeout: time.Minute})
		if err != nil {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return err // without this, a cancelled command would count as wrong output
		}
		return greeted(res.Output.Stdout.Text())
	}
}

// local runs bash on this machine.
func local(ctx context.Context) error { return program(ctx, "bash", "-c", greet) }

// dockerCLI runs the docker command. It finds the engine as we do.
func dockerCLI(args ...string) func(context.Context) error {
	return func(ctx context.Context) error { return program(ctx, "docker", args...) }
}

// program runs a program that greets.
func program(ctx context.Context, name string, args ...string) error {
	_, err := firstOutput(ctx, name, args...)
	return err
}

// firstOutput runs a program that greets, and returns when its output came. When ctx ends the
// program is interrupted, so that it can clean up.
func firstOutput(ctx context.Context, name string, args ...string) (time.Time, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var stderr bytes.Buffer
	var out stamped
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return out.at, fmt.Errorf("%s: %w: %s", name, err, stderr.Bytes())
	}
	return out.at, greeted(out.text.String())
}

// stamped keeps what is written to it, and the time of the first write.
type stamped struct {
	text bytes.Buffer
	at   time.Time
}

func (s *stamped) Write(p []byte) (int, error) {
	if s.at.IsZero() {
		s.at = time.Now()
	}
	return s.text.Write(p)
}

// rawExec runs a command through the exec API alone: create, attach, read to the
// end, inspect.
func (l *lab) rawExec(ctx context.Context, id string, o container.ExecOptions, stdout io.Writer) error {
	o.AttachStdout, o.AttachStderr = true, true
	made, err := l.api.ContainerExecCreate(ctx, id, o)
	if err != nil {
		return err
	}
	conn, err := l.api.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, conn.Close)
	defer stop()
	if _, err := stdcopy.StdCopy(stdout, io.Discard, conn.Reader); err != nil {
		return err
	}
	state, err := l.api.ContainerExecInspect(ctx, made.ID)
	if err == nil && state.ExitCode != 0 {
		err = fmt.Errorf("exit code %d", state.ExitCode)
	}
	return err
}

func (l *lab) rawGreeting(ctx context.Context) error {
	var out bytes.Buffer
	if err := l.rawExec(ctx, l.plain, container.ExecOptions{Cmd: []string{"bash", "-c", greet}}, &out); err != nil {
		return err
	}
	return greeted(out.String())
}

// machine says where all this was measured.
func (l *lab) machine(ctx context.Context) [][2]string {
	cli := "unknown"
	if out, err := exec.CommandContext(ctx, "docker", "version", "--format", "{{.Client.Version}}").Output(); err == nil {
		cli = string(bytes.TrimSpace(out))
	}
	return [][2]string{
		{"machine", fmt.Sprintf("%d CPUs, %.0f GiB, %s/%s, kernel %s", runtime.NumCPU(), float64(l.info.MemoryBytes)/(1<<30), runtime.GOOS, runtime.GOARCH, l.info.KernelVersion)},
		{"engine", fmt.Sprintf("%s %s, API %s, storage driver %s, cgroup v%s, %s %s; docker CLI %s",
			l.info.Name, l.info.Version, l.info.APIVersion, l.info.StorageDriver, l.info.CgroupVersion, l.info.DefaultRuntime, l.info.RuncVersion, cli)},
		{"image", fmt.Sprintf("%s, %s, for ours and for every baseline in a container", l.image, mebibytes(l.img.Size))},
		{"Go", runtime.Version()},
	}
}
