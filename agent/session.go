// Package agent runs the tool calls of one agent in a sandbox session. It asks a
// contract of package tool for a plan, runs the plan, and lets the contract word the
// result. Between calls it keeps the shell's exported variables and functions, jobs
// and their deliveries, and the files that URLs stand for.
//
//	arguments ─ Session.Call ─ tool.Plan ─ run ─ tool.Outcome ─ tool.Result
//
// A plan has one route: the foreground, a job, a terminal of the session, or the
// client's own terminal. Calls of contract agent take turns; those of the user do not.
package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
	"github.com/sandboxbash/sandboxbash/tool"
)

// Session is one agent's use of a contract in a sandbox session: its settings,
// its jobs, and what its shell keeps from one command to the next. It is safe for
// concurrent use. Under contract agent the calls of the tool bash run one at a time,
// in an order that is not defined.
type Session struct {
	sandbox  sandboxSession
	contract tool.Contract
	opts     SessionOptions
	policy   policy.Checker // compiled once; nil: nothing is refused
	shell    *shellState
	places   *urlFiles
	local    *localDir // nil: there is no local://
	jobs     *jobBook
	turn     chan struct{} // holds a token while no call has the turn

	closing context.Context //nolint:containedctx // the life of the Session, not of a call
	close   context.CancelCauseFunc
	running sync.WaitGroup

	mu     sync.Mutex
	calls  map[string]chan struct{} // guarded by mu; by CallID: closed to hand a call over
	closed bool                     // guarded by mu
}

// SessionOptions say how a contract is used. Only Settings are required: see
// tool.DefaultSettings.
type SessionOptions struct {
	Contract tool.Name // "": Agent
	Settings tool.Settings
	Tools    []string // names of the tools that the agent has
	UI       bool     // there is a user who can use a terminal
	NoPTY    bool     // PI_NO_PTY is "1": commands get no terminal
	URLs     tool.URLs
	Policy   policy.Checker // nil: the contract's own, by the settings

	// Owner owns the jobs of this Session. Jobs of other owners are neither listed nor
	// delivered. A later Session with the same Owner has the jobs again.
	Owner string
	// Prefix is put in front of each command of the agent, with a space.
	Prefix string
	// RC is the text of a file that the user's shells read at their start. Every command
	// has its functions, aliases, options and PATH. It has no effect if it fails or
	// takes longer than 2 s.
	RC string
	// Env holds variables for every command, as K=V. Those that a contract sets override
	// them, and contract modes withholds some.
	Env []string
	// Client runs commands in terminals of the client, outside of the session; nil: all
	// commands run in the session. Set it only if the host wants that: it is not enough
	// that a client offers it.
	Client ClientTerminal
	Limit  int64 // bytes that a command may write before it is ended; 0: any number
	// Artifacts says when a command's output is kept. The zero value keeps it if not all
	// of it is shown.
	Artifacts sink.ArtifactMode
	Secrets   *sink.Secrets // masked in the output of the client's terminals; the engine masks the rest
	Size      screen.Size   // of terminals; 0 by 0: 80 by 24
	Log       *slog.Logger  // nil: none
}

// Events are a caller's functions for news about a running call. Each may be nil, and
// none may block.
type Events struct {
	// CallID names the call for Background. A call without one cannot become a job.
	CallID string
	// Update gets the end of the output so far, at most every 50 ms, and once more at
	// the end. It is called by one goroutine at a time, and not after the call.
	Update func(tool.Update)
	// Terminal is called with the terminal when the command has started in one. The call
	// waits for the command's end.
	Terminal func(*sandbox.Terminal)
}

// Open returns a Session that uses a contract in s. It starts nothing in the container.
// The engine of s should not have a policy: the contract asks its own, and words the
// refusal. The caller still owns s, and must end it after Close.
func Open(s *sandbox.Session, o SessionOptions) (*Session, error) {
	info := s.Info()
	at := directories{dir: info.Workspace.Target, home: s.Home(), host: info.Workspace.Dir}
	return open(adapter{s}, at, o)
}

func open(b sandboxSession, at directories, o SessionOptions) (*Session, error) {
	o.Contract = cmp.Or(o.Contract, tool.Agent)
	contract, err := tool.Parse(string(o.Contract))
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Session{sandbox: b, contract: contract, opts: o, policy: o.Policy, turn: make(chan struct{}, 1), calls: map[string]chan struct{}{}}
	if s.policy == nil {
		own, warnings, err := tool.NewPolicy(o.Contract, o.Settings, o.Tools)
		if err != nil {
			return nil, fmt.Errorf("open contract %s: %w", o.Contract, err)
		}
		for _, w := range warnings {
			o.Log.Warn("policy", "warning", w.Text)
		}
		if own != nil {
			s.policy = own
		} else {
			s.policy = allowAll{}
		}
	}
	if err := checkMinimizer(o.Settings.Minimizer); err != nil {
		return nil, fmt.Errorf("open contract %s: %w", o.Contract, err)
	}
	s.turn <- struct{}{}
	s.closing, s.close = context.WithCancelCause(context.Background())
	key := newKey()
	s.shell = newShellState(b, at.home, key, o)
	s.places = &urlFiles{sandbox: b, at: at, urls: o.URLs, key: key}
	s.jobs = newJobBook()
	if o.URLs.Local != nil {
		if s.local, err = newLocalDir(b, at.home, *o.URLs.Local); err != nil {
			return nil, fmt.Errorf("open contract %s: %w", o.Contract, err)
		}
	}
	return s, nil
}

// newKey returns a random name for the files of a Session in the container.
func newKey() string {
	key := make([]byte, 6)
	_, _ = rand.Read(key) // it never fails
	return hex.EncodeToString(key)
}

// allowAll is the policy if a contract has nothing to refuse.
type allowAll struct{}

func (allowAll) Check(policy.Input) policy.Decision { return policy.Decision{} }

// Definitions returns the agent's tools: bash and, if the settings allow jobs, job.
func (s *Session) Definitions() []tool.Definition {
	all, _ := tool.Definitions(s.opts.Contract, s.host(nil)) // open has parsed the contract
	return all
}

// host returns what the contract may know. put places what URLs stand for.
func (s *Session) host(put func(tool.Expansion) (string, error)) tool.Host {
	return tool.Host{
		Settings: s.opts.Settings, Tools: s.opts.Tools, URLs: s.opts.URLs, UI: s.opts.UI, NoPTY: s.opts.NoPTY,
		Dir: s.places.at.dir, Home: s.places.at.home, Terminal: s.opts.Client != nil, Policy: s.policy, Place: put,
	}
}

// Plan returns what a call of bash would run. It runs and copies nothing.
func (s *Session) Plan(arguments json.RawMessage) tool.Plan {
	return s.contract.Plan(arguments, s.host(s.foresee))
}

// errClosed is the cause of calls that end because the Session is closed.
var errClosed = errors.New("the session is closed")

// Call runs a tool, bash or job, and returns the result for the model. It returns when
// the command has ended or become a job. When ctx ends, the command is ended.
func (s *Session) Call(ctx context.Context, name string, arguments json.RawMessage, on Events) tool.Result {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return s.failed(err)
	}
	defer done()
	switch {
	case name == tool.BashName:
		return s.bash(ctx, arguments, on)
	case name == tool.JobName && s.opts.Contract == tool.Agent:
		return s.job(ctx, arguments, on)
	}
	return s.failed(tool.Refusef("Unknown tool: %s", name))
}

// Shell runs a command of the user, not of the agent: without rules, rewriting, URLs
// and the prefix. It runs in parallel with calls of the agent. It has the state of the
// agent's shell, and its own exports are kept unless a call of the agent has run at the
// same time.
func (s *Session) Shell(ctx context.Context, command string, on Events) tool.Result {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return s.failed(err)
	}
	defer done()
	return s.user(ctx, command, on)
}

// begin registers a call. Its context ends with the Session at the latest.
func (s *Session) begin(ctx context.Context) (context.Context, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, errClosed
	}
	s.running.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.closing, func() { cancel(errClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		s.running.Done()
	}, nil
}

// failed returns the result of a call that fails before there is a plan.
func (s *Session) failed(err error) tool.Result {
	if s.opts.Contract == tool.Plain {
		return tool.PlainError(err.Error())
	}
	r := tool.Result{Text: err.Error(), IsError: true}
	if s.opts.Contract == tool.Agent {
		r.Thrown = tool.ToolError
	}
	return r
}

// ErrNoCall is returned for a call that is not running, or that cannot become a
// job.
var ErrNoCall = errors.New("no such call is running that could become a job")

// Background makes the running call of an id a job: the call returns with a text that
// says so. If the command has just ended by itself, Background has no effect and
// returns nil. The settings must allow jobs.
func (s *Session) Background(callID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ask, ok := s.calls[callID]
	if !ok {
		return fmt.Errorf("call %q: %w", callID, ErrNoCall)
	}
	delete(s.calls, callID) // once is enough
	close(ask)
	return nil
}

// Close ends the calls that run, as the end of their contexts would, and waits for them. Jobs go
// on. It returns an error only if ctx ends first.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.close(errClosed)
	over := make(chan struct{})
	go func() { // ends with the last call
		defer close(over)
		s.running.Wait()
	}()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
