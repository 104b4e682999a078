package hookcmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/strictjson"
)

// Tools of Claude Code that run a command.
const (
	toolBash       = "Bash"
	toolMonitor    = "Monitor"    // a command in the background whose lines are events
	toolPowerShell = "PowerShell" // on this machine, in a language that a session does not have
)

const preToolUse = "PreToolUse"

// maxWord bounds a rewritten command in bytes: the client gives it to its shell as one argument, and
// Linux takes 128 KiB of one. The client puts it into quotes again, which can double what is quoted.
const maxWord = 60 << 10

// maxDepth bounds how deep the input of a tool may be nested.
const maxDepth = 64

// A call is what Claude Code asks a hook about.
type call struct {
	Event string // hook_event_name
	Tool  string // tool_name
	Dir   string // cwd

	command string
	input   []strictjson.Member // of the tool, in their order
}

// runs reports whether the call is one that would run a command.
func (c call) runs() bool {
	return c.Tool == toolBash || c.Tool == toolMonitor || c.Tool == toolPowerShell
}

// parse reads a call. It refuses what two readers could understand in different ways, because the
// client is another reader than this one.
func parse(text []byte) (call, error) {
	if err := strictjson.Check(text, maxDepth); err != nil {
		return call{}, fmt.Errorf("the hook's input: %w", err)
	}
	fields, err := strictjson.Members(text)
	if err != nil {
		return call{}, fmt.Errorf("the hook's input: %w", err)
	}
	var c call
	var input json.RawMessage
	for _, f := range fields {
		switch f.Name {
		case "hook_event_name":
			err = text1(f, &c.Event)
		case "tool_name":
			err = text1(f, &c.Tool)
		case "cwd":
			err = text1(f, &c.Dir)
		case "tool_input":
			input = f.Value
		}
		if err != nil {
			return call{}, err
		}
	}
	switch {
	case c.Event != preToolUse:
		return call{}, exit.Misuse("set it up with `sandboxbash hook install claude`", "the hook was called for %q, and is for %s", c.Event, preToolUse)
	case c.Tool == "":
		return call{}, errors.New("the hook's input does not name a tool")
	case !c.runs():
		return c, nil
	}
	if c.input, err = strictjson.Members(input); err != nil {
		return call{}, fmt.Errorf("the hook's input: tool_input: %w", err)
	}
	found := false
	for _, f := range c.input {
		if f.Name == "command" {
			found = true
			err = text1(f, &c.command)
		}
	}
	switch {
	case err != nil:
		return call{}, err
	case !found:
		return call{}, fmt.Errorf("the hook's input: the tool %s has no command", c.Tool)
	case strings.ContainsRune(c.command, 0):
		return call{}, errors.New("the command has a NUL byte, which no shell takes")
	}
	return c, nil
}

// text1 reads a field that is a text.
func text1(f strictjson.Member, to *string) error {
	var value any
	if err := json.Unmarshal(f.Value, &value); err != nil {
		return fmt.Errorf("the hook's input: %s: %w", f.Name, err)
	}
	text, ok := value.(string)
	if !ok {
		return fmt.Errorf("the hook's input: %s is not a text", f.Name)
	}
	*to = text
	return nil
}

// Decisions of a hook about the permission for a call.
const (
	ask   = "ask"   // the user
	allow = "allow" // without a question
)

// rewritten is the answer that has the client run the command of words, with the call's command as
// the last one. All else of the call's input stays as it is.
func (c call) rewritten(words []string, decision, reason string) ([]byte, error) {
	quoted := make([]string, 0, len(words)+1)
	for _, word := range append(words, c.command) {
		quoted = append(quoted, quote(word))
	}
	line := strings.Join(quoted, " ")
	if len(line) > maxWord {
		return nil, exit.Misuse("write it into a file first, and run that", "the command is too long to be passed on as one word: %d bytes, and at most %d can be", len(line), maxWord)
	}
	var input bytes.Buffer
	input.WriteByte('{')
	for i, f := range c.input {
		if i > 0 {
			input.WriteByte(',')
		}
		name, value := marshal(f.Name), []byte(f.Value)
		if f.Name == "command" {
			value = marshal(line)
		}
		input.Write(name)
		input.WriteByte(':')
		input.Write(value)
	}
	input.WriteByte('}')
	return append(marshal(output{Specific: specific{Event: preToolUse, Decision: decision, Reason: reason, Input: input.Bytes()}}), '\n'), nil
}

// output is what a hook prints.
type output struct {
	Specific specific `json:"hookSpecificOutput"`
}

type specific struct {
	Event    string          `json:"hookEventName"`
	Decision string          `json:"permissionDecision"`
	Reason   string          `json:"permissionDecisionReason"`
	Input    json.RawMessage `json:"updatedInput"`
}

// marshal is JSON as it is, without escapes for HTML.
func marshal(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // texts, and JSON that was checked
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// quote returns one word of a POSIX shell, and of zsh: what is between single quotes is text.
func quote(word string) string {
	if word != "" && utf8.ValidString(word) && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// plain are characters that no shell treats in a special way wherever they stand. A = may not stand
// in the first word, nor at the start of one in zsh.
const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:@,-"
