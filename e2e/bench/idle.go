package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/sandboxbash/sandboxbash/e2e/activity"
)

// Goals for an idle session.
const (
	idleWakes = 5.0  // a second
	idleShare = 0.01 // of a processor
)

// rest is the pause after a start, before the measurement.
const rest = 5 * time.Second

// idle measures what an idle session of an agent uses: the server and everything in the
// container.
func idle(ctx context.Context, l *lab) (rows []row, err error) {
	for _, kind := range []string{"rpc", "mcp"} {
		used, err := l.idleServer(ctx, kind)
		if err != nil {
			return rows, err
		}
		seconds := used.Time.Seconds()
		wakes, share := float64(used.Wakes)/seconds, used.CPU.Seconds()/seconds
		name := "`serve " + kind + "`, contract agent, and its session: "
		rows = append(rows,
			row{name + "wake-ups", fmt.Sprintf("%.1f /s", wakes), "–", wakes, goal{atMost, idleWakes, "≤ 5 /s"}, ""},
			row{name + "processor time", fmt.Sprintf("%.3f %%", 100*share), "–", share, goal{atMost, idleShare, "≤ 1 %"}, ""},
			row{name + "processes and threads made", fmt.Sprint(used.Made), "–", float64(used.Made), goal{atMost, 0, "0"}, ""},
		)
	}
	return rows, nil
}

// idleServer starts a server with further flags, has it run one command, and watches it do nothing.
func (l *lab) idleServer(ctx context.Context, kind string, flags ...string) (used activity.Used, err error) {
	cmd := exec.CommandContext(ctx, l.binary, append([]string{"serve", kind, "--image", l.image}, flags...)...)
	cmd.Env = append(os.Environ(), "SANDBOXBASH_QUIET=true", "SANDBOXBASH_AGENT_ASYNC=true")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return used, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return used, err
	}
	if err := cmd.Start(); err != nil {
		return used, err
	}
	defer func() {
		err = errors.Join(err, in.Close())
		_, _ = io.Copy(io.Discard, out)
		err = errors.Join(err, cmd.Wait())
	}()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for _, message := range hello(kind) {
		if err := exchange(in, lines, message); err != nil {
			return used, err
		}
	}
	init, err := l.initOf(ctx, cmd.Process.Pid)
	if err != nil {
		return used, err
	}
	select {
	case <-time.After(rest):
	case <-ctx.Done():
		return used, context.Cause(ctx)
	}
	return activity.Watch(ctx, l.sizes.idle, init, cmd.Process.Pid)
}

// hello returns the messages that a client sends until its session has started.
func hello(kind string) []map[string]any {
	begin := map[string]any{"protocol": "1"}
	if kind == "mcp" {
		begin = map[string]any{
			"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "bench", "version": "1"},
		}
	}
	all := []map[string]any{{"id": 1, "method": "initialize", "params": begin}}
	if kind == "mcp" {
		all = append(all, map[string]any{"method": "notifications/initialized"})
	}
	return append(all, map[string]any{
		"id": 2, "method": "tools/call", "params": map[string]any{"name": "bash", "arguments": map[string]any{"command": greet}},
	})
}

// exchange sends a message and, if the message is a request, waits for the answer.
func exchange(in io.Writer, lines *bufio.Scanner, message map[string]any) error {
	message["jsonrpc"] = "2.0"
	b, err := json.Marshal(message)
	if err == nil {
		_, err = in.Write(append(b, '\n'))
	}
	if err != nil || message["id"] == nil {
		return err
	}
	for lines.Scan() {
		var answer struct {
			ID     any
			Method string
			Error  json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &answer); err != nil {
			return err
		}
		switch {
		case answer.Method != "" || fmt.Sprint(answer.ID) != fmt.Sprint(message["id"]):
		case answer.Error != nil:
			return fmt.Errorf("%s: %s", message["method"], answer.Error)
		default:
			return nil
		}
	}
	return errors.Join(fmt.Errorf("%s: no answer", message["method"]), lines.Err())
}

// initOf returns the pid on this machine of PID 1 of the session that a process owns.
func (l *lab) initOf(ctx context.Context, owner int) (int, error) {
	all, err := l.api.ContainerList(ctx, container.ListOptions{Filters: filters.NewArgs(filters.Arg("name", "^/sandboxbash-"))})
	if err != nil {
		return 0, err
	}
	for _, c := range all {
		for _, value := range c.Labels {
			if !strings.Contains(value, fmt.Sprintf("/%d/", owner)) {
				continue
			}
			state, err := l.api.ContainerInspect(ctx, c.ID)
			if err != nil {
				return 0, err
			}
			return state.State.Pid, nil
		}
	}
	return 0, fmt.Errorf("the server %d has no session", owner)
}
