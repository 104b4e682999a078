package core

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Asker asks the person at this process's terminal what a session may reach. While a question is open,
// nothing else is written to the terminal.
type Asker struct {
	ctx     context.Context //nolint:containedctx // the call's: a question ends with it
	end     context.CancelFunc
	tty     *os.File
	streams *stdio.Streams
	cfg     *Configuration

	mu sync.Mutex // held by the question that is shown
}

// NewAsker opens the terminal for questions. The Asker's Close is the caller's. Without a terminal there is
// an error.
func NewAsker(ctx context.Context, cfg *Configuration, streams *stdio.Streams) (*Asker, error) {
	const todo = "run it on a terminal, or name what may be reached with --allow"
	switch {
	case cfg.PTY.Ask:
		return nil, exit.Misuse("leave out one of them", "--ask-network asks on the terminal that --pty gives to the command")
	case cfg.Run.Stdin && stdio.IsTerminal(streams.Stdin):
		return nil, exit.Misuse("give the input by a pipe or a file", "--ask-network asks on the terminal that --stdin gives to the command")
	}
	tty, err := openTerminal()
	if err != nil {
		return nil, exit.Misuse(todo, "--ask-network: there is no terminal to ask on: %v", err)
	}
	a := &Asker{tty: tty, streams: streams, cfg: cfg}
	a.ctx, a.end = context.WithCancel(ctx)
	streams.Share(&a.mu)
	return a, nil
}

// Close ends the question that is open, and lets go of the terminal.
func (a *Asker) Close() {
	a.end()
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = a.tty.Close()
}

// Asking is a spec of a session about which questions are asked. A nil Asker asks none.
func (a *Asker) Asking(spec sandbox.Spec) (sandbox.Spec, error) {
	if a == nil {
		return spec, nil
	}
	spec.AskNetwork, spec.AskTime = a.Ask, a.cfg.NetworkRules.AskTime
	spec, err := spec.Normalize()
	if err != nil {
		return spec, exit.Misuse(exit.Hint(err), "%v", err)
	}
	return spec, nil
}

// Ask implements sandbox.Spec.AskNetwork.
func (a *Asker) Ask(ctx context.Context, q sandbox.NetworkQuestion) sandbox.NetworkAnswer {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(a.ctx, cancel) // Ctrl-C is a no
	defer stop()
	a.mu.Lock() // one question at a time
	defer a.mu.Unlock()
	answer := sandbox.NetworkAnswer{By: "terminal"}
	if ctx.Err() != nil {
		return answer
	}
	fmt.Fprint(a.tty, a.text(q))
	key, rule, err := a.choose(ctx, q)
	if err != nil {
		fmt.Fprintf(a.tty, "\r\x1b[Kno: %v\n", err)
		return answer
	}
	answer.Scope = map[byte]sandbox.NetworkScope{'o': sandbox.AllowOnce, 's': sandbox.AllowSession, 'a': sandbox.AllowAlways}[key]
	if rule != q.Rule {
		answer.Rule = rule
	}
	a.say(&answer, rule)
	return answer
}

// Keys, as terminals send them.
const (
	keyEscape    = 0x1b
	keyBackspace = 0x7f
	keyCtrlD     = 0x04
	keyCtrlH     = 0x08
	keyCtrlU     = 0x15
)

var errNoAnswer = errors.New("there was no answer")

// choose waits for the key of a choice, and returns it and the rule that it is about, which the person may have
// edited. Enter and escape are a no, and keys that mean nothing are ignored.
func (a *Asker) choose(ctx context.Context, q sandbox.NetworkQuestion) (key byte, rule string, err error) {
	keys, err := openKeyboard(ctx, a.tty)
	if err != nil {
		return 0, "", err
	}
	defer keys.close()
	for rule = q.Rule; ; {
		key, err := keys.next(ctx, func() { a.prompt(ctx) })
		if err != nil {
			return 0, "", err
		}
		switch c := key | 0x20; { // in lower case
		case key == '\n', key == '\r', key == keyEscape, key == keyCtrlD, c == 'n':
			return 'n', rule, nil
		case c == 'o', c == 's', c == 'a':
			return c, rule, nil
		case c == 'y':
			return 'o', rule, nil
		case c == 'e':
			if rule, err = a.edit(ctx, keys, q, rule); err != nil {
				return 0, "", err
			}
			fmt.Fprintf(a.tty, "\r\x1b[K  %-9s%s\n", "rule", a.plain(rule))
		}
	}
}

// maxEdited bounds a rule that is edited, in bytes; more keys are ignored.
const maxEdited = 500

// edit has the person change the rule of a question, until it is one that allows what is asked for. Escape leaves
// it as it was.
func (a *Asker) edit(ctx context.Context, keys *keyboard, q sandbox.NetworkQuestion, rule string) (string, error) {
	fmt.Fprint(a.tty, "\r\x1b[K  edit the rule, as in *.example.com:443 or GET example.com:443/files/* (enter: accept, escape: leave it)\n")
	for text := rule; ; {
		key, err := keys.next(ctx, func() { a.editLine(text) })
		if err != nil {
			return "", err
		}
		switch {
		case key == keyEscape:
			return rule, nil
		case key == '\n', key == '\r':
			edited, err := editedRule(text, q)
			if err == nil {
				return edited, nil
			}
			fmt.Fprintf(a.tty, "\r\x1b[K  %s\n", a.streams.Safe(err.Error()))
		case key == keyBackspace, key == keyCtrlH:
			text = text[:max(len(text)-1, 0)]
		case key == keyCtrlU:
			text = ""
		case ' ' <= key && key <= '~' && len(text) < maxEdited:
			text += string(key)
		}
	}
}

// editLine writes the line that is edited, over the one before: its end, if it is long.
func (a *Asker) editLine(text string) {
	fmt.Fprintf(a.tty, "\r\x1b[K  %-9s%s", "rule", a.streams.Safe(text[max(len(text)-maxPlain, 0):]))
}

// editedRule returns the one form of a rule that allows what a question is about.
func editedRule(text string, q sandbox.NetworkQuestion) (string, error) {
	rule, err := network.ParseRule(strings.TrimSpace(text))
	if err != nil {
		return "", err
	}
	only := &network.Policy{Allow: []network.Rule{rule}}
	v := only.Connect(q.Host, q.Port)
	if v.Allowed && q.Method != "" {
		v = only.Request(q.Host, q.Port, q.Method, q.Path)
	}
	if !v.Allowed {
		return "", fmt.Errorf("the rule %s is not for what is asked: %s", rule, v)
	}
	return rule.String(), nil
}

// text is a question, in lines of at most 80 columns where names allow it.
func (a *Asker) text(q sandbox.NetworkQuestion) string {
	var b strings.Builder
	wants := "the session wants to reach"
	if q.Proposed {
		wants = "the agent asks for"
	}
	fmt.Fprintf(&b, "\r\x1b[Ksandboxbash: %s %s:%d\n", wants, a.plain(q.Host), q.Port)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %-9s%s\n", name, value)
		}
	}
	row("request", strings.TrimSpace(q.Method+" "+a.plain(q.Path)))
	row("reason", a.plain(q.Reason))
	row("command", a.plain(q.Command))
	row("rule", a.plain(q.Rule))
	return b.String()
}

// maxPlain is how many characters of a text a question shows: with its name it fits a line.
const maxPlain = 68

// plain is a text from inside as a part of a line.
func (a *Asker) plain(text string) string {
	text = a.streams.Safe(text)
	if r := []rune(text); len(r) > maxPlain {
		return string(r[:maxPlain/2-1]) + "..." + string(r[len(r)-maxPlain/2+2:])
	}
	return text
}

// prompt writes the line with the choices, over the one before.
func (a *Asker) prompt(ctx context.Context) {
	left := ""
	if end, ok := ctx.Deadline(); ok {
		left = fmt.Sprintf(", no in %d s", int(max(time.Until(end), 0)/time.Second))
	}
	fmt.Fprintf(a.tty, "\r\x1b[K  allow? [o]nce [s]ession [a]lways [e]dit [n]o (default no%s): ", left)
}

// say tells what came of the answer, and writes the rule into the configuration for always. If that fails,
// the answer is for the session.
func (a *Asker) say(answer *sandbox.NetworkAnswer, rule string) {
	text := map[sandbox.NetworkScope]string{
		"": "no", sandbox.AllowOnce: "allowed until the command ends", sandbox.AllowSession: "allowed for this session", sandbox.AllowAlways: "allowed, also for later sessions",
	}[answer.Scope]
	if answer.Scope == sandbox.AllowAlways {
		path := a.cfg.WritableFile()
		if err := config.AddAllow(path, rule); err != nil {
			answer.Scope = sandbox.AllowSession
			text = "allowed for this session; not stored: " + err.Error()
		} else {
			text += ": " + path
		}
	}
	_, _ = io.WriteString(a.tty, "\r\x1b[K  "+a.streams.Safe(text)+"\n")
}

// WritableFile is the configuration file for what the user adds: the one that was read, or else the
// user's own.
func (c *Configuration) WritableFile() string {
	if c.File != "" {
		return c.File
	}
	return filepath.Join(c.env.userDir("XDG_CONFIG_HOME", ".config"), "sandboxbash", "config.yaml")
}
