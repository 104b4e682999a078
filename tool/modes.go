package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sink"
)

// modesContract is contract modes: one text, and a mode that says how long a
// command has. Three safety checks stand before it.
type modesContract struct{}

// modeTimeouts are the modes, in seconds.
var modeTimeouts = map[string]float64{"default": 30, "slow": 15 * 60, "background": 24 * 60 * 60}

const modesSchema = `{
  "type": "object",
  "required": ["command"],
  "properties": {
    "command": {
      "type": "string",
      "description": "Shell command to execute via bash -c"
    },
    "mode": {
      "type": "string",
      "enum": ["default", "slow", "background"],
      "description": "Execution mode: default (30s timeout), slow (15min timeout), background (detached)"
    }
  },
  "additionalProperties": false
}`

const modesDescription = `Executes shell commands via bash -c, returning combined stdout/stderr.
Bash state changes (working dir, variables, aliases) don't persist between calls.

With mode="background", returns immediately with output redirected to a file.
Use background for servers/demos that need to stay running.

Use mode="slow" for potentially slow commands: builds, downloads,
installs, tests, or any other substantive operation.

IMPORTANT: Keep commands concise. The command input must be less than 60k tokens.
For complex scripts, write them to a file first and then execute the file.

<pwd>{working_directory}</pwd>`

// Definition implements Contract. Where the host does not know the directory, its
// place in the description stays empty.
func (modesContract) Definition(h Host) Definition {
	return Definition{
		Name: "bash", Description: strings.Replace(modesDescription, "{working_directory}", h.Dir, 1),
		InputSchema: json.RawMessage(modesSchema), Strict: true,
	}
}

// Plan implements Contract: the input, an empty command, the safety checks.
func (modesContract) Plan(arguments json.RawMessage, h Host) Plan {
	p := Plan{Contract: Modes, Route: Foreground}
	mode, err := p.parseModes(arguments)
	if f, ok := errors.AsType[*fault](err); ok {
		return p.fail(refuse("Invalid input: %s", serdeText(f)))
	}
	if err != nil {
		return p.fail(err)
	}
	p.Timeout = Timeout{Seconds: modeTimeouts[mode]}
	if mode == "background" {
		p.Route = Background
	}
	switch {
	case p.Command == "":
		return p.fail(refuse("Command cannot be empty"))
	case strings.IndexByte(p.Command, 0) >= 0:
		return p.fail(refuse("Failed to spawn process: nul byte found in provided data"))
	}
	p.Original = p.Command
	check, err := p.checker(h)
	if err != nil {
		return p.fail(err)
	}
	p.decide(check)
	return p
}

func (p *Plan) parseModes(arguments json.RawMessage) (mode string, err error) {
	mode = "default"
	members, err := parseObject(arguments)
	if err != nil {
		return "", err
	}
	given := false
	for _, m := range members {
		switch m.name {
		case "command":
			given = true
			p.Command, err = m.text()
		case "mode":
			mode, err = m.variant()
		default:
			err = &fault{what: unknown, field: m.name}
		}
		if err != nil {
			return "", err
		}
	}
	if !given {
		return "", &fault{what: missing, field: "command"}
	}
	return mode, nil
}

// variant reads a mode.
func (m member) variant() (string, error) {
	mode, err := m.text()
	if f, ok := errors.AsType[*fault](err); ok {
		f.want = "string or map"
		return "", f
	}
	if _, ok := modeTimeouts[mode]; !ok {
		return "", refuse("Invalid input: unknown variant `%s`, expected one of `default`, `slow`, `background`", mode)
	}
	return mode, nil
}

// serdeText words a fault as the original's parser does.
func serdeText(f *fault) string {
	switch f.what {
	case missing:
		return fmt.Sprintf("missing field `%s`", f.field)
	case unknown:
		return fmt.Sprintf("unknown field `%s`, expected `command` or `mode`", shortened(f.field))
	case duplicate:
		return fmt.Sprintf("duplicate field `%s`", shortened(f.field))
	case wrongType:
		want := f.want
		if want == "an object" {
			want = "struct BashInput"
		}
		return fmt.Sprintf("invalid type: %s, expected %s", serdeKind(f.value), want)
	default:
		return f.cause
	}
}

func serdeKind(value json.RawMessage) string {
	value = bytes.TrimSpace(value)
	switch value[0] {
	case 'n':
		return "null"
	case 't', 'f':
		return "boolean `" + string(value) + "`"
	case '"':
		return "string " + shortened(string(value))
	case '[':
		return "sequence"
	case '{':
		return "map"
	}
	if bytes.ContainsAny(value, ".eE") {
		return "floating point `" + shortened(string(value)) + "`"
	}
	return "integer `" + shortened(string(value)) + "`"
}

// ModesOutput says what is kept of a command's output for contract modes.
func ModesOutput() sink.Options {
	return sink.Options{Streams: sink.Merged, Window: sink.ModesWindow()}
}

// Result implements Contract.
func (modesContract) Result(p Plan, o Outcome) Result {
	if r, refused := p.Refused(); refused {
		return r
	}
	output := o.Output.Stdout.ModesText()
	failed := func(line string) Result { return Result{Text: line + "\n" + output, IsError: true} }
	switch o.end() {
	case ended:
		if o.Reason == exec.Exited && o.Code == 0 {
			return Result{Text: output}
		}
		code := -1 // of what a signal has ended
		if o.Reason == exec.Exited {
			code = o.Code
		}
		return failed(fmt.Sprintf("[command failed: exit code %d]", code))
	case timedOut:
		return failed(fmt.Sprintf("[command timed out after %ss]", jsNumber(p.Timeout.Seconds)))
	case cancelled:
		return Result{Text: "[command cancelled]", IsError: true}
	case overLimit:
		return failed("[command ended: it wrote more than the output limit]")
	case notStarted:
		return Result{Text: "Failed to spawn process: " + o.cause(), IsError: true}
	default:
		return Result{Text: "Command execution failed: " + o.cause(), IsError: true}
	}
}

// ModesStarted is what is told of a command in the background: the id of its
// process, which is that of its group, and where its output goes.
func ModesStarted(pid int, file string) Result {
	return Result{Text: fmt.Sprintf("<pid>%d</pid>\n<output_file>%s</output_file>\n<reminder>To stop: kill -9 -%d</reminder>", pid, file, pid)}
}

// ModesNotStarted is what is told if a background command could not be started.
func ModesNotStarted(err error) Result {
	return Result{Text: "Failed to start background process: " + Outcome{Err: err}.cause(), IsError: true}
}

// ModesNoFile is what is told if there is no file for the output.
func ModesNoFile(err error) Result {
	return Result{Text: fmt.Sprintf("Failed to create output file: %v", err), IsError: true}
}
