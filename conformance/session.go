package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
)

// session starts the session of that name, unless it runs. It always waits for the start to end, because a
// session whose id was not read could not be stopped.
func (tr *trial) session(ctx context.Context, name string) (string, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if id, ok := tr.sessions[name]; ok || tr.target.Start == "" {
		return id, nil
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	values := map[string]string{"name": fmt.Sprintf("conformance-%08x", rand.Uint32())}
	a, err := tr.ask(context.WithoutCancel(ctx), tr.target.Start, values)
	if err != nil {
		return "", fmt.Errorf("start of a session: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(a.stdout)), "\n")
	id := strings.TrimSpace(lines[len(lines)-1])
	if id == "" {
		return "", failed("start of a session prints no id")
	}
	tr.sessions[name] = id
	return id, nil
}

// pause freezes a session. The session counts as frozen even if the tool reports an error, so that it is
// thawed before it is stopped. Some engines cannot stop a paused container. runc gives up on a freezer of cgroup v1
// that processes are just leaving ("unable to freeze"): the tool is asked three times.
func (tr *trial) pause(ctx context.Context, values map[string]string) error {
	tr.mu.Lock()
	tr.frozen[values["session"]] = true
	tr.mu.Unlock()
	var err error
	for range 3 {
		if _, err = tr.ask(ctx, tr.target.Pause, values); err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

// stop ends a session in any state. If it cannot be stopped, stopAll tries again.
func (tr *trial) stop(ctx context.Context, name string) error {
	tr.mu.Lock()
	id, ok := tr.sessions[name]
	frozen := tr.frozen[id]
	tr.mu.Unlock()
	if !ok {
		return nil
	}
	values := map[string]string{"session": id}
	if frozen {
		_, _ = tr.ask(ctx, tr.target.Thaw, values) // it may run again already
	}
	if tr.target.Stop != "" {
		if _, err := tr.ask(ctx, tr.target.Stop, values); err != nil {
			return err
		}
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	delete(tr.sessions, name)
	return nil
}

// stopAll ends all sessions, even when the program is interrupted.
func (tr *trial) stopAll(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	var errs []error
	for _, name := range sortedKeys(tr.sessions) {
		errs = append(errs, tr.stop(ctx, name))
	}
	return errors.Join(errs...)
}
