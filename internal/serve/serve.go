// Package serve serves tools to programs that run agents: over JSON-RPC on standard
// streams, and over the Model Context Protocol on standard streams or HTTP. It
// implements the protocols; packages tool and agent implement the tools.
//
//	client ─ lines or HTTP ─ strict JSON ─ a method ─ Session ─ tool
//
// A server needs a Host, which starts sessions. Each connection has its own sessions,
// which end with it. Nothing here knows an engine or a configuration.
package serve

import (
	"context"
	"encoding/json"

	"github.com/sandboxbash/sandboxbash/agent"
	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
)

// Host starts and lists sessions. Its methods are called concurrently.
type Host interface {
	// Start starts a session, or opens one if the request names it.
	Start(ctx context.Context, r SessionRequest) (*Session, error)
	// List describes all sessions on the engine, also those of other programs.
	List(ctx context.Context) ([]sandbox.Info, error)
}

// SessionRequest asks for a session.
type SessionRequest struct {
	Attach   string // the id of a running session; "" starts a new one
	Shape    Shape
	Contract tool.Name
	Tools    []string             // names of the tools that the agent has
	UI       bool                 // there is a user who can use a terminal
	Terminal agent.ClientTerminal // where commands may run instead; nil: in the session only
	// Ask asks the client's user what the session may reach that no rule allows; nil: nothing is asked.
	Ask func(context.Context, sandbox.NetworkQuestion) sandbox.NetworkAnswer
}

// Shape says what kind of session to start. The configuration decides about empty
// fields. The texts have the form of the command line's flags.
type Shape struct {
	Image     string  `json:"image,omitempty"`
	Profile   string  `json:"profile,omitempty"`
	Workspace string  `json:"workspace,omitempty"`
	Network   string  `json:"network,omitempty"`
	User      string  `json:"user,omitempty"`
	Memory    string  `json:"memory,omitempty"`
	Disk      string  `json:"disk,omitempty"`
	Home      string  `json:"home,omitempty"`
	Tmp       string  `json:"tmp,omitempty"`
	CPUs      float64 `json:"cpus,omitempty"`
	Pids      int64   `json:"pids,omitempty"`
	Runtime   string  `json:"runtime,omitempty"`
	Idle      string  `json:"idle,omitempty"` // how long it lives after this process
}

// Session is a session with its parts. A session does not have the parts that are nil.
// Their methods are called concurrently.
type Session struct {
	ID        string
	Caller    Caller
	News      News
	Jobs      Jobs
	Files     Files
	Copies    Copies
	Terminals Terminals
	Artifacts Artifacts
	Lifetime  Lifetime
	Network   Network
	Proposals Proposals
	// HeldNetwork has another process do a method network/*, the one that carries the session's
	// connections; nil: there is none.
	HeldNetwork func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error)
}

// Proposals asks the user for rules that the agent proposes: a *sandbox.Session.
type Proposals interface {
	ProposeNetwork(ctx context.Context, rule, reason string) (sandbox.NetworkDecision, error)
}

// Caller runs tools in a session: a *agent.Session. A call ends soon after its context,
// and returns a result even then.
type Caller interface {
	Definitions() []tool.Definition
	Call(ctx context.Context, name string, arguments json.RawMessage, on agent.Events) tool.Result
	// Shell runs a command of the user, without rules and rewriting.
	Shell(ctx context.Context, command string, on agent.Events) tool.Result
}

// News reports jobs that have ended, and makes new ones: a *agent.Session.
type News interface {
	// Deliveries passes jobs that have ended to hand until ctx or the session ends. If
	// hand fails it gets the same jobs again.
	Deliveries(ctx context.Context, hand func(context.Context, []tool.Delivery) error) error
	// Background makes the running call of an id a job.
	Background(callID string) error
}

// Jobs of a session. The error for an unknown job wraps sandbox.ErrUnknownJob.
type Jobs interface {
	List(ctx context.Context) ([]sandbox.JobInfo, error)
	Job(ctx context.Context, id string) (Job, error)
	// Kill is a *sandbox.Session's KillJob.
	Kill(ctx context.Context, id string) (sandbox.JobInfo, error)
}

// Job is a *sandbox.Job, except for its output.
type Job interface {
	Now(ctx context.Context) (sandbox.JobInfo, error)
	Wait(ctx context.Context) (sandbox.JobInfo, error)
	// Tail returns the end of the output, at most so many bytes.
	Tail(ctx context.Context, most int64) (string, error)
}

// Files are the files of a session, for the file tools of a harness. Relative paths are
// below the workspace. Secrets are masked in what is read.
type Files interface {
	// Read returns at most so many bytes from an offset on, and whether the file ends there.
	Read(ctx context.Context, path string, from, most int64) (data []byte, end bool, err error)
	// Write replaces or makes a file, and the directories that it needs.
	Write(ctx context.Context, path string, data []byte) error
	List(ctx context.Context, path string) ([]FileInfo, error)
}

// FileInfo is an entry of a directory.
type FileInfo struct {
	Name string `json:"name"`
	Type string `json:"type"` // "file", "directory", "link" or "other"
	Size int64  `json:"size"`
	Mode string `json:"mode"` // permissions, octal
}

// Copies copies files between the session and this machine. Push returns the files that
// it has left out, and Pull a report.
type Copies interface {
	Push(ctx context.Context, src, dir string) (left []string, err error)
	Pull(ctx context.Context, src, to string, o sandbox.PullOptions) (sandbox.Pulled, error)
}

// Terminals opens terminals in a session.
type Terminals interface {
	Open(ctx context.Context, r TerminalRequest) (Terminal, error)
}

// TerminalRequest asks for a command on a terminal. The terminal ends with the
// context that it was opened with.
type TerminalRequest struct {
	Command        string            `json:"command"`
	Cwd            string            `json:"cwd"`
	Env            map[string]string `json:"env"`
	TimeoutSeconds float64           `json:"timeoutSeconds"` // 0: none
	Cols           int               `json:"cols"`
	Rows           int               `json:"rows"`
}

// Terminal is a *sandbox.Terminal, which documents the methods.
type Terminal interface {
	Keys(names ...string) error
	Type(text string) error
	Paste(text string) error
	Screen() screen.Snapshot
	Resize(ctx context.Context, size screen.Size) error
	Text() string
	TextFrom(from int64) (text string, begin int64)
	WaitFor(ctx context.Context, until sandbox.Until) (sandbox.Event, error)
	Kill()
	Done() <-chan struct{}
	Wait() (sandbox.Result, error)
}

// Artifacts are the full outputs of a session's commands.
type Artifacts interface {
	List(ctx context.Context) ([]ArtifactInfo, error)
	// Read returns at most so many bytes of an artifact from an offset on, and
	// its size so far.
	Read(ctx context.Context, id string, from, most int64) (data []byte, size int64, err error)
}

// ArtifactInfo describes an artifact.
type ArtifactInfo struct {
	ID       string `json:"id"`
	Bytes    int64  `json:"bytes"`
	Complete bool   `json:"complete"`
}

// Lifetime of a session.
type Lifetime interface {
	Info(ctx context.Context) (sandbox.Info, error)
	// Stop ends the session, and removes it.
	Stop(ctx context.Context) error
	// Leave ends the session because its client has gone. It describes the session if its
	// workspace is kept; nil: nothing is kept.
	Leave(ctx context.Context) (kept *sandbox.Info, err error)
	// Release gives the session up: foreground commands end, jobs go on.
	Release(ctx context.Context) error
}

// Options of a server of either protocol.
type Options struct {
	Version  string // of this program
	Contract tool.Name
	Settings tool.Settings
	Tools    []string // names of the tools that the agent has, by the configuration
	Dir      string   // where commands run unless a session says otherwise
	// TerminalTool offers the tool terminal over MCP, in addition to the contract's tools.
	TerminalTool bool
	// ClientTerminal lets commands run in the client's own terminals, if it offers any.
	ClientTerminal bool
	// AskNetwork asks MCP clients that can be asked (elicitation) what their sessions may reach, and offers the
	// tool network_propose over MCP.
	AskNetwork bool
	Host       Host
	// Policy decides about a client's commands, given the contract and the names of
	// its agent's tools. Nil: the contract's own, by the settings.
	Policy func(contract tool.Name, tools []string) (policy.Checker, error)
	// Check answers policy/check: a script's verdict, as `sandboxbash policy check
	// --jsonl` gives it for a row. Nil: there is no such method.
	Check func(row json.RawMessage) (any, error)
	// Mask masks the secrets in a message or another text for a client over HTTP; nil
	// masks none. The owner of a stream masks what is written to it.
	Mask func(message []byte) []byte
	// Note is called with messages for the owner of the server. It must not block.
	Note func(text string)
	// Kept is called with each session that has ended with its client, or by itself, and
	// whose workspace is kept. It must not block.
	Kept func(sandbox.Info)
}

// host returns what contracts may know before there is a session.
func (o Options) host(tools []string, ui bool) tool.Host {
	return tool.Host{Settings: o.Settings, Tools: tools, Dir: o.Dir, UI: ui, URLs: tool.URLs{Unknown: true}}
}

func (o Options) note(text string) {
	if o.Note != nil {
		o.Note(text)
	}
}
