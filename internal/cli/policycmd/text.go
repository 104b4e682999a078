package policycmd

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/policy"
)

// longDecisionJSON is a decision with what only a person asks for.
type longDecisionJSON struct {
	DecisionJSON
	Layer    policy.Layer     `json:"layer,omitempty"`
	Position *policy.Position `json:"position,omitempty"`
	Reason   string           `json:"reason,omitempty"`
}

func newLongDecisionJSON(d policy.Decision) longDecisionJSON {
	j := longDecisionJSON{DecisionJSON: newDecisionJSON(d), Layer: d.Layer, Reason: d.Reason}
	if d.Position != (policy.Position{}) {
		j.Position = &d.Position
	}
	return j
}

func (a *commands) printDecision(d policy.Decision) error {
	if a.cfg.JSON {
		return stdio.PrintJSON(a.streams.Stdout, newLongDecisionJSON(d))
	}
	_, err := io.WriteString(a.streams.Stdout, a.decisionText(d))
	return err
}

// decisionText describes the decision about a script: the verdict, what decided
// and where, and below it the message for the agent.
func (a *commands) decisionText(d policy.Decision) string {
	var b strings.Builder
	b.WriteString(string(d.Verdict))
	if d.Rule != "" {
		b.WriteString("  " + d.Rule)
	}
	if d.Position != (policy.Position{}) {
		fmt.Fprintf(&b, "  at line %d, column %d", d.Position.Line, d.Position.Column)
	}
	if d.Reason != "" {
		b.WriteString("  " + a.streams.Safe(d.Reason))
	}
	if d.Verdict != policy.Allow && !d.Blocked {
		b.WriteString("; it would run, and the result would say so")
	}
	b.WriteByte('\n')
	for line := range strings.Lines(d.Message) {
		if line = strings.TrimRight(line, "\n"); line != "" {
			b.WriteString("  " + a.streams.Safe(line) + "\n")
		}
	}
	return b.String()
}

type explanationJSON struct {
	Decision longDecisionJSON `json:"decision"`
	Commands []*policy.Node   `json:"commands"`
}

// printExplanation shows the tree of commands that a script is seen to run.
func (a *commands) printExplanation(e policy.Explanation) error {
	if a.cfg.JSON {
		return stdio.PrintJSON(a.streams.Stdout, explanationJSON{newLongDecisionJSON(e.Decision), e.Commands})
	}
	if _, err := io.WriteString(a.streams.Stdout, a.decisionText(e.Decision)); err != nil {
		return err
	}
	if len(e.Commands) == 0 {
		return nil
	}
	fmt.Fprintln(a.streams.Stdout)
	unknown := false
	err := a.streams.Table("LINE:COL\tVERDICT\tCOMMAND\tWHY", func(w io.Writer) {
		for _, n := range e.Commands {
			a.printNode(w, n, "", &unknown)
		}
	})
	if err == nil && unknown {
		_, err = fmt.Fprintln(a.streams.Stdout, "\nA word in ‹› is made when the script runs: it may be none, one or many.")
	}
	return err
}

func (a *commands) printNode(w io.Writer, n *policy.Node, indent string, unknown *bool) {
	words := make([]string, 0, len(n.Argv))
	for _, word := range n.Argv {
		text := shellWord(word.Text)
		if !word.Known {
			*unknown = true
			text = "‹" + word.Text + "›"
		}
		words = append(words, text)
	}
	command := indent
	if n.Via != "" {
		command += "[" + n.Via + "] "
	}
	command += clipped(strings.Join(words, " "))
	why := n.Rule
	if n.Reason != "" {
		why += ": " + n.Reason
	}
	fmt.Fprintf(w, "%v\t%s\t%s\t%s\n", n.Position, n.Verdict, a.cell(command), a.cell(strings.TrimPrefix(why, ": ")))
	for _, child := range n.Children {
		a.printNode(w, child, indent+"  ", unknown)
	}
}

// cell is a text on one line of a table.
func (a *commands) cell(text string) string {
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(a.streams.Safe(text))
}

// maxShownCommand bounds a command in a table; --json has all of it.
const maxShownCommand = 100 // characters

func clipped(text string) string {
	if r := []rune(text); len(r) > maxShownCommand {
		return string(r[:maxShownCommand-1]) + "…"
	}
	return text
}

// shellWord quotes a word where the shell would read another one.
func shellWord(text string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-./:=,+@%^", r)
	}
	if text != "" && strings.TrimFunc(text, plain) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// ruleJSON is a rule, and whether it is on.
type ruleJSON struct {
	Layer   string `json:"layer"` // "interceptor", "safety" or "opaque"
	Rule    string `json:"rule"`
	Set     string `json:"set,omitempty"`
	On      bool   `json:"on"`
	Text    string `json:"text"`
	Tool    string `json:"tool,omitempty"`
	Message string `json:"message"`
	Why     string `json:"why,omitempty"` // it is off
}

// opaqueLayer is what cannot be known: refused if it is on, and reported if not.
const opaqueLayer = "opaque"

// ruleList is all rules there are, and which of them are on.
func ruleList(c config.Policy) []ruleJSON {
	o := contractOptions(c)
	var list []ruleJSON
	for n, r := range core.InterceptorRules(c) {
		if r.ID == "" {
			r.ID = fmt.Sprintf("rule-%d", n+1)
		}
		j := ruleJSON{Layer: string(policy.Interceptor), Rule: r.ID, On: true, Text: r.Pattern, Tool: r.Tool, Message: r.Message}
		if r.Flags != "" {
			j.Text += " (flags " + r.Flags + ")"
		}
		_, warnings, err := policy.New(policy.Options{Rules: []policy.Rule{r}})
		switch {
		case err != nil || len(warnings) > 0:
			j.On, j.Why = false, "invalid"
		case len(o.Rules) == 0:
			j.On, j.Why = false, "policy.interceptor is off"
		case !slices.Contains(o.Tools, r.Tool):
			j.On, j.Why = false, "no tool "+r.Tool
		}
		list = append(list, j)
	}
	for _, r := range policy.RuleInfos() {
		on := slices.Contains(o.Checks, r.ID)
		if r.Set != "" {
			on = slices.Contains(o.Sets, r.Set)
		}
		list = append(list, ruleJSON{Layer: string(policy.Safety), Rule: r.ID, Set: r.Set, On: on, Text: r.Text, Message: r.Message})
	}
	for _, r := range policy.OpaqueInfos() {
		list = append(list, ruleJSON{Layer: opaqueLayer, Rule: r.ID, On: o.Mode == policy.Guarded, Text: r.Text, Message: r.Message})
	}
	return list
}

func (a *commands) printRules(c config.Policy) error {
	list := ruleList(c)
	if a.cfg.JSON {
		return stdio.PrintJSON(a.streams.Stdout, list)
	}
	return a.streams.Table("LAYER\tRULE\tON\tWHAT IT REFUSES", func(w io.Writer) {
		for _, r := range list {
			on := "on"
			switch {
			case !r.On && r.Layer == opaqueLayer:
				on = "reported"
			case !r.On:
				on = "off"
			}
			if r.Why != "" {
				on += " (" + r.Why + ")"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Layer, a.cell(r.Rule), a.cell(on), a.cell(r.Text))
		}
	})
}
