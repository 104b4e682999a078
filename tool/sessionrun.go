package tool

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// running is a call of bash, or a command of the user's.
type running struct {
	plan   Plan
	prefix string
	shell  *shellState // what it shares with the commands before and after it
	user   bool        // it is the user's: it leaves the shell to the agent's
	on     Events
}

// bash is a call of the tool bash: a plan, and what comes of it.
func (s *Session) bash(ctx context.Context, arguments json.RawMessage, on Events) Result {
	c := running{prefix: s.opts.Prefix, shell: s.shell, on: on}
	if s.opts.Contract == Agent {
		if err := s.takeTurn(ctx); err != nil {
			return s.contract.Result(Plan{Contract: Agent}, notBegun(ctx, err))
		}
		defer s.giveTurn()
	}
	c.plan = s.contract.Plan(arguments, s.host(func(e Expansion) (string, error) { return s.put(ctx, e) }))
	if r, refused := c.plan.Refused(); refused {
		if c.plan.Denial != nil {
			s.box.Denied(s.command(&c), c.plan.Decided)
		}
		s.opts.Log.InfoContext(ctx, "refused", "command", c.plan.Original, "text", r.Text)
		return r
	}
	return s.run(ctx, &c)
}

// user is a command of the user's own.
func (s *Session) user(ctx context.Context, command string, on Events) Result {
	c := running{plan: UserPlan(command), shell: s.shell, user: true, on: on}
	c.plan.Contract = s.opts.Contract
	if s.opts.Contract != Agent {
		c.plan.Env = nil
	}
	return s.run(ctx, &c)
}

func (s *Session) takeTurn(ctx context.Context) error {
	if ctx.Err() != nil { // also if there is a turn to take
		return context.Cause(ctx)
	}
	select {
	case <-s.turn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Session) giveTurn() { s.turn <- struct{}{} }

// aborted tells whether it is the caller who has ended a call, not this program.
func aborted(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), errClosed)
}

// notBegun is the outcome of what was cancelled before it could begin.
func notBegun(ctx context.Context, err error) Outcome {
	return Outcome{Aborted: aborted(ctx), Err: &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseCancelled, Err: err}}
}

// run runs a plan by its route.
func (s *Session) run(ctx context.Context, c *running) Result {
	var o Outcome
	switch c.plan.Route {
	case Background:
		if c.plan.Contract == Modes {
			return s.modesBackground(ctx, c)
		}
		return s.startJob(ctx, c)
	case InClient:
		o = s.observedInClient(ctx, c)
	case Terminal:
		o = s.inTerminal(ctx, c)
	case Foreground, Managed:
		var job boxJob
		if o, job = s.foreground(ctx, c); job != nil {
			return s.becomeJob(ctx, c, job, o)
		}
	}
	s.bringBack(ctx)
	if c.plan.Contract == Plain {
		s.opts.Log.LogAttrs(ctx, slog.LevelInfo, "command", PlainLog(c.plan, o)...)
	}
	r := s.contract.Result(c.plan, o)
	r.Receipt = o.Run.Receipt
	return r
}

// command is what the box is asked for, shell state aside.
func (s *Session) command(c *running) sandbox.Command {
	return sandbox.Command{
		Script: c.plan.Script(c.prefix), Env: s.environment(c.plan), Dir: c.plan.Dir, Timeout: c.plan.Timeout.Duration(),
		Decided: c.plan.Decided,
	}
}

// environment is the host's variables and the contract's above them.
func (s *Session) environment(p Plan) []string {
	var all []string
	for _, kv := range s.opts.Env {
		if name, _, _ := strings.Cut(kv, "="); p.Contract != Modes || !WithheldByModes(name) {
			all = append(all, kv)
		}
	}
	return append(all, p.Env.List()...)
}

// output says what is kept of the output.
func (s *Session) output(p Plan, plain *PlainStreams) sink.Options {
	var opts sink.Options
	switch p.Contract {
	case Plain:
		opts = plain.Options()
	case Modes:
		opts = ModesOutput()
	case Agent:
		opts = AgentOutput(s.opts.Settings, p.Route)
		opts.Minimize = s.opts.Settings.Minimizer.filters(p.Command)
	}
	opts.Limit, opts.Artifact = s.opts.Limit, s.opts.Artifacts
	return opts
}

// foreground runs a command that the call waits for, unless it becomes a job.
func (s *Session) foreground(ctx context.Context, c *running) (Outcome, boxJob) {
	cmd := s.command(c)
	plain := &PlainStreams{}
	cmd.Output = s.output(c.plan, plain)
	use := s.enter(ctx, c, &cmd)
	flush := c.on.watch(&cmd, func(text string) Update { return Update{Text: text} })
	var refused error
	if c.plan.Route == Managed || s.canBeJob(c) {
		o := s.jobOptions(c)
		o.After = -1
		if c.plan.Route == Managed {
			o.After = c.plan.Wait
		}
		ask, over := s.handle(c.on.CallID)
		defer over()
		o.Request, o.Refused = ask, func(err error) { refused = err }
		cmd.Job = &o
	}
	res, err := s.box.Run(ctx, cmd)
	flush()
	o := outcomeOf(ctx, res, err)
	if c.plan.Contract == Plain {
		o.Plain = plain
	}
	if res.Job != nil {
		if c.shell != nil {
			c.shell.handedOver(c, use)
		}
		return o, res.Job
	}
	if refused != nil {
		c.plan.Notices = append(c.plan.Notices, "Not moved to the background: "+Outcome{Err: refused}.cause())
	}
	s.leave(ctx, c, use, &o)
	return o, nil
}

// outcomeOf makes an outcome of what the box says.
func outcomeOf(ctx context.Context, res sandbox.Result, err error) Outcome {
	o := Outcome{
		Reason: res.Reason, Code: res.Code, Signal: res.Signal, Elapsed: res.Elapsed, Output: res.Output,
		Err: err, Aborted: aborted(ctx),
		Run: RunInfo{CPUMs: res.CPU.Milliseconds(), MaxRSSBytes: res.MaxRSS, Background: res.Left, Killed: res.Killed},
	}
	if err == nil {
		o.Run.Receipt = res.Receipt()
	}
	return o
}

// inTerminal runs a command in a terminal of the session.
func (s *Session) inTerminal(ctx context.Context, c *running) Outcome {
	cmd := s.command(c)
	cmd.Output = s.output(c.plan, nil)
	use := s.enter(ctx, c, &cmd)
	flush := c.on.watch(&cmd, func(text string) Update { return Update{Text: text} })
	start := time.Now()
	term, err := s.box.Terminal(ctx, cmd, sandbox.TerminalOptions{Size: s.opts.Size})
	var res sandbox.Result
	if err == nil {
		if c.on.Terminal != nil {
			c.on.Terminal(term)
		}
		res, err = term.Wait()
	}
	flush()
	o := outcomeOf(ctx, res, err)
	o.Terminal = true
	if o.Elapsed == 0 {
		o.Elapsed = time.Since(start)
	}
	s.leave(ctx, c, use, &o)
	return o
}

// update tells a caller of an update.
func (on Events) update(u Update) {
	if on.Update != nil {
		on.Update(u)
	}
}

// watch has the output of a command told as it comes. The function that it returns
// waits until the last of it has been told; it must be called when the command is
// over, or was not started.
func (on Events) watch(c *sandbox.Command, as func(string) Update) (flush func()) {
	if on.Update == nil {
		return func() {}
	}
	var told chan struct{}
	c.Watch = func(out *sink.Sink) {
		sub := out.Subscribe()
		told = make(chan struct{})
		go func() { // ends with the output
			defer close(told)
			last := ""
			for u := range sub.Updates() {
				if text := u.Stdout + u.Stderr; text != last {
					last = text
					on.Update(as(text))
				}
			}
		}()
	}
	return func() {
		if told != nil {
			<-told
		}
	}
}
