package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// patience is how long a command may live after its client has gone. The lease is longer, but
// the runner notices the end of its stream.
const patience = 10 * time.Second

// onTheWay is how long a request of a client that has gone may take to reach a runner.
const onTheWay = time.Second

// ending is a way to end a command. It returns how the command ended, as the program reports
// it. The outcome gone means that the client reported nothing, because it was killed.
type ending struct {
	name string
	end  func(ctx context.Context, w *killer, script string) (outcome string, err error)
	want []string
	slow bool // the survivors may take patience
}

// wants reports whether an outcome is right. In profile dev a command is root in its
// container and can stop or kill its runner and PID 1. Then its end may also be unknown, its
// session or its job lost, or its terminal without a runner before it has started, but nothing
// else, and only where nothing of the command is left: one looks for that after every outcome.
func (e ending) wants(outcome string, dev bool) bool {
	if slices.Contains(e.want, outcome) {
		return true
	}
	kind, _, _ := strings.Cut(outcome, "{")
	return dev && (kind == "outcome-unknown" || kind == "session-lost" || outcome == "lost" && strings.HasPrefix(e.name, "job: "))
}

const gone = "(client gone)"

var endings = []ending{
	{name: "timeout", end: byTimeout, want: []string{"timed-out"}},
	{name: "cancel", end: byCancel, want: []string{"cancelled"}},
	{name: "client killed", end: byKill, want: []string{gone}, slow: true},
	{name: "client closes", end: byClose, want: []string{gone}, slow: true},
	{name: "output limit", end: byOutputLimit, want: []string{"output-limit", "timed-out"}},
	{name: "job: killed", end: byJobKill, want: []string{"cancelled"}},
	{name: "job: timeout", end: byJobTimeout, want: []string{"timed-out"}},
	{name: "terminal: timeout", end: byTerminalTimeout, want: []string{"timed-out"}},
	{name: "terminal: ended", end: byTerminalEnd, want: []string{"cancelled"}},
}

// killer kills commands, one after the other.
type killer struct {
	l       *lab
	session *session
	rand    *rand.Rand
	server  *server // attached to the session; nil until it is needed
}

// attached returns a server that has the session.
func (w *killer) attached(ctx context.Context) (*server, error) {
	if w.server != nil {
		return w.server, nil
	}
	s, err := w.l.serve(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.call(ctx, "session/attach", map[string]any{"session": w.session.id}, nil); err != nil {
		return nil, errors.Join(err, s.close())
	}
	w.server = s
	return s, nil
}

// soon is a point in time early in a command's life.
func (w *killer) soon() time.Duration { return time.Duration(w.rand.IntN(700)) * time.Millisecond }

func byTimeout(ctx context.Context, w *killer, script string) (string, error) {
	return w.exec(ctx, "--timeout", (200*time.Millisecond + w.soon()).String(), script)
}

// byOutputLimit lets the command write more than it may. If the command kills its writer, it
// is ended by its timeout instead.
func byOutputLimit(ctx context.Context, w *killer, script string) (string, error) {
	flood := fmt.Sprintf("(sleep %.3f; exec yes) & ", 0.2+w.soon().Seconds())
	return w.exec(ctx, "--timeout", "10s", "--output-limit", "1048576", flood+script)
}

// exec runs a script and returns its outcome, with the cause if there is one.
func (w *killer) exec(ctx context.Context, args ...string) (string, error) {
	r, err := w.l.exec(ctx, w.session.id, args...)
	if r.full() == notStarted {
		w.l.say("kills: not started: %s", r.Error.Message)
	}
	return r.full(), err
}

// job starts a script as a job.
func (w *killer) job(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"session", "exec", "--quiet", "--background"}, args...)
	out, err := w.l.cli(ctx, slices.Insert(args, len(args)-1, w.session.id)...)
	return strings.TrimSpace(out), err
}

func byJobKill(ctx context.Context, w *killer, script string) (string, error) {
	id, err := w.job(ctx, script)
	if err != nil {
		return "", err
	}
	time.Sleep(w.soon())
	_, killed := w.l.cli(ctx, "job", "stop", "--quiet", "--session", w.session.id, id)
	if killed != nil {
		w.l.say("kills: %v", killed)
	}
	return w.waited(ctx, id, killed)
}

func byJobTimeout(ctx context.Context, w *killer, script string) (string, error) {
	id, err := w.job(ctx, "--timeout", (200*time.Millisecond + w.soon()).String(), script)
	if err != nil {
		return "", err
	}
	return w.waited(ctx, id, nil)
}

// waited waits for a job and returns how it ended.
func (w *killer) waited(ctx context.Context, id string, before error) (string, error) {
	cmd := w.l.command(ctx, "job", "wait", "--json", "--session", w.session.id, id)
	out, _ := cmd.Output() // its exit status is that of the job
	var job struct {
		Reason string
		Error  *struct{ Outcome, Cause string }
	}
	if err := json.Unmarshal(out, &job); err != nil {
		return "", errors.Join(before, fmt.Errorf("%w: %q: %w", errNoOutcome, cut(string(out)), err))
	}
	if job.Error != nil {
		return job.Error.Outcome + "{" + job.Error.Cause + "}", nil
	}
	return job.Reason, nil
}

func byCancel(ctx context.Context, w *killer, script string) (string, error) {
	s, err := w.attached(ctx)
	if err != nil {
		return "", err
	}
	id, answer, err := s.send("bash", map[string]any{"session": w.session.id, "command": script})
	if err != nil {
		return "", err
	}
	time.Sleep(w.soon()) // a random moment
	if err := s.cancel(id); err != nil {
		return "", err
	}
	var r toolResult
	err = s.wait(ctx, answer, &r)
	if e, ok := errors.AsType[*rpcError](err); ok {
		return e.kind(), nil
	}
	if err == nil && r.Details.Reason == "" {
		return "cancelled", nil // before it started; contract agent has no details then
	}
	return r.Details.Reason, err
}

func byKill(ctx context.Context, w *killer, script string) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := w.l.command(ctx, "session", "exec", "--json", w.session.id, script)
	if err := cmd.Start(); err != nil {
		return "", err
	}
	time.Sleep(w.soon())
	cancel()
	_ = cmd.Wait()
	return gone, nil
}

func byClose(ctx context.Context, w *killer, script string) (string, error) {
	s, err := w.attached(ctx)
	if err != nil {
		return "", err
	}
	if _, _, err := s.send("bash", map[string]any{"session": w.session.id, "command": script}); err != nil {
		return "", err
	}
	time.Sleep(w.soon())
	w.server = nil
	return gone, s.close()
}

// startTerminal runs the script on a terminal.
func (w *killer) startTerminal(ctx context.Context, script string, seconds float64) (*server, string, error) {
	s, err := w.attached(ctx)
	if err != nil {
		return nil, "", err
	}
	var made struct{ Terminal string }
	err = s.call(ctx, "pty/start", map[string]any{"session": w.session.id, "command": script, "timeoutSeconds": seconds}, &made)
	return s, made.Terminal, err
}

func endTerminal(ctx context.Context, s *server, terminal string) (string, error) {
	var end struct{ Reason string }
	err := s.call(ctx, "pty/end", map[string]any{"terminal": terminal}, &end)
	if e, ok := errors.AsType[*rpcError](err); ok {
		return e.kind(), nil
	}
	return end.Reason, err
}

func byTerminalTimeout(ctx context.Context, w *killer, script string) (string, error) {
	s, terminal, err := w.startTerminal(ctx, script, 0.3+w.soon().Seconds())
	if err != nil {
		return "", err
	}
	var how struct{ Event string }
	if err := s.call(ctx, "pty/wait", map[string]any{"terminal": terminal, "end": true}, &how); err != nil {
		return "", err
	}
	if how.Event != "ended" {
		return "", fmt.Errorf("the terminal's command has not ended: %s", how.Event)
	}
	return endTerminal(ctx, s, terminal)
}

func byTerminalEnd(ctx context.Context, w *killer, script string) (string, error) {
	s, terminal, err := w.startTerminal(ctx, script, 300)
	if err != nil {
		return "", err
	}
	time.Sleep(w.soon())
	return endTerminal(ctx, s, terminal)
}
