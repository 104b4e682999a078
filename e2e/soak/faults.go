package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"github.com/sandboxbash/sandboxbash/e2e/faultproxy"
)

// Faults.
const (
	faultKill    = "container killed"
	faultRemove  = "container removed"
	faultPause   = "container paused"
	faultShim    = "shim killed"
	faultOOM     = "memory used up"
	faultRestart = "engine restarted"
	faultCrash   = "engine killed"
	faultHost    = "host process killed"
	faultHang    = "calls hang"
	faultError   = "calls answered with 500"
	faultCut     = "streams cut"
	faultBreak   = "connections reset"
	faultPart    = "network parted"
	faultDisk    = "artifact disk full"
)

// harm does something to the engine or a session, for a time, and undoes it.
type harm struct {
	name   string
	single bool // it hits one session
	do     func(ctx context.Context, n *nemesisRun, s *slot, d time.Duration) error
}

// hardware hits what runs; network what is between us and it. One of each may be under
// way at a time.
var hardware = []harm{
	{faultKill, true, func(ctx context.Context, n *nemesisRun, s *slot, _ time.Duration) error {
		return n.docker(ctx, "kill", s.name())
	}},
	{faultRemove, true, func(ctx context.Context, n *nemesisRun, s *slot, _ time.Duration) error {
		return n.docker(ctx, "rm", "-f", s.name())
	}},
	{faultPause, true, func(ctx context.Context, n *nemesisRun, s *slot, d time.Duration) error {
		now := s.current()
		err := n.docker(ctx, "pause", now.container)
		sleep(ctx, d)
		return errors.Join(err, n.unpause(ctx, now))
	}},
	{faultShim, true, func(_ context.Context, n *nemesisRun, s *slot, _ time.Duration) error { return n.killShim(s.current()) }},
	{faultOOM, true, func(ctx context.Context, n *nemesisRun, s *slot, _ time.Duration) error {
		_, err := n.direct.exec(ctx, s.current().id, "--timeout", "5s", "exec tail /dev/zero")
		return err
	}},
	{faultRestart, false, func(ctx context.Context, n *nemesisRun, _ *slot, d time.Duration) error {
		err := n.engine.Stop(context.WithoutCancel(ctx))
		sleep(ctx, d/2)
		return errors.Join(err, n.engine.Again(context.WithoutCancel(ctx)))
	}},
	{faultCrash, false, func(ctx context.Context, n *nemesisRun, _ *slot, d time.Duration) error {
		err := n.engine.Kill()
		sleep(ctx, d/2)
		return errors.Join(err, n.engine.Again(context.WithoutCancel(ctx)))
	}},
}

var network = []harm{
	{faultHost, true, func(_ context.Context, _ *nemesisRun, s *slot, _ time.Duration) error {
		s.killServer()
		return nil
	}},
	{faultHang, false, spoil(faultproxy.Hang())},
	{faultError, false, spoil(faultproxy.Status(500))},
	{faultError, false, spoil(faultproxy.Status(500).AfterDone())},
	{faultCut, false, spoil(faultproxy.CutStream(300))},
	{faultCut, false, spoil(faultproxy.Stall(200))},
	{faultBreak, false, func(_ context.Context, n *nemesisRun, _ *slot, _ time.Duration) error {
		n.proxy.Break()
		return nil
	}},
	{faultPart, false, func(ctx context.Context, n *nemesisRun, _ *slot, d time.Duration) error {
		n.proxy.Part()
		sleep(ctx, d)
		n.proxy.Heal()
		return nil
	}},
	{faultDisk, false, func(ctx context.Context, n *nemesisRun, _ *slot, d time.Duration) error {
		file := filepath.Join(n.state, "ballast")
		err := fillDisk(file)
		sleep(ctx, d)
		return errors.Join(err, os.Remove(file))
	}},
}

func (n *nemesisRun) killShim(s *session) error {
	pid := n.engine.Shims()[s.container]
	if pid == 0 {
		return fmt.Errorf("session %s has no shim", s.id)
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

// unpause ends a pause. A shim that is asked to start an exec while its container is
// being frozen can hang, and with it all that is asked of that container after (seen with
// containerd 1.6 on cgroup v1): then it is killed, which is another fault.
func (n *nemesisRun) unpause(ctx context.Context, s *session) error {
	err := n.docker(context.WithoutCancel(ctx), "unpause", s.container)
	if !errors.Is(err, errEngineHangs) {
		return err
	}
	over := n.history.hurt(faultShim, s.id)
	defer over()
	return errors.Join(err, n.killShim(s))
}

// calls are those that meet a fault of the proxy, some of them at a time.
var calls = []*regexp.Regexp{
	regexp.MustCompile(`^/containers/[^/]*/exec`),
	regexp.MustCompile(`^/exec/[^/]*/start`),
	regexp.MustCompile(`^/exec/[^/]*/json`),
	regexp.MustCompile(`^/containers/[^/]*/json`),
	regexp.MustCompile(`^/containers/json`),
	regexp.MustCompile(`.`),
}

// spoil lets a kind of call meet a fault for a time.
func spoil(f faultproxy.Fault) func(context.Context, *nemesisRun, *slot, time.Duration) error {
	return func(ctx context.Context, n *nemesisRun, _ *slot, d time.Duration) error {
		n.proxy.Set(faultproxy.Rule{Path: calls[int(d)%len(calls)], Fault: f})
		sleep(ctx, d)
		n.proxy.Set()
		return nil
	}
}

// diskSize is that of the disk that artifacts are on.
const diskSize = "2m"

// fillDisk writes until there is no room. Without a small disk of its own (mountDisk) it
// must not be called.
func fillDisk(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	block := make([]byte, 4096)
	for range 1 << 16 { // far more than the disk has
		if _, err := file.Write(block); err != nil {
			return errors.Join(ignoreFull(err), file.Close())
		}
	}
	return errors.Join(errors.New("the disk does not get full"), file.Close())
}

// ignoreFull is nil for what was wanted.
func ignoreFull(err error) error {
	if _, ok := errors.AsType[*os.PathError](err); ok {
		return nil
	}
	return err
}

// mountDisk gives a directory a small disk of its own.
func mountDisk(ctx context.Context, dir string) (unmount func() error, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if out, err := exec.CommandContext(ctx, "mount", "-t", "tmpfs", "-o", "size="+diskSize, "tmpfs", dir).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mount a small disk: %w: %s", err, out)
	}
	return func() error {
		return exec.CommandContext(context.WithoutCancel(ctx), "umount", dir).Run()
	}, nil
}

// sleep is over at ctx's end too.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// plague does one harm after the other until ctx ends.
func (n *nemesisRun) plague(ctx context.Context, kinds []harm, of string) {
	random := n.l.random(of)
	for ctx.Err() == nil {
		sleep(ctx, time.Duration(300+random.IntN(2000))*time.Millisecond)
		h, s := kinds[random.IntN(len(kinds))], n.slots[random.IntN(len(n.slots))]
		d := time.Duration(300+random.IntN(2500)) * time.Millisecond
		if ctx.Err() != nil || s.current() == nil {
			continue
		}
		hit := ""
		if h.single {
			hit = s.current().id
		}
		over := n.history.hurt(h.name, hit)
		err := h.do(ctx, n, s, d)
		over()
		if err != nil && ctx.Err() == nil {
			n.l.say("nemesis: %s: %v", h.name, cut(err.Error()))
		}
	}
}
