package sandbox

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Command is one command of a session. Only Script is required.
type Command struct {
	Script string    // at most 10 MiB, not blank, without NUL
	Args   []string  // $1 and so on
	Shell  string    // "bash" or "sh"; empty: bash
	Env    []string  // K=V; overrides the session's own variables
	Dir    string    // in the container, absolute or relative to the workspace; empty: the workspace
	Stdin  io.Reader // nil: /dev/null; see Command.Stdin of package exec. Not read if the command does not start
	// Timeout counts from the command's start. 0 means no timeout.
	Timeout   time.Duration
	Exclusive bool         // refuse while any other command runs in the session
	Output    sink.Options // what is shown and kept of the output
	// Watch, if not nil, is called before the start with the Sink that takes the
	// output, so that the caller can Subscribe to it. It must not block.
	Watch func(*sink.Sink)
	// Decided is the decision of a policy that was asked before. It is only recorded.
	Decided policy.Decision

	id string // of its observation, and of the connections that it makes
	// Job, if not nil, allows the command to become a job. Otherwise the command ends
	// with this process at the latest.
	Job *JobOptions
}

// mode returns how Run runs the command.
func (c Command) mode() Mode {
	if c.Job != nil && c.Job.After == 0 {
		return ModeJob
	}
	return ModeCommand
}

// overlay returns base with the variables of more, which replace those of the same name.
func overlay(base, more []string) []string {
	at := map[string]int{}
	var all []string
	for _, kv := range append(base, more...) {
		name, _, _ := strings.Cut(kv, "=")
		if i, ok := at[name]; ok {
			all[i] = kv
			continue
		}
		at[name] = len(all)
		all = append(all, kv)
	}
	return all
}

// InputError reports a command or a session that was asked for with an unusable value.
// Nothing has run.
type InputError struct {
	Field string // "script", "env", "cwd", "shell", "timeout", "argument"; "session", "cpus", "runtime"
	Text  string
	err   error // the underlying error, or nil
}

func (e *InputError) Error() string { return e.Text }

func (e *InputError) Unwrap() error { return e.err }

func badInput(field, format string, args ...any) *InputError {
	return &InputError{Field: field, Text: fmt.Sprintf(format, args...)}
}

// EnvName reports whether a command may be given an environment variable of this name:
// letters, digits and _, the first of them not a digit.
func EnvName(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case c == '_', 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z':
		case i > 0 && '0' <= c && c <= '9':
		default:
			return false
		}
	}
	return name != ""
}

// maxArguments is the limit on arguments and environment together. execve(2) takes a
// quarter of the stack limit, which is 8 MiB; some of that is left for its own use.
const maxArguments = 2<<20 - 64<<10 // bytes

// maxOneArgument is the longest argument without the NUL that the kernel counts.
const maxOneArgument = wire.MaxArgument - 1 // bytes

// Check returns an *InputError if the command could not run as it is. It makes no request
// to the engine. The error never holds a value, because values may be secret. Run calls
// Check too.
func (c Command) Check() error {
	switch {
	case strings.TrimSpace(c.Script) == "":
		return badInput("script", "the script is empty")
	case len(c.Script) > wire.MaxScript:
		return badInput("script", "the script is %d bytes long; the limit is %d (10 MiB): put it in a file of the workspace", len(c.Script), wire.MaxScript)
	case strings.IndexByte(c.Script, 0) >= 0:
		return badInput("script", "the script has a NUL byte at offset %d", strings.IndexByte(c.Script, 0))
	case c.Shell != "" && c.Shell != "bash" && c.Shell != "sh":
		return badInput("shell", "shell %q: it can be bash or sh", c.Shell)
	case c.Timeout < 0:
		return badInput("timeout", "timeout %s: it must not be negative", c.Timeout)
	case strings.IndexByte(c.Dir, 0) >= 0:
		return badInput("cwd", "the working directory has a NUL byte")
	case len(c.Dir) >= maxTargetLength:
		return badInput("cwd", "the working directory is %d bytes long; the limit is %d", len(c.Dir), maxTargetLength-1)
	}
	total := 0
	for i, arg := range c.Args {
		if strings.IndexByte(arg, 0) >= 0 {
			return badInput("argument", "argument %d has a NUL byte", i+1)
		}
		if len(arg) > maxOneArgument {
			return badInput("argument", "argument %d is %d bytes long; the kernel takes %d: pass it on standard input", i+1, len(arg), maxOneArgument)
		}
		total += len(arg) + 1 + pointerSize
	}
	env, err := checkEnv(c.Env)
	if err != nil {
		return err
	}
	if total += env; total > maxArguments {
		return badInput("argument", "arguments and environment take %d bytes together; the kernel takes %d: pass them on standard input or in a file", total, maxArguments)
	}
	return nil
}

// checkEnv returns how many bytes of execve(2) variables K=V take, or an *InputError that holds no value.
func checkEnv(env []string) (total int, err error) {
	for _, kv := range env {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || !EnvName(name) {
			return 0, badInput("env", "Invalid bash env name: %s", printable(name))
		}
		if strings.IndexByte(value, 0) >= 0 {
			return 0, badInput("env", "the value of environment variable %s has a NUL byte", name)
		}
		if len(kv) > maxOneArgument {
			return 0, badInput("env", "environment variable %s is %d bytes long; the kernel takes %d", name, len(kv), maxOneArgument)
		}
		total += len(kv) + 1 + pointerSize
	}
	return total, nil
}

const pointerSize = 8 // bytes; execve counts one for each string

// printable shortens and escapes a name for an error message.
func printable(name string) string {
	if len(name) > 64 {
		name = name[:64] + "…"
	}
	if utf8.ValidString(name) && strings.IndexFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0 {
		return name
	}
	return fmt.Sprintf("%q", name)
}
