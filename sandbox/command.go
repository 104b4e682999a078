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

// Command is one command of a session. Zero values are defaults.
type Command struct {
	Script string    // at most 10 MiB, not blank, without NUL
	Args   []string  // $1 and so on
	Shell  string    // "bash" or "sh"; empty: bash
	Env    []string  // K=V, above the session's own
	Dir    string    // in the container; empty: the workspace; relative to it
	Stdin  io.Reader // nil: /dev/null; else as Stdin of exec.Command: unread where the command is not started
	// Timeout is from the command's start. 0 is none.
	Timeout   time.Duration
	Exclusive bool         // refuse while any other command runs in the session
	Output    sink.Options // what is shown and kept of the output
	// Watch is called before the start, if not nil, with what takes the output:
	// to Subscribe to it. It must not block.
	Watch func(*sink.Sink)
	// Decided is what a policy has decided of it before: for the record only.
	Decided policy.Decision
	// Job makes it a command that may become a job; nil: it ends with this process.
	Job *JobOptions
}

// overlay puts later values of a name in the place of earlier ones.
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

// InputError is a command or a session that cannot be had as it was given. Nothing ran.
type InputError struct {
	Field string // "script", "env", "cwd", "shell", "timeout", "argument"; "session", "cpus", "runtime"
	Text  string
	err   error // what it was made of, if anything
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

// maxArguments is what execve takes of arguments and environment together with
// a stack limit of 8 MiB, a quarter of it, less some room for its own.
const maxArguments = 2<<20 - 64<<10 // bytes

// maxOneArgument is MAX_ARG_STRLEN of the kernel with its closing NUL.
const maxOneArgument = 128<<10 - 1 // bytes

// Check refuses what could not run, with an *InputError, before anything is asked
// of the engine. Values are never repeated: they may be secret. Run calls it too.
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
	for _, kv := range c.Env {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || !EnvName(name) {
			return badInput("env", "Invalid bash env name: %s", printable(name))
		}
		if strings.IndexByte(value, 0) >= 0 {
			return badInput("env", "the value of environment variable %s has a NUL byte", name)
		}
		if len(kv) > maxOneArgument {
			return badInput("env", "environment variable %s is %d bytes long; the kernel takes %d", name, len(kv), maxOneArgument)
		}
		total += len(kv) + 1 + pointerSize
	}
	if total > maxArguments {
		return badInput("argument", "arguments and environment take %d bytes together; the kernel takes %d: pass them on standard input or in a file", total, maxArguments)
	}
	return nil
}

const pointerSize = 8 // bytes; execve counts one for each string

// printable cuts and escapes a name for an error message.
func printable(name string) string {
	if len(name) > 64 {
		name = name[:64] + "…"
	}
	if utf8.ValidString(name) && strings.IndexFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0 {
		return name
	}
	return fmt.Sprintf("%q", name)
}
