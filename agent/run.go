package agent

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
	"github.com/sandboxbash/sandboxbash/tool"
)

// running is a call of bash, or a command of the user.
type running struct {
	plan   tool.Plan
	prefix string
	shell  *shellState // the state that it shares with earlier and later commands
	user   bool        // it is the user's: commands of the agent have precedence in writing the state
	on     Events
}

// bash handles a call of the tool bash: it makes a plan and runs it.
func (s *Session) bash(ctx context.Context, arguments json.RawMessage, on Events) tool.Result {
	c := running{prefix: s.opts.Prefix, shell: s.shell, on: on}
	if s.opts.Contract == tool.Agent {
		if err := s.takeTurn(ctx); err != nil {
			return s.contract.Result(tool.Plan{Contract: tool.Agent}, notBegun(ctx, err))
		}
		defer s.giveTurn()
	}
	c.plan = s.contract.Plan(arguments, s.host(func(e tool.Expansion) (string, error) { return s.put(ctx, e) }))
	if r, refused := c.plan.Refused(); refused {
		if c.plan.Denial != nil {
			s.sandbox.Denied(s.command(&c), c.plan.Decided)
		}
		s.opts.Log.InfoContext(ctx, "refused", "command", c.plan.Original, "text", r.Text)
		return r
	}
	return s.run(ctx, &c)
}

// user runs a command of the user.
func (s *Session) user(ctx context.Context, command string, on Events) tool.Result {
	c := running{plan: tool.UserPlan(command), shell: s.shell, user: true, on: on}
	c.plan.Contract = s.opts.Contract
	if s.opts.Contract != tool.Agent {
		c.plan.Env = nil
	}
	return s.run(ctx, &c)
}

func (s *Session) takeTurn(ctx context.Context) error {
	if ctx.Err() != nil { // select may take the turn although ctx has ended
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

// aborted reports whether the caller has ended a call, not this program.
func aborted(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), errClosed)
}

// notBegun is the outcome of a call that was cancelled before it began.
func notBegun(ctx context.Context, err error) tool.Outcome {
	return tool.Outcome{Aborted: aborted(ctx), Err: &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseCancelled, Err: err}}
}

// run runs a plan by its route.
func (s *Session) run(ctx context.Context, c *running) tool.Result {
	var o tool.Outcome
	switch c.plan.Route {
	case tool.Background:
		if c.plan.Contract == tool.Modes {
			return s.modesBackground(ctx, c)
		}
		return s.startJob(ctx, c)
	case tool.InClient:
		o = s.observedInClient(ctx, c)
	case tool.Terminal:
		o = s.inTerminal(ctx, c)
	case tool.Foreground, tool.Managed:
		var job sandboxJob
		if o, job = s.foreground(ctx, c); job != nil {
			return s.becomeJob(ctx, c, job, o)
		}
	}
	s.bringBack(ctx)
	if c.plan.Contract == tool.Plain {
		s.opts.Log.LogAttrs(ctx, slog.LevelInfo, "command", tool.PlainLog(c.plan, o)...)
	}
	r := s.contract.Result(c.plan, o)
	r.Receipt = o.Run.Receipt
	return r
}

// command returns the command for the sandbox session, without the shell's state.
func (s *Session) command(c *running) sandbox.Command {
	return sandbox.Command{
		Script: c.plan.Script(c.prefix), Env: s.environment(c.plan), Dir: c.plan.Dir, Timeout: c.plan.Timeout.Duration(),
		Decided: c.plan.Decided,
	}
}

// environment returns the host's variables, overridden by the contract's.
func (s *Session) environment(p tool.Plan) []string {
	var all []string
	for _, kv := range s.opts.Env {
		if name, _, _ := strings.Cut(kv, "="); p.Contract != tool.Modes || !tool.WithheldByModes(name) {
			all = append(all, kv)
		}
	}
	return append(all, p.Env.List()...)
}

// output returns the options for the output of a plan.
func (s *Session) output(p tool.Plan, plain *tool.PlainStreams) sink.Options {
	var opts sink.Options
	switch p.Contract {
	case tool.Plain:
		opts = plain.Options()
	case tool.Modes:
		opts = tool.ModesOutput()
	case tool.Agent:
		opts = tool.AgentOutput(s.opts.Settings, p.Route)
		opts.Minimize = filters(s.opts.Settings.Minimizer, p.Command)
	}
	opts.Limit, opts.Artifact = s.opts.Limit, s.opts.Artifacts
	return opts
}

// foreground runs a command that the call waits for, unless it becomes a job.
func (s *Session) foreground(ctx context.Context, c *running) (tool.Outcome, sandboxJob) {
	cmd := s.command(c)
	plain := &tool.PlainStreams{}
	cmd.Output = s.output(c.plan, plain)
	use := s.enter(ctx, c, &cmd)
	flush := c.on.watch(&cmd, func(text string) tool.Update { return tool.Update{Text: text} })
	var refused error
	if c.plan.Route == tool.Managed || s.canBeJob(c) {
		o := s.jobOptions(c)
		o.After = -1
		if c.plan.Route == tool.Managed {
			o.After = c.plan.Wait
		}
		ask, over := s.handle(c.on.CallID)
		defer over()
		o.Request, o.Refused = ask, func(err error) { refused = err }
		cmd.Job = &o
	}
	res, err := s.sandbox.Run(ctx, cmd)
	flush()
	o := outcomeOf(ctx, res, err)
	if c.plan.Contract == tool.Plain {
		o.Plain = plain
	}
	if res.Job != nil {
		if c.shell != nil {
			c.shell.handOver(c, use)
		}
		return o, res.Job
	}
	if refused != nil {
		c.plan.Notices = append(c.plan.Notices, "Not moved to the background: "+tool.Outcome{Err: refused}.Cause())
	}
	s.leave(ctx, c, use, &o)
	return o, nil
}

// outcomeOf makes an outcome of the sandbox session's result.
func outcomeOf(ctx context.Context, res sandbox.Result, err error) tool.Outcome {
	o := tool.Outcome{
		Reason: res.Reason, Code: res.Code, Signal: res.Signal, Elapsed: res.Elapsed, Output: res.Output,
		Err: err, Aborted: aborted(ctx),
		Run: tool.RunInfo{CPUMs: res.CPU.Milliseconds(), MaxRSSBytes: res.MaxRSS, Background: res.Left, Killed: res.Killed, Full: res.Full, Network: res.Network, Offline: res.Offline},
	}
	if err == nil {
		o.Run.Receipt = res.Receipt()
	}
	return o
}

// inTerminal runs a command in a terminal of the session.
func (s *Session) inTerminal(ctx context.Context, c *running) tool.Outcome {
	cmd := s.command(c)
	cmd.Output = s.output(c.plan, nil)
	use := s.enter(ctx, c, &cmd)
	flush := c.on.watch(&cmd, func(text string) tool.Update { return tool.Update{Text: text} })
	start := time.Now()
	term, err := s.sandbox.Terminal(ctx, cmd, sandbox.TerminalOptions{Size: s.opts.Size})
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

// update passes an update to the caller.
func (on Events) update(u tool.Update) {
	if on.Update != nil {
		on.Update(u)
	}
}

// watch makes a command send its output as updates. flush waits until the last update
// has been sent; it must be called when the command has ended, or was not started.
func (on Events) watch(c *sandbox.Command, as func(string) tool.Update) (flush func()) {
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
