package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
)

// session starts the session of that name, unless it runs. Once begun, a start is waited for: no caller could
// stop a session whose id has not been read.
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

// pause freezes a session. It counts as frozen even if the tool says that it could not: it is thawed before
// it is stopped, because a container that is paused cannot be stopped everywhere.
func (tr *trial) pause(ctx context.Context, values map[string]string) error {
	tr.mu.Lock()
	tr.frozen[values["session"]] = true
	tr.mu.Unlock()
	_, err := tr.ask(ctx, tr.target.Pause, values)
	return err
}

// stop ends a session, whatever state it is in. One that cannot be stopped is tried again at the end.
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

// stopAll ends all sessions, also when the kit is interrupted.
func (tr *trial) stopAll(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	var errs []error
	for _, name := range sortedKeys(tr.sessions) {
		errs = append(errs, tr.stop(ctx, name))
	}
	return errors.Join(errs...)
}
