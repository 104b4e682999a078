package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/sandboxbash/sandboxbash/network"
)

// Config is the configuration of one process. It does not change after Load.
type Config struct {
	File string // the file that was read; "" if none was

	Color     string // "auto", "always" or "never"
	Engine    string
	Image     string // "": the default image
	Profile   string
	Network   string
	Runtime   string
	User      string // "UID[:GID]", or ""
	UserName  string
	Workspace string
	Mounts    []string // DIR:PATH[:ro]
	Caches    []string // NAME:PATH[:ro]
	Cache     Cache
	Limits    Limits
	Session   Session
	Keep      Keep

	Shell   string
	Timeout time.Duration // positive
	Grace   time.Duration // positive
	Run     Run
	Job     Job
	Env     Env
	Secrets []Secret

	Output    Output
	Report    Report
	Build     Build
	Artifacts Artifacts
	Policy    Policy

	NetworkRules NetworkRules

	PTY     PTY
	Agent   Agent
	Serve   Serve
	Audit   Audit
	Metrics Metrics
	Log     Log

	CI       string // CI runner whose commands are neutralised: "auto", a name, or "none"
	JSON     bool
	Quiet    bool
	ExitCode bool // of session diff
	All      bool // of image rm
}

// Limits are those of a session. A zero field stands for the profile's default.
type Limits struct {
	Memory int64 // bytes
	CPUs   float64
	Pids   int64
	Disk   int64 // bytes
	Home   int64 // bytes
	Tmp    int64 // bytes
}

// Cache holds per-call settings of the cache commands.
type Cache struct {
	UnusedFor time.Duration
}

// Session says how long sessions live and what is prepared for them.
type Session struct {
	ID   string // a reference: an id, a name or a part of one
	Name string
	Idle time.Duration // at least a second, or 0 for no end
	For  time.Duration // of session keep
	// HomeInside puts the home into the workspace.
	HomeInside bool
	// ImageEnv gives commands the variables of the image's ENV.
	ImageEnv bool
	Warm     int
	Ahead    int
}

// Keep says which workspaces of sessions that have ended by themselves are kept.
// If any field is 0, none is kept.
type Keep struct {
	For   time.Duration
	Count int
	Disk  int64 // bytes
}

// Run holds per-call settings of run and session exec.
type Run struct {
	Dir             string
	Stdin           bool
	NoStdin         bool // the command reads nothing
	Exclusive       bool
	Background      bool
	BackgroundAfter time.Duration // 0: never
	Script          string        // of --command
	File            string
	Preview         bool
	Merge           bool
}

// Job holds per-call settings of the job commands.
type Job struct {
	Follow bool
}

// Env says which environment variables commands get.
type Env struct {
	Pass []string // names of variables of this process's environment
	Set  []string // K=V; those of env.unsafe come last
}

// From says where a secret's value comes from.
type From string

// Sources of a secret.
const (
	FromEnv     From = "env"     // Source is a variable's name
	FromFile    From = "file"    // Source is an absolute path
	FromCommand From = "command" // Source is a command line for the system's shell
)

// In says where in a request a secret may be.
type In string

// Parts of a request that may hold a secret.
const (
	InHeader In = "header" // and nowhere else; the default
	InQuery  In = "query"  // or in a header
)

// Secret names a value that is masked in all output.
type Secret struct {
	Name   string `mapstructure:"name"`
	From   From   `mapstructure:"from"`
	Source string `mapstructure:"source"` // never ""
	Inject bool   `mapstructure:"inject"` // commands get the value as the variable Name

	// Hosts are the requests that get the value. Commands then have a placeholder as the
	// variable Name. HostsText holds them as they were given.
	Hosts     []network.Rule `mapstructure:"-"`
	HostsText []string       `mapstructure:"hosts"`
	In        In             `mapstructure:"in"` // where it is put besides headers
}

// Output bounds a command's output.
type Output struct {
	Limit  int64 // bytes; 0: no limit
	Window int64 // bytes of each stream in a JSON result
}

// Report names the files that single commands are reported to; "" is none.
type Report struct {
	JUnit   string
	Name    string // of the case in JUnit; "": the script's first line
	Summary string // "auto": the file that the CI runner names
}

// Build says how images are built.
type Build struct {
	Base    string   // "": the Dockerfile's own
	Args    []string // NAME=VALUE
	Network string   // "engine" (the engine's default), "host" or "none"
	Add     []string // tools that the image host gets
}

// Artifacts says which outputs are kept. Sizes are in bytes.
type Artifacts struct {
	Dir        string // "": the default
	Mode       string
	Retention  time.Duration
	Max        int64
	SessionMax int64
	TotalMax   int64
	Bytes      string // a range
	Lines      string // a range
}

// Policy says which scripts may run.
type Policy struct {
	Contract    string
	JSONL       bool     // read many scripts from standard input
	Checks      []string // nil: those of the contract
	Sets        []string
	Mode        string
	Strict      bool
	Interceptor bool
	Match       string
	Tools       []string
	Rules       []Rule // nil: the default rules
}

// Rule is a rule of the interceptor.
type Rule struct {
	ID      string `mapstructure:"id"` // may be ""
	Pattern string `mapstructure:"pattern"`
	Flags   string `mapstructure:"flags"`
	Tool    string `mapstructure:"tool"`
	Message string `mapstructure:"message"`
}

// Error says what is wrong with one setting, and where its value comes from. It
// never holds the value of a list or of a secret.
type Error struct {
	Key    string // "" for a per-call setting
	Origin string // the flag, variable or file
	Text   string // what is wrong
	Hint   string // what is accepted
	Help   Help   // a hint as a code, if a command line can word it better than Hint
}

// Help is a code for a hint that names commands, which this package does not know.
type Help string

// Helps.
const (
	HelpUnsafe Help = "unsafe" // set the variable knowingly, among those of env.unsafe
	HelpValue  Help = "value"  // the same, with its value
	HelpPair   Help = "pair"   // give both a certificate and its key
	HelpHead   Help = "head"   // the hash that a verification of the audit log has printed
)

func (e *Error) Error() string {
	where := e.Origin
	if e.Key != "" {
		where = fmt.Sprintf("%s (from %s)", e.Key, e.Origin)
	}
	text := where + ": " + e.Text
	if e.Hint != "" {
		text += ": " + e.Hint
	}
	return text
}

// build makes the configuration of what the sources give. Its error joins all faults.
func (r *reader) build(c *Config, all []Setting) (*Config, error) {
	for _, s := range all {
		r.fill(s)
	}
	c.File = r.file
	c.Engine = r.engine(c.Engine)
	c.Workspace = r.workspace(c.Workspace)
	c.Mounts = r.mounts(c.Mounts)
	c.Secrets = r.secrets()
	r.completePolicy(&c.Policy)
	r.completeNetwork(&c.NetworkRules)
	r.checkAgent(&c.Agent, c.Policy)
	r.checkServe(c.Serve)
	r.checkAudit(&c.Audit)
	r.validate(c)
	if len(r.errs) > 0 {
		return nil, errors.Join(r.errs...)
	}
	return c, nil
}

// Bounds of single settings, in addition to those of their kind.
const (
	maxWindow = 64 << 20 // bytes, kept in memory for each stream
	maxWarm   = 64       // sessions
	maxAhead  = 8        // runners; a session has no more
)

func (r *reader) validate(c *Config) {
	positive := func(key string, d time.Duration) {
		if d <= 0 {
			r.bad(key, "it must be more than 0", "give a duration such as 30s; there is no longest one")
		}
	}
	positive("timeout", c.Timeout)
	positive("grace", c.Grace)
	positive("artifacts.retention", c.Artifacts.Retention)
	positive("network.ask-timeout", c.NetworkRules.AskTime)
	if c.Session.Idle < time.Second && c.Session.Idle != 0 {
		r.bad("session.idle", "it must be at least 1s, or 0 for no end", "")
	}
	if c.Output.Window < 1 || c.Output.Window > maxWindow {
		r.bad("output.window", "it must be between 1 byte and 64m", "")
	}
	if c.Session.Warm > maxWarm {
		r.bad("session.warm", fmt.Sprintf("it must be at most %d", maxWarm), "")
	}
	if c.Session.Ahead > maxAhead {
		r.bad("session.ahead", fmt.Sprintf("it must be at most %d", maxAhead), "")
	}
	for key, n := range map[string]int64{
		"artifacts.max": c.Artifacts.Max, "artifacts.session-max": c.Artifacts.SessionMax, "artifacts.total-max": c.Artifacts.TotalMax,
	} {
		if n <= 0 {
			r.bad(key, "it must be more than 0", "to keep nothing set artifacts.mode to never")
		}
	}
	r.validateEnv(c)
}
