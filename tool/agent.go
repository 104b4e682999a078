package tool

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// agentContract is contract agent: one text for stdout and stderr, a timeout that
// the agent sets, a working directory, variables, jobs and terminals.
type agentContract struct{}

const agentDescription = "Execute a shell command in the session workspace, with optional PTY or background-job handling."

// agentSchema is what the arguments may be. The property async is there only while
// jobs are on.
const agentSchema = `{
  "type": "object",
  "properties": {
    "command": {"type": "string", "description": "Shell command text to execute. A leading cd <path> && ... is rewritten into cwd only when cwd was omitted."},
    "env": {"type": "object", "additionalProperties": {"type": "string"}, "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}, "description": "Extra environment variables. Values go through internal-URL expansion and are passed as environment values, not shell text."},
    "timeout": {"type": "number", "description": "Timeout in seconds. Default 300; clamped to 1..3600."},
    "cwd": {"type": "string", "description": "Working directory, resolved against the session's. Must exist and be a directory."},
    "pty": {"type": "boolean", "description": "Request PTY mode. Default false."},
    "head": {"type": "integer", "minimum": 0, "description": "Show only the first lines of the output, as many as this; 0 for all."},
    "tail": {"type": "integer", "minimum": 0, "description": "Show only the last lines of the output, as many as this; 0 for all."}{{async}}
  },
  "required": ["command"],
  "additionalProperties": false
}`

const agentAsync = `,
    "async": {"type": "boolean", "description": "Background execution request. Returns immediately with a job id instead of waiting."}`

// Definition implements Contract.
func (agentContract) Definition(h Host) Definition {
	async := ""
	if h.Settings.Async {
		async = agentAsync
	}
	return Definition{
		Name: BashName, Description: agentDescription, Strict: true, Exclusive: true,
		InputSchema: json.RawMessage(strings.Replace(agentSchema, "{{async}}", async, 1)),
	}
}

// agentInput holds the arguments. An empty one counts as not given.
type agentInput struct {
	command    string
	env        []variable // in order
	timeout    *float64
	cwd        string
	pty, async bool
	head, tail *int64
}

type variable struct{ name, value string }

// Plan implements Contract. Its steps are in the order of the document: if several
// things are wrong with a call, the error is that of the first step that fails.
func (agentContract) Plan(arguments json.RawMessage, h Host) Plan {
	p := Plan{Contract: Agent, Route: Foreground}
	in, err := parseAgent(arguments)
	if err != nil {
		return p.fail(err)
	}
	p.Original, p.Command, p.Dir = in.command, in.command, in.cwd
	p.Head, p.Tail = in.head, in.tail
	p.normalise(h.Settings)
	if in.async && !h.Settings.Async {
		return p.fail(Refusef("Async bash execution is disabled. Enable async.enabled to use async mode."))
	}
	check, err := p.checker(h)
	if err != nil {
		return p.fail(err)
	}
	p.Timeout = clampTimeout(in.timeout, h.Settings.MaxTimeout)
	if notice := p.Timeout.notice(); notice != "" {
		p.Notices = append(p.Notices, notice)
	}
	p.Env = in.environment()
	p.decide(check)
	if p.Denial != nil {
		return p
	}
	if err := p.expand(in, h); err != nil {
		return p.fail(err)
	}
	if h.Dir != "" && p.Dir != "" {
		if p.Dir, err = resolveDir(p.Dir, h.Dir, h.Home); err != nil {
			return p.fail(err)
		}
	}
	if in.async && h.NoJobs {
		return p.fail(Refusef("Async job manager unavailable for this session."))
	}
	p.route(in, h)
	return p
}

// UserPlan returns the plan of a command that the user gives, not the agent. It runs
// as it is: without rules, rewriting, expansion of URLs or a timeout.
func UserPlan(command string) Plan {
	return Plan{Contract: Agent, Route: Foreground, Original: command, Command: command, Env: NonInteractive()}
}

// normalise rewrites the command: a last head or tail is removed if an option says
// so, and a leading cd becomes the working directory.
func (p *Plan) normalise(s Settings) {
	if s.ExtractHeadTail {
		rest, head, tail := ExtractHeadTail(p.Command)
		p.Command = rest
		if p.Head == nil {
			p.Head = head
		}
		if p.Tail == nil {
			p.Tail = tail
		}
	}
	if s.StripHeadTail {
		rest, stripped := StripHeadTail(p.Command)
		p.Command = rest
		if len(stripped) > 0 {
			p.Notices = append(p.Notices, "Ran without "+strings.Join(stripped, " and ")+": the output is limited anyway, and stderr is part of it.")
		}
	}
	if p.Dir == "" {
		if dir, rest, ok := LeadingCd(p.Command); ok {
			p.Dir, p.Command = dir, rest
		}
	}
}

// environment returns the default variables, overridden by those of the agent.
func (in agentInput) environment() Env {
	env := NonInteractive()
	for _, v := range in.env {
		if heeded(v.name) {
			env[v.name] = v.value
		}
	}
	return env
}

// expand replaces internal URLs in the command, the variables and the directory.
func (p *Plan) expand(in agentInput, h Host) error {
	at := Expansion{Field: fieldCommand}
	text, found, err := h.URLs.expand(p.Command, at, h.Place)
	if err != nil {
		return err
	}
	p.Command, p.Expansions = text, found
	for _, v := range in.env {
		if !heeded(v.name) {
			continue
		}
		at = Expansion{Field: fieldEnv, Name: v.name}
		if text, found, err = h.URLs.expand(v.value, at, h.Place); err != nil {
			return err
		}
		p.Env[v.name] = text
		p.Expansions = append(p.Expansions, found...)
	}
	if text, found, err = h.URLs.expand(p.Dir, Expansion{Field: fieldCwd}, h.Place); err != nil {
		return err
	}
	p.Dir = text
	p.Expansions = append(p.Expansions, found...)
	return nil
}

// route decides where the command runs.
func (p *Plan) route(in agentInput, h Host) {
	switch {
	case in.async:
		p.Route = Background
	case in.pty && usePTY(in.pty, h.UI, h.NoPTY):
		p.Route = Terminal
	case in.pty: // the contract falls back to the foreground without a notice
	case h.Settings.AutoBackground && !h.NoJobs:
		p.Route, p.Wait = Managed, autoBackgroundWait(h.Settings.ThresholdMs, p.Timeout.Duration())
	case h.Terminal:
		p.Route = InClient
	}
}

// usePTY reports whether a command that asks for a terminal gets one: the host must
// have a user interface, and PI_NO_PTY must not be "1".
func usePTY(asked, ui, noPTY bool) bool { return asked && ui && !noPTY }

// parseAgent reads the arguments. All types are checked before any name is.
func parseAgent(raw json.RawMessage) (agentInput, error) {
	var in agentInput
	members, err := parseObject(raw)
	if err == nil {
		err = in.set(members)
	}
	if f, ok := errors.AsType[*fault](err); ok {
		return in, Refusef("Invalid bash arguments: %s", f.text())
	}
	for _, v := range in.env {
		if !sandbox.EnvName(v.name) {
			return in, Refusef("Invalid bash env name: %s", v.name)
		}
	}
	return in, in.noNUL()
}

func (in *agentInput) set(members []member) (err error) {
	given := false
	for _, m := range members {
		switch m.name {
		case "command":
			given = true
			in.command, err = m.text()
		case "env":
			in.env, err = m.variables()
		case "timeout":
			var seconds float64
			seconds, err = m.number()
			in.timeout = &seconds
		case "cwd":
			in.cwd, err = m.text()
		case "pty":
			in.pty, err = m.flag()
		case "async":
			in.async, err = m.flag()
		case "head":
			in.head, err = m.limit()
		case "tail":
			in.tail, err = m.limit()
		default:
			err = &fault{what: unknown, field: m.name}
		}
		if err != nil {
			return err
		}
	}
	if !given {
		return &fault{what: missing, field: "command"}
	}
	return nil
}

func (m member) limit() (*int64, error) {
	n, err := m.count()
	return &n, err
}

// variables reads an object of strings.
func (m member) variables() ([]variable, error) {
	if m.value[0] != '{' {
		return nil, &fault{what: wrongType, field: m.name, want: "an object", value: m.value}
	}
	members, err := parseObject(m.value)
	if f, ok := errors.AsType[*fault](err); ok {
		f.field = m.name + "." + f.field
	}
	list := make([]variable, len(members))
	for i, v := range members {
		list[i].name = v.name
		if list[i].value, err = (member{m.name + "." + v.name, v.value}).text(); err != nil {
			return nil, err
		}
	}
	return list, err
}

// noNUL refuses texts with a NUL: they cannot be passed to a program.
func (in agentInput) noNUL() error {
	for _, v := range append([]variable{{"command", in.command}, {"cwd", in.cwd}}, in.env...) {
		if at := strings.IndexByte(v.value, 0); at >= 0 {
			return Refusef("Invalid bash arguments: %s: it has a NUL character at offset %d", v.name, at)
		}
	}
	return nil
}
