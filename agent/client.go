package agent

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
	"github.com/sandboxbash/sandboxbash/tool"
)

// ClientTerminal runs commands in terminals of the client. Its methods are
// those of the Agent Client Protocol. It may be called concurrently.
type ClientTerminal interface {
	// Create starts the command of c and returns the id of its terminal.
	Create(ctx context.Context, c CreateTerminal) (id string, err error)
	// Kill ends the command; the terminal stays.
	Kill(ctx context.Context, id string) error
	// Release gives the terminal up, and ends its command if it is still there.
	Release(ctx context.Context, id string) error
	Output(ctx context.Context, id string) (TerminalOutput, error)
	WaitForExit(ctx context.Context, id string) (TerminalExit, error)
}

// CreateTerminal is a command for a client to run.
type CreateTerminal struct {
	Command         string             `json:"command"`
	Cwd             string             `json:"cwd,omitempty"` // on the client's machine
	Env             []TerminalVariable `json:"env,omitempty"`
	OutputByteLimit int                `json:"outputByteLimit"`
}

// TerminalVariable is a variable of a command's environment.
type TerminalVariable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// TerminalOutput is what a client's terminal shows.
type TerminalOutput struct {
	Output    string        `json:"output"`
	Truncated bool          `json:"truncated"`
	Exit      *TerminalExit `json:"exitStatus,omitempty"` // nil while it runs
}

// TerminalExit is how a command has ended in a client's terminal.
type TerminalExit struct {
	Code   *int    `json:"exitCode"`
	Signal *string `json:"signal"`
}

const (
	// clientPoll is how often the output of a client's terminal is read.
	clientPoll = 250 * time.Millisecond
	// clientOutput is how many bytes of the output a client should keep.
	clientOutput = sink.DefaultWindow
	// clientEnd bounds each of the calls after the timeout: kill, output and release.
	// With all three a call still returns at most 5 s after its timeout.
	clientEnd = 1500 * time.Millisecond
)

// observedInClient is inClient, with the command put on record.
func (s *Session) observedInClient(ctx context.Context, c *running) tool.Outcome {
	over, err := s.sandbox.Observe(ctx, s.command(c), sandbox.ModeCommand, sandbox.InClient)
	if err != nil {
		return tool.Outcome{Err: err}
	}
	o := s.inClient(ctx, c.plan, c.on)
	over(sandbox.Result{
		Status: exec.Status{Reason: o.Reason, Code: o.Code, Signal: o.Signal, Elapsed: o.Elapsed}, Output: o.Output,
	}, o.Err)
	return o
}

// inClient runs a plan in the client's terminal. An error of the client becomes that of
// the outcome. The terminal is always released.
func (s *Session) inClient(ctx context.Context, p tool.Plan, on Events) tool.Outcome {
	start := time.Now()
	caller := ctx
	if d := p.Timeout.Duration(); d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d, exec.ErrTimeout)
		defer cancel()
	}
	id, err := s.opts.Client.Create(ctx, s.clientCommand(p))
	if err != nil {
		return s.clientError(ctx, caller, nil, err)
	}
	s.opts.Log.Info("command in the client's terminal", "terminal", id, "command", p.Command)
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clientEnd)
		defer cancel()
		if err := s.opts.Client.Release(ctx, id); err != nil {
			s.opts.Log.Warn("release the client's terminal", "terminal", id, "error", err)
		}
	}()
	on.update(tool.Update{Details: tool.UpdateDetails{TerminalID: id}})
	shown, exit, err := s.followClient(ctx, id, on)
	client := &tool.Client{ID: id, Truncated: shown.Truncated}
	if err != nil {
		o := s.clientError(ctx, caller, client, err)
		o.Elapsed = time.Since(start)
		if o.End() == tool.EndTimedOut || o.End() == tool.EndCancelled {
			shown = s.endClient(ctx, id, shown)
			client.Truncated = shown.Truncated
		}
		o.Output = s.clientText(shown.Output)
		return o
	}
	signal := ""
	if exit.Signal != nil {
		signal = *exit.Signal
	}
	o := tool.ClientExit(exit.Code, signal)
	o.Client, o.Elapsed, o.Output = client, time.Since(start), s.clientText(shown.Output)
	return o
}

// clientCommand is the command for the client, with the contract's variables and the
// directory by its path on the client's machine.
func (s *Session) clientCommand(p tool.Plan) CreateTerminal {
	c := CreateTerminal{
		Command: p.Script(s.opts.Prefix), Cwd: cmp.Or(s.places.at.outside(p.Dir), p.Dir), OutputByteLimit: clientOutput,
	}
	for _, kv := range p.Env.List() {
		name, value, _ := strings.Cut(kv, "=")
		c.Env = append(c.Env, TerminalVariable{Name: name, Value: value})
	}
	return c
}

// followClient shows the terminal's output until its command has ended.
func (s *Session) followClient(ctx context.Context, id string, on Events) (shown TerminalOutput, exit TerminalExit, err error) {
	type end struct {
		exit TerminalExit
		err  error
	}
	watched, stop := context.WithCancel(ctx)
	ended := make(chan end, 1)
	go func() { // ends with watched at the latest, as every call of a client has to
		exit, err := s.opts.Client.WaitForExit(watched, id)
		ended <- end{exit, err}
	}()
	defer func() {
		stop()
		if ended != nil {
			<-ended
		}
	}()
	poll := time.NewTicker(clientPoll)
	defer poll.Stop()
	for {
		var e *end
		select {
		case got := <-ended:
			ended, e = nil, &got
		case <-poll.C:
		case <-ctx.Done():
			return shown, exit, context.Cause(ctx)
		}
		if e != nil && e.err != nil {
			return shown, exit, e.err
		}
		now, err := s.opts.Client.Output(ctx, id)
		if err != nil {
			return shown, exit, err
		}
		shown = now
		on.update(tool.Update{Text: shown.Output, Details: tool.UpdateDetails{TerminalID: id}})
		if e != nil {
			return shown, e.exit, nil
		}
	}
}

// endClient kills the command, and reads its output for the last time.
func (s *Session) endClient(ctx context.Context, id string, shown TerminalOutput) TerminalOutput {
	ctx = context.WithoutCancel(ctx)
	kill, cancel := context.WithTimeout(ctx, clientEnd)
	defer cancel()
	if err := s.opts.Client.Kill(kill, id); err != nil {
		s.opts.Log.Warn("kill in the client's terminal", "terminal", id, "error", err)
	}
	look, cancel := context.WithTimeout(ctx, clientEnd)
	defer cancel()
	if now, err := s.opts.Client.Output(look, id); err == nil {
		return now
	}
	return shown
}

// clientError is the outcome if a call of the client fails, also because of the
// command's timeout.
func (s *Session) clientError(ctx, caller context.Context, client *tool.Client, err error) tool.Outcome {
	o := tool.Outcome{Client: client}
	switch {
	case caller.Err() != nil:
		o.Reason, o.Aborted = exec.Cancelled, aborted(caller)
	case errors.Is(context.Cause(ctx), exec.ErrTimeout):
		o.Reason = exec.TimedOut
	default:
		o.Err = err
	}
	if client == nil {
		o.Client = &tool.Client{}
	}
	return o
}

// clientText treats a client's output like that of a command in the session: it is
// made safe to show, and the session's secrets are masked.
func (s *Session) clientText(text string) sink.Output {
	opts := tool.AgentOutput(s.opts.Settings, tool.Terminal)
	out, err := sink.New(opts, nil, s.opts.Secrets)
	if err != nil { // cannot happen: the options are ours
		return sink.Output{}
	}
	_, _ = out.Stdout().Write([]byte(text)) // never fails
	return out.Close()
}
