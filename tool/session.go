package tool

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

	"github.com/sandboxbash/sandboxbash/exec/screen"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Session is one agent's use of a contract in a sandbox session: its settings,
// its jobs, and what its shell keeps from one command to the next. It is safe for
// concurrent use; under contract agent the calls of the tool bash run one at a
// time, in no certain order.
type Session struct {
	box      box
	contract Contract
	opts     SessionOptions
	policy   Checker // compiled once; nil: nothing is refused
	shell    *shellState
	places   *places
	local    *localDir // nil: there is no local://
	jobs     *jobBook
	turn     chan struct{} // holds a token while nobody has the turn

	closing context.Context //nolint:containedctx // the life of the Session, not of a call
	close   context.CancelCauseFunc
	running sync.WaitGroup

	mu     sync.Mutex
	calls  map[string]chan struct{} // guarded by mu; by CallID: closed to hand a call over
	closed bool                     // guarded by mu
}

// SessionOptions say how a contract is used. Only Settings must be given: see
// DefaultSettings.
type SessionOptions struct {
	Contract Name // "": Agent
	Settings Settings
	Tools    []string // names of the tools that the agent has
	UI       bool     // somebody can use a terminal
	NoPTY    bool     // PI_NO_PTY is "1": nobody gets one
	URLs     URLs
	Policy   Checker // nil: the contract's own, by the settings

	// Owner is whose jobs these are: other owners' are neither seen nor told. Who
	// opens the session again under the same name has them again.
	Owner string
	// Prefix is put in front of each command of the agent, with a space.
	Prefix string
	// RC is the text of a file that a shell of the user reads at its start: its
	// functions, aliases, options and PATH are there for every command. What fails
	// in it, or takes longer than 2 s, is as if it were not there.
	RC string
	// Env is variables for every command, K=V, below those that a contract sets.
	// Contract modes withholds some.
	Env []string
	// Client runs commands in terminals of the client, outside of the session; nil:
	// none. It must be given only if the host wants that: what a client says of
	// itself does not suffice.
	Client ClientTerminal
	Limit  int64 // bytes that a command may write before it is ended; 0: any number
	// Artifacts says when a command's output is kept; the zero value: where not all of
	// it is shown.
	Artifacts sink.ArtifactMode
	Secrets   *sink.Secrets // masked in what the client shows, as the engine does in the rest
	Size      screen.Size   // of terminals; 0 by 0: 80 by 24
	Log       *slog.Logger  // nil: none
}

// Events are what a caller hears of a running call. The zero value hears nothing.
// No function may block.
type Events struct {
	// CallID names the call for Background. Calls without one cannot be handed over.
	CallID string
	// Update gets the end of the output so far, at most every 50 ms, and once more at
	// the end. It is called by one goroutine at a time, and not after the call.
	Update func(Update)
	// Terminal is called when the command has been started in a terminal, with what
	// types into it and shows it. The call waits for its end.
	Terminal func(*sandbox.Terminal)
}

// Names of the tools.
const (
	bashTool = "bash"
	jobTool  = "job"
)

// Open begins a session's use of a contract. It starts nothing in the container.
// The engine that box comes from should have no policy of its own: a contract
// decides in its plan, where it can say why in its own words. The box stays the
// caller's: end it after Close.
func Open(box *sandbox.Session, o SessionOptions) (*Session, error) {
	info := box.Info()
	at := place{dir: info.Workspace.Target, home: box.Home(), host: info.Workspace.Dir}
	return open(sandboxBox(box), at, o)
}

func open(b box, at place, o SessionOptions) (*Session, error) {
	o.Contract = cmp.Or(o.Contract, Agent)
	contract, err := Parse(string(o.Contract))
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Session{box: b, contract: contract, opts: o, policy: o.Policy, turn: make(chan struct{}, 1), calls: map[string]chan struct{}{}}
	if s.policy == nil {
		own, warnings, err := NewPolicy(o.Contract, o.Settings, o.Tools)
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
	if err := o.Settings.Minimizer.check(); err != nil {
		return nil, fmt.Errorf("open contract %s: %w", o.Contract, err)
	}
	s.turn <- struct{}{}
	s.closing, s.close = context.WithCancelCause(context.Background())
	key := newKey()
	s.shell = newShellState(b, at.home, key, o)
	s.places = &places{box: b, at: at, urls: o.URLs, key: key}
	s.jobs = newJobBook()
	if o.URLs.Local != nil {
		if s.local, err = newLocalDir(b, at.home, *o.URLs.Local); err != nil {
			return nil, fmt.Errorf("open contract %s: %w", o.Contract, err)
		}
	}
	return s, nil
}

// newKey tells the files of one Session in the container from another's.
func newKey() string {
	key := make([]byte, 6)
	_, _ = rand.Read(key) // it never fails
	return hex.EncodeToString(key)
}

// allowAll decides where a contract has nothing to refuse.
type allowAll struct{}

func (allowAll) Check(policy.Input) policy.Decision { return policy.Decision{} }

// Definitions are the tools that the agent has: bash and, where the settings let
// jobs begin, job.
func (s *Session) Definitions() []Definition {
	all := []Definition{s.contract.Definition(s.host(nil))}
	if d, ok := (JobTool{}).Definition(s.opts.Settings); ok && s.opts.Contract == Agent {
		all = append(all, d)
	}
	return all
}

// host is what the contract may know, and where it gets URLs placed.
func (s *Session) host(put func(Expansion) (string, error)) Host {
	return Host{
		Settings: s.opts.Settings, Tools: s.opts.Tools, URLs: s.opts.URLs, UI: s.opts.UI, NoPTY: s.opts.NoPTY,
		Dir: s.places.at.dir, Home: s.places.at.home, Terminal: s.opts.Client != nil, Policy: s.policy, Place: put,
	}
}

// Plan is what a call of bash would run. Nothing is run or copied for it.
func (s *Session) Plan(arguments json.RawMessage) Plan {
	return s.contract.Plan(arguments, s.host(s.foresee))
}

// errClosed ends what runs when the Session is closed.
var errClosed = errors.New("the session is closed")

// Call runs a tool, bash or job, and says what the model is told. It ends when the
// command has ended, has become a job, or ctx has ended and the command with it.
func (s *Session) Call(ctx context.Context, tool string, arguments json.RawMessage, on Events) Result {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return s.failed(err)
	}
	defer done()
	switch {
	case tool == bashTool:
		return s.bash(ctx, arguments, on)
	case tool == jobTool && s.opts.Contract == Agent:
		return s.job(ctx, arguments, on)
	}
	return s.failed(refuse("Unknown tool: %s", tool))
}

// Shell runs a command that the user has given, not the agent: past rules,
// rewriting, URLs and the prefix. It neither waits for a call of the agent nor keeps
// one waiting. It sees what the agent's shell has kept; what it exports is kept too,
// unless a call of the agent has run at the same time.
func (s *Session) Shell(ctx context.Context, command string, on Events) Result {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return s.failed(err)
	}
	defer done()
	return s.user(ctx, command, on)
}

// begin notes a call, which ends with the Session at the latest.
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

// failed is the result of a call that does not come to a plan.
func (s *Session) failed(err error) Result {
	if s.opts.Contract == Plain {
		return plainError(err.Error())
	}
	r := Result{Text: err.Error(), IsError: true}
	if s.opts.Contract == Agent {
		r.Thrown = ToolError
	}
	return r
}

// ErrNoCall is returned for a call that is not running, or that cannot become a
// job.
var ErrNoCall = errors.New("no such call is running that could become a job")

// Background makes the running call of an id a job: the call returns with the
// text that says so. What has just ended by itself does not, and is no error. The
// settings must let jobs begin.
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

// Close ends the calls that run, as the end of their contexts would, and waits for
// them as long as ctx does. Jobs go on. It is an error only that ctx ended first.
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
