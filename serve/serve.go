// Package serve offers tools to programs that run agents: over JSON-RPC on
// standard streams, and over the Model Context Protocol on standard streams or
// HTTP. It speaks the protocols; what a tool is and does is package tool's.
//
//	client ─ lines or HTTP ─ strict JSON ─ a method ─ Session ─ tool
//
// Whoever serves gives it a Host, which starts sessions. A connection has its own;
// they end with it. Nothing here knows an engine or a configuration.
package serve

import (
	"context"
	"encoding/json"

	"github.com/sandboxbash/sandboxbash/exec/screen"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
)

// Host starts sessions and finds those there are. It is called concurrently.
type Host interface {
	// Start starts a session, or opens one if the request names it.
	Start(ctx context.Context, r SessionRequest) (*Session, error)
	// List describes all sessions on the engine, whoever has started them.
	List(ctx context.Context) ([]sandbox.Info, error)
}

// SessionRequest asks for a session.
type SessionRequest struct {
	Attach   string // the id of a session that is there; "" starts one
	Shape    Shape
	Contract tool.Name
	Tools    []string            // names of the tools that the agent has
	UI       bool                // somebody can use a terminal
	Terminal tool.ClientTerminal // where commands may run instead; nil: in the session only
}

// Shape is what kind of session is to be started. What is empty is by the
// configuration. The texts are those of the command line's flags.
type Shape struct {
	Image     string  `json:"image,omitempty"`
	Profile   string  `json:"profile,omitempty"`
	Workspace string  `json:"workspace,omitempty"`
	Network   string  `json:"network,omitempty"`
	User      string  `json:"user,omitempty"`
	Memory    string  `json:"memory,omitempty"`
	Disk      string  `json:"disk,omitempty"`
	CPUs      float64 `json:"cpus,omitempty"`
	Pids      int64   `json:"pids,omitempty"`
	Runtime   string  `json:"runtime,omitempty"`
	Idle      string  `json:"idle,omitempty"` // how long it lives after this process
}

// Session is a session as it is served. Of its parts those that are nil are not
// there. They are called concurrently.
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
}

// Caller runs tools in a session: a *tool.Session. Calls end when their context
// does, soon after; what has come of them is the result.
type Caller interface {
	Definitions() []tool.Definition
	Call(ctx context.Context, name string, arguments json.RawMessage, on tool.Events) tool.Result
	// Shell runs a command of the user's own: past rules and rewriting.
	Shell(ctx context.Context, command string, on tool.Events) tool.Result
}

// News tells of jobs that have ended, and makes new ones: a *tool.Session.
type News interface {
	// Deliveries hands over what has ended until ctx does, or the session. It is
	// handed over again if hand fails.
	Deliveries(ctx context.Context, hand func(context.Context, []tool.Delivery) error) error
	// Background makes the running call of an id a job.
	Background(callID string) error
}

// Jobs of a session. An error wraps sandbox.ErrUnknownJob for one that is not there.
type Jobs interface {
	List(ctx context.Context) ([]sandbox.JobInfo, error)
	Job(ctx context.Context, id string) (Job, error)
}

// Job is one of them: a *sandbox.Job, but for its output.
type Job interface {
	jobState
	// Tail returns the end of the output, as much as fits into so many bytes.
	Tail(ctx context.Context, most int64) (string, error)
}

type jobState interface {
	Now(ctx context.Context) (sandbox.JobInfo, error)
	Wait(ctx context.Context) (sandbox.JobInfo, error)
	Kill(ctx context.Context) (sandbox.JobInfo, error)
}

// Files are the session's, for the file tools of a harness. Paths that are not
// absolute are the workspace's. Secrets are masked in what is read.
type Files interface {
	// Read returns at most so many bytes from an offset on, and whether that was all.
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

// Copies moves files between the session and this machine. They return what was
// left out.
type Copies interface {
	Push(ctx context.Context, src, dir string) (left []string, err error)
	Pull(ctx context.Context, src, dir string) (skipped []string, err error)
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

// Terminal is a *sandbox.Terminal.
type Terminal interface {
	keyboard
	looks
	process
}

type keyboard interface {
	Keys(names ...string) error
	Type(text string) error
	Paste(text string) error
}

type looks interface {
	display
	transcript
}

type display interface {
	Screen() screen.Snapshot
	Resize(ctx context.Context, size screen.Size) error
}

type transcript interface {
	Text() string
	TextFrom(from int64) (text string, begin int64)
}

type process interface {
	WaitFor(ctx context.Context, until sandbox.Until) (sandbox.Event, error)
	Kill()
	outcome
}

type outcome interface {
	Done() <-chan struct{}
	Wait() (sandbox.Result, error)
}

// Artifacts are the session's full outputs.
type Artifacts interface {
	List(ctx context.Context) ([]ArtifactInfo, error)
	// Read returns at most so many bytes of an artifact from an offset on, and
	// its size so far.
	Read(ctx context.Context, id string, from, most int64) (data []byte, size int64, err error)
}

// ArtifactInfo is what is known of one.
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
	// Release lets go of it: what runs in the foreground ends, jobs go on.
	Release(ctx context.Context) error
}

// Options of a server, whatever its protocol.
type Options struct {
	Version  string // of this program
	Contract tool.Name
	Settings tool.Settings
	Tools    []string // names of the tools that the agent has, by the configuration
	Dir      string   // where commands run unless a session says otherwise
	// TerminalTool offers the tool terminal beside those of the contract, over MCP.
	TerminalTool bool
	// ClientTerminal lets commands run in the client's own terminals, if it offers any.
	ClientTerminal bool
	Host           Host
	// Policy decides about a client's commands, given the contract and the names of
	// its agent's tools. Nil: the contract's own, by the settings.
	Policy func(contract tool.Name, tools []string) (tool.Checker, error)
	// Check answers policy/check: a script's verdict, as `sandboxbash policy check
	// --jsonl` gives it for a row. Nil: there is no such method.
	Check func(row json.RawMessage) (any, error)
	// Note is told what the owner of the server should know. It must not block.
	Note func(text string)
}

// host is what contracts may know before there is a session.
func (o Options) host(tools []string, ui bool) tool.Host {
	return tool.Host{Settings: o.Settings, Tools: tools, Dir: o.Dir, UI: ui, URLs: tool.URLs{Unknown: true}}
}

// definitions are the tools of a contract.
func (o Options) definitions(contract tool.Name, h tool.Host) ([]tool.Definition, error) {
	c, err := tool.Parse(string(contract))
	if err != nil {
		return nil, err
	}
	all := []tool.Definition{c.Definition(h)}
	if d, ok := (tool.JobTool{}).Definition(o.Settings); ok && contract == tool.Agent {
		all = append(all, d)
	}
	return all, nil
}

func (o Options) note(text string) {
	if o.Note != nil {
		o.Note(text)
	}
}
