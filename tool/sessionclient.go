package tool

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// ClientTerminal runs commands in terminals of the client, by the verbs of the
// Agent Client Protocol. It may be called concurrently.
type ClientTerminal interface {
	ClientTerminalLife
	ClientTerminalView
}

// ClientTerminalLife begins and ends terminals.
type ClientTerminalLife interface {
	// Create starts the command of c and returns the id of its terminal.
	Create(ctx context.Context, c CreateTerminal) (id string, err error)
	// Kill ends the command; the terminal stays.
	Kill(ctx context.Context, id string) error
	// Release gives the terminal up, and ends its command if it is still there.
	Release(ctx context.Context, id string) error
}

// ClientTerminalView looks at terminals.
type ClientTerminalView interface {
	Output(ctx context.Context, id string) (TerminalOutput, error)
	WaitForExit(ctx context.Context, id string) (TerminalExit, error)
}

// CreateTerminal is what a client is asked to run.
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
	// clientPoll is between two looks at a client's terminal.
	clientPoll = 250 * time.Millisecond
	// clientOutput is how much a client is asked to keep of the output, in bytes.
	clientOutput = 50 << 10
	// clientEnd bounds each of the last calls: kill and release, and the output of
	// what has been killed. With all three a call stays within 5 s after its timeout.
	clientEnd = 1500 * time.Millisecond
)

// observedInClient puts on record what runs in the client's terminal.
func (s *Session) observedInClient(ctx context.Context, c *running) Outcome {
	over, err := s.box.Observe(ctx, s.command(c), sandbox.ModeCommand, sandbox.InClient)
	if err != nil {
		return Outcome{Err: err}
	}
	o := s.inClient(ctx, c.plan, c.on)
	over(sandbox.Result{
		Status: exec.Status{Reason: o.Reason, Code: o.Code, Signal: o.Signal, Elapsed: o.Elapsed}, Output: o.Output,
	}, o.Err)
	return o
}

// inClient runs a plan in the client's terminal. An error of the client is the
// outcome's; the terminal is released in any case.
func (s *Session) inClient(ctx context.Context, p Plan, on Events) Outcome {
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
	on.update(Update{Details: UpdateDetails{TerminalID: id}})
	shown, exit, err := s.followClient(ctx, id, on)
	client := &Client{ID: id, Truncated: shown.Truncated}
	if err != nil {
		o := s.clientError(ctx, caller, client, err)
		o.Elapsed = time.Since(start)
		if o.end() == timedOut || o.end() == cancelled {
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
	o := ClientExit(exit.Code, signal)
	o.Client, o.Elapsed, o.Output = client, time.Since(start), s.clientText(shown.Output)
	return o
}

// clientCommand is what the client is asked for: the contract's variables, and
// the directory as the client's machine has it.
func (s *Session) clientCommand(p Plan) CreateTerminal {
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
		on.update(Update{Text: shown.Output, Details: UpdateDetails{TerminalID: id}})
		if e != nil {
			return shown, e.exit, nil
		}
	}
}

// endClient kills the command, once, and takes a last look at its output.
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

// clientError is the outcome for a call of the client that failed, be it because
// the command's time was over.
func (s *Session) clientError(ctx, caller context.Context, client *Client, err error) Outcome {
	o := Outcome{Client: client}
	switch {
	case caller.Err() != nil:
		o.Reason, o.Aborted = exec.Cancelled, aborted(caller)
	case errors.Is(context.Cause(ctx), exec.ErrTimeout):
		o.Reason = exec.TimedOut
	default:
		o.Err = err
	}
	if client == nil {
		o.Client = &Client{}
	}
	return o
}

// clientText keeps what the client has shown as it would be of a command here:
// safe to show, with secrets masked by whoever masks them for this session.
func (s *Session) clientText(text string) sink.Output {
	opts := AgentOutput(s.opts.Settings, Terminal)
	out, err := sink.New(opts, nil, s.opts.Secrets)
	if err != nil { // of options that cannot be
		return sink.Output{}
	}
	_, _ = out.Stdout().Write([]byte(text)) // never fails
	return out.Close()
}
