package config

import (
	"fmt"
	"slices"
	"time"
)

// Agent is how agents use the tools that a server offers.
type Agent struct {
	Contract            string // "agent", "plain" or "modes"
	ToolNames           []string
	Interceptor         bool
	ClientTerminal      bool
	TerminalTool        bool
	Async               bool
	MaxJobs             int // at least 1
	PollWait            string
	AutoBackground      bool
	AutoBackgroundAfter time.Duration
	StripHeadTail       bool
	ExtractHeadTail     bool
	Minimizer           bool
	MinimizerOnly       []string
	MinimizerExcept     []string
	Window              int64         // bytes
	Head                int64         // bytes
	MaxTimeout          time.Duration // 0: none
	Prefix              string
	RC                  string   // a file; "" is none
	Skills              []string // directories that hold skills
	Rules               []string // files
	Memory              string   // a directory; "" is none
}

// Serve is how a server is reached.
type Serve struct {
	HTTP      string // an address; "" is standard input and output
	TLSCert   string
	TLSKey    string
	TokenFile string
	Hosts     []string
	Log       bool
}

// agentSettings steer what agents are offered.
func agentSettings(c *Config) []Setting {
	return []Setting{
		{Key: "agent.toolNames", to: &c.Agent.ToolNames, Flag: "tool-name", Kind: List, Holder: "NAME", Usage: "name of another tool that the agent has; may be repeated (default: policy.tools)"},
		{Key: "agent.interceptor", to: &c.Agent.Interceptor, Kind: Switch, Default: "false", Usage: "check the agent's commands against the interceptor's rules, as policy.interceptor does"},
		{Key: "agent.clientTerminal", to: &c.Agent.ClientTerminal, Kind: Switch, Default: "false", Usage: "run commands outside the session, in the client's own terminals, if the client offers them"},
		{Key: "agent.terminalTool", to: &c.Agent.TerminalTool, Kind: Switch, Default: "true", Usage: "offer the tool terminal over MCP"},
		{Key: "agent.async", to: &c.Agent.Async, Kind: Switch, Default: "false", Usage: "let the agent start background jobs"},
		{Key: "agent.maxJobs", to: &c.Agent.MaxJobs, Kind: Count, Default: "100", Usage: "background jobs that may run at once, 1 to 100"},
		{Key: "agent.pollWait", to: &c.Agent.PollWait, Kind: Choice, Choices: []string{"5s", "10s", "30s", "1m", "5m"}, Default: "30s", Usage: "how long the tool job waits for jobs"},
		{Key: "agent.autoBackground", to: &c.Agent.AutoBackground, Kind: Switch, Default: "false", Usage: "turn a command that runs for long into a background job"},
		{Key: "agent.autoBackgroundAfter", to: &c.Agent.AutoBackgroundAfter, Kind: Duration, Default: "60s", Usage: "how long a command may run before it becomes a background job"},
		{Key: "agent.stripHeadTail", to: &c.Agent.StripHeadTail, Kind: Switch, Default: "false", Usage: "run commands without a | head or | tail at their end, and report it"},
		{Key: "agent.extractHeadTail", to: &c.Agent.ExtractHeadTail, Kind: Switch, Default: "false", Usage: "turn a | head or | tail at the end of a command into a limit on what is shown"},
		{Key: "agent.minimizer", to: &c.Agent.Minimizer, Kind: Switch, Default: "false", Usage: "shorten repetitive output"},
		{Key: "agent.minimizerOnly", to: &c.Agent.MinimizerOnly, Kind: List, Usage: "names of the filters to shorten output with (default: all)"},
		{Key: "agent.minimizerExcept", to: &c.Agent.MinimizerExcept, Kind: List, Usage: "names of the filters not to use"},
		{Key: "agent.window", to: &c.Agent.Window, Kind: Size, Default: "50k", Usage: "how much of the end of an output the agent is shown"},
		{Key: "agent.head", to: &c.Agent.Head, Kind: Size, Default: "0", Usage: "how much of the start of an output the agent is shown as well"},
		{Key: "agent.maxTimeout", to: &c.Agent.MaxTimeout, Kind: Duration, Default: "0s", Usage: "longest timeout that the agent may give a command (0s: the contract's)"},
		{Key: "agent.prefix", to: &c.Agent.Prefix, Usage: "text to put in front of each command of the agent, followed by a space"},
		{Key: "agent.rc", to: &c.Agent.RC, path: true, Usage: "file of this machine that the shell reads when it starts: its functions, aliases and options apply to every command"},
		{Key: "agent.skills", to: &c.Agent.Skills, path: true, Kind: List, Usage: "directories of this machine with skills: skill://NAME stands for the subdirectory NAME of one of them"},
		{Key: "agent.rules", to: &c.Agent.Rules, path: true, Kind: List, Usage: "files of this machine: rule://NAME stands for the file of that name, without its extension"},
		{Key: "agent.memoryRoot", to: &c.Agent.Memory, path: true, Usage: "directory of this machine that memory://root stands for"},
	}
}

// serveSettings are about how clients reach a server.
func serveSettings(c *Config) []Setting {
	return []Setting{
		{Key: "serve.http", to: &c.Serve.HTTP, Flag: "http", Holder: "ADDR", Usage: "serve over HTTP at ADDR, such as 127.0.0.1:8808 (default: standard input and output)"},
		{Key: "serve.tls-cert", to: &c.Serve.TLSCert, path: true, Flag: "tls-cert", Holder: "FILE", Usage: "certificate of the HTTP server, in PEM; required for an address that other machines can reach"},
		{Key: "serve.tls-key", to: &c.Serve.TLSKey, path: true, Flag: "tls-key", Holder: "FILE", Usage: "private key of the certificate, in PEM"},
		{Key: "serve.token-file", to: &c.Serve.TokenFile, path: true, Flag: "token-file", Holder: "FILE", Usage: "file with the token that HTTP requests must carry, readable by its owner only (default: generate one and print it on standard error)"},
		{Key: "serve.hosts", to: &c.Serve.Hosts, Flag: "host", Kind: List, Holder: "NAME", Usage: "name by which clients address the HTTP server, in addition to localhost; may be repeated"},
		{Key: "serve.log", to: &c.Serve.Log, Flag: "log", Kind: Switch, Default: "false", Usage: "log commands on standard error, without their output"},
	}
}

// checkAgent completes and checks what was read of an agent's settings.
func (r *reader) checkAgent(a *Agent, p Policy) {
	a.Contract = "agent"
	if r.given("policy.contract") {
		a.Contract = p.Contract
	}
	if len(a.ToolNames) == 0 {
		a.ToolNames = slices.Clone(p.Tools)
	}
	if a.MaxJobs < 1 || a.MaxJobs > maxJobs {
		r.bad("agent.maxJobs", fmt.Sprintf("it must be between 1 and %d", maxJobs), "")
	}
	for key, n := range map[string]int64{"agent.window": a.Window, "agent.head": a.Head} {
		if n < 0 || n > maxWindow || key == "agent.window" && n == 0 {
			r.bad(key, "it must be between 1 byte and 64m", "")
		}
	}
}

// maxJobs is the most jobs that a session runs at once.
const maxJobs = 100

func (r *reader) checkServe(s Serve) {
	if (s.TLSCert == "") != (s.TLSKey == "") {
		r.badWith("serve.tls-cert", "a certificate and its key go together", "give both serve.tls-cert and serve.tls-key", HelpPair)
	}
}
