package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sink"
)

// modesContract is contract modes: one text as the result, and a mode instead of a
// timeout. Three safety checks look at each command before it runs.
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

// Definition implements Contract. If the host does not know the directory, the
// description has an empty text instead.
func (modesContract) Definition(h Host) Definition {
	return Definition{
		Name: BashName, Description: strings.Replace(modesDescription, "{working_directory}", h.Dir, 1),
		InputSchema: json.RawMessage(modesSchema), Strict: true,
	}
}

// Plan implements Contract. It checks the input, then that the command is not empty,
// then the safety rules.
func (modesContract) Plan(arguments json.RawMessage, h Host) Plan {
	p := Plan{Contract: Modes, Route: Foreground}
	mode, err := p.parseModes(arguments)
	if f, ok := errors.AsType[*fault](err); ok {
		return p.fail(Refusef("Invalid input: %s", serdeText(f)))
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
		return p.fail(Refusef("Command cannot be empty"))
	case strings.IndexByte(p.Command, 0) >= 0:
		return p.fail(Refusef("Failed to spawn process: nul byte found in provided data"))
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
		return "", Refusef("Invalid input: unknown variant `%s`, expected one of `default`, `slow`, `background`", mode)
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
	return sink.Options{Streams: sink.Merged, Window: modesWindow()}
}

// modesWindow is what contract modes shows: all of 128 KiB, else the first and the
// last 4 KiB.
func modesWindow() sink.Window { return sink.Window{Whole: 128 << 10, Head: 4 << 10, Tail: 4 << 10} }

// modesText is a stream as contract modes writes it, over modesWindow.
func modesText(s sink.Stream) string {
	if s.Truncation == nil {
		return s.Head
	}
	return fmt.Sprintf("[output truncated in middle: got %s, max is %s]\n%s\n\n[snip]\n\n%s",
		humanizeBytes(s.Truncation.TotalBytes), humanizeBytes(int64(modesWindow().Whole)), s.Head, s.Tail)
}

// humanizeBytes writes a size as contract modes does: 4095B, 195kB, 10MB.
func humanizeBytes(n int64) string {
	switch f := float64(n); {
	case n < 4<<10:
		return fmt.Sprintf("%dB", n)
	case n < 1<<20:
		return fmt.Sprintf("%.0fkB", math.Round(f/(1<<10)))
	case n < 1<<30:
		return fmt.Sprintf("%.0fMB", math.Round(f/(1<<20)))
	default:
		return "more than 1GB"
	}
}

// Result implements Contract.
func (modesContract) Result(p Plan, o Outcome) Result {
	if r, refused := p.Refused(); refused {
		return r
	}
	output := modesText(o.Output.Stdout)
	failed := func(line string) Result { return Result{Text: line + "\n" + output, IsError: true} }
	switch o.End() {
	case EndExited:
		if o.Reason == exec.Exited && o.Code == 0 {
			return Result{Text: output}
		}
		code := -1 // a signal has ended it
		if o.Reason == exec.Exited {
			code = o.Code
		}
		return failed(fmt.Sprintf("[command failed: exit code %d]", code))
	case EndTimedOut:
		return failed(fmt.Sprintf("[command timed out after %ss]", jsNumber(p.Timeout.Seconds)))
	case EndCancelled:
		return Result{Text: "[command cancelled]", IsError: true}
	case EndOverLimit:
		return failed("[command ended: it wrote more than the output limit]")
	case EndNotStarted:
		return Result{Text: "Failed to spawn process: " + o.Cause(), IsError: true}
	default:
		return Result{Text: "Command execution failed: " + o.Cause(), IsError: true}
	}
}

// ModesStarted is the result for a command in the background: the id of its process,
// which is that of its group too, and the file that its output goes to.
func ModesStarted(pid int, file string) Result {
	return Result{Text: fmt.Sprintf("<pid>%d</pid>\n<output_file>%s</output_file>\n<reminder>To stop: kill -9 -%d</reminder>", pid, file, pid)}
}

// ModesNotStarted is the result if a background command could not be started.
func ModesNotStarted(err error) Result {
	return Result{Text: "Failed to start background process: " + Outcome{Err: err}.Cause(), IsError: true}
}

// ModesNoFile is the result if there is no file for the output.
func ModesNoFile(err error) Result {
	return Result{Text: fmt.Sprintf("Failed to create output file: %v", err), IsError: true}
}
