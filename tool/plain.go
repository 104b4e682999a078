package tool

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"

	"github.com/sandboxbash/sandboxbash/sink"
)

// plainContract is contract plain: a command in, both streams and the exit code
// out. Its environment, directory and permissions are the session's.
type plainContract struct{}

// plainTimeout is the timeout of every command.
const plainTimeout = 30 // seconds

const plainSchema = `{
  "type": "object",
  "properties": {
    "command": {"type": "string", "description": "The bash command to execute"}
  },
  "required": ["command"],
  "additionalProperties": false
}`

const plainOutputSchema = `{
  "type": "object",
  "properties": {
    "stdout": {"type": "string"},
    "stderr": {"type": "string"},
    "exitCode": {"type": "integer"},
    "error": {"type": "string"}
  },
  "additionalProperties": false
}`

// PlainOutput is a result: an error, or the output of a command and its code. A
// command that is not found or may not be executed has both.
type PlainOutput struct {
	Stdout   *string `json:"stdout,omitempty"`
	Stderr   *string `json:"stderr,omitempty"`
	ExitCode *int    `json:"exitCode,omitempty"`
	Error    string  `json:"error,omitempty"`
}

// Definition implements Contract.
func (plainContract) Definition(Host) Definition {
	return Definition{
		Name: BashName, Description: "Execute a bash command and return stdout/stderr",
		InputSchema: json.RawMessage(plainSchema), OutputSchema: json.RawMessage(plainOutputSchema), Strict: true,
	}
}

// Plan implements Contract. It ignores all arguments but the command.
func (plainContract) Plan(arguments json.RawMessage, h Host) Plan {
	p := Plan{Contract: Plain, Route: Foreground, Timeout: Timeout{Seconds: plainTimeout}}
	members, err := parseObject(arguments)
	given := false
	for _, m := range members {
		if m.name == "command" && err == nil {
			given = true
			p.Command, err = m.text()
		}
	}
	if err == nil && !given {
		err = &fault{what: missing, field: "command"}
	}
	if f, ok := errors.AsType[*fault](err); ok {
		return p.fail(Refusef("Invalid input: %s", f.text()))
	}
	switch {
	case p.Command == "":
		return p.fail(Refusef("Command cannot be empty"))
	case strings.IndexByte(p.Command, 0) >= 0:
		return p.fail(Refusef("Invalid input: command has a NUL character at offset %d", strings.IndexByte(p.Command, 0)))
	}
	p.Original = p.Command
	check, err := p.checker(h)
	if err != nil {
		return p.fail(err)
	}
	p.decide(check)
	return p
}

// PlainStreams keeps what contract plain shows: the start of each stream, byte for
// byte as the command wrote it, with secrets masked. The zero value is empty.
type PlainStreams struct{ stdout, stderr plainStream }

// Options are for a sink whose output goes to s.
func (s *PlainStreams) Options() sink.Options {
	return sink.Options{
		Streams: sink.Split, Window: sink.Head(plainMost), LiveStdout: &s.stdout, LiveStderr: &s.stderr,
	}
}

// plainMost is how many bytes of a stream are kept; the others are counted.
const plainMost = 1 << 20

type plainStream struct {
	kept  []byte
	bytes int64
}

// Write implements io.Writer. It never fails.
func (s *plainStream) Write(p []byte) (int, error) {
	s.bytes += int64(len(p))
	s.kept = append(s.kept, p[:min(len(p), plainMost-len(s.kept))]...)
	return len(p), nil
}

func (s *plainStream) text() string {
	if s.bytes <= plainMost {
		return string(s.kept)
	}
	return sink.HeadBytes(string(s.kept), plainMost) + "... (truncated)"
}

// Result implements Contract.
func (plainContract) Result(p Plan, o Outcome) Result {
	if r, refused := p.Refused(); refused {
		return r
	}
	switch o.End() {
	case EndExited:
	case EndTimedOut:
		return PlainError(p.Timeout.Message())
	case EndCancelled:
		return PlainError("Command cancelled")
	case EndOverLimit:
		return PlainError("Command wrote more than the output limit")
	case EndNotStarted, EndUnknown:
		return PlainError(o.Cause())
	}
	code, _ := o.exitCode()
	if o.Plain == nil {
		o.Plain = &PlainStreams{}
	}
	stdout, stderr := o.Plain.stdout.text(), o.Plain.stderr.text()
	out := &PlainOutput{Stdout: &stdout, Stderr: &stderr, ExitCode: &code}
	if code == exitNotFound || code == exitNotExecutable {
		out.Error = strings.TrimRight(stderr, "\n")
	}
	return Result{Text: out.text(), Plain: out}
}

// Exit codes of a shell that found no command to run: 2.8.2 of the Shell Command
// Language, POSIX.1.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// PlainError is the result of contract plain for a call that has run no command.
func PlainError(text string) Result {
	out := &PlainOutput{Error: text}
	return Result{Text: out.text(), IsError: true, Plain: out}
}

func (o PlainOutput) text() string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(o) // strings and a number
	return strings.TrimSuffix(b.String(), "\n")
}

// PlainLog returns the log entry of a command that has run: the command, its exit code
// and the size of its output, but not the output.
func PlainLog(p Plan, o Outcome) []slog.Attr {
	attrs := []slog.Attr{slog.String("command", p.Command)}
	if code, ok := o.exitCode(); ok {
		attrs = append(attrs, slog.Int("exitCode", code))
	} else {
		attrs = append(attrs, slog.String("reason", string(o.Reason)))
	}
	if o.Plain != nil {
		attrs = append(attrs, slog.Int64("stdoutBytes", o.Plain.stdout.bytes), slog.Int64("stderrBytes", o.Plain.stderr.bytes))
	}
	return append(attrs, slog.Duration("elapsed", o.Elapsed))
}
