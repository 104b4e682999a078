package policycmd

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/internal/strictjson"
	"github.com/sandboxbash/sandboxbash/policy"
)

// scriptRow is a script to check, and what to check it with.
type scriptRow struct {
	ID        json.RawMessage `json:"id" yaml:"-"` // anything; the answer repeats it
	Command   *string         `json:"command" yaml:"command"`
	Layer     string          `json:"layer" yaml:"layer"`
	ToolNames *[]string       `json:"toolNames" yaml:"toolNames"`
	Rules     *rowRules       `json:"rules" yaml:"rules"`
	Sets      *[]string       `json:"sets" yaml:"sets"`
}

// rowRules is a list of rules, or "default".
type rowRules []policy.Rule

// rowRule is a rule as a row has it.
type rowRule struct {
	ID      string `json:"id" yaml:"id"`
	Pattern string `json:"pattern" yaml:"pattern"`
	Flags   string `json:"flags" yaml:"flags"`
	Tool    string `json:"tool" yaml:"tool"`
	Message string `json:"message" yaml:"message"`
}

var errRules = errors.New(`rules is neither "default" nor a list of {pattern, flags, tool, message}`)

// set takes the rules from a decoder of either format.
func (l *rowRules) set(decode func(any) error) error {
	var word string
	if decode(&word) == nil {
		if word != "default" {
			return errRules
		}
		*l = policy.DefaultRules()
		return nil
	}
	var list []rowRule
	if decode(&list) != nil {
		return errRules
	}
	*l = rowRules{}
	for _, r := range list {
		*l = append(*l, policy.Rule(r))
	}
	return nil
}

func (l *rowRules) UnmarshalJSON(data []byte) error {
	return l.set(func(v any) error { return strictjson.Decode(data, v) })
}

// DecisionJSON is what is said of a script. All keys are always there.
type DecisionJSON struct {
	ID            json.RawMessage `json:"id,omitempty"`
	Verdict       *policy.Verdict `json:"verdict"`
	Blocked       bool            `json:"blocked"`
	Rule          *string         `json:"rule"`
	SuggestedTool *string         `json:"suggestedTool"`
	Message       *string         `json:"message"`
	Error         string          `json:"error,omitempty"`
}

func newDecisionJSON(d policy.Decision) DecisionJSON {
	return DecisionJSON{Verdict: &d.Verdict, Blocked: d.Blocked, Rule: orNull(d.Rule), SuggestedTool: orNull(d.Tool), Message: orNull(d.Message)}
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Rows answers rows, each a script to check, and remembers the policies that they have asked
// for. It is for one goroutine.
type Rows struct {
	config config.Policy // what rows say nothing of
	note   func(text string)
	made   map[string]*policy.Policy
}

// NewRows returns what answers rows. The configuration holds for what a row says nothing of.
func NewRows(c config.Policy, note func(text string)) *Rows {
	return &Rows{config: c, note: note, made: map[string]*policy.Policy{}}
}

// MaxPolicies bounds how many policies are remembered.
const MaxPolicies = 256

// row answers a line. What cannot be checked is refused, and its answer says why.
func (p *Rows) row(line stdio.InputLine) (answer any, ok bool) {
	d, err := p.Answer(line)
	if err != nil {
		d.Blocked, d.Error = true, line.Fault(err)
	}
	return d, err == nil
}

// Answer checks the script on a line. With an error its answer says no more than the row's id.
func (p *Rows) Answer(line stdio.InputLine) (DecisionJSON, error) {
	if line.Err != nil {
		return DecisionJSON{}, line.Err
	}
	var row scriptRow
	if err := strictjson.Decode(line.Text, &row); err != nil {
		return DecisionJSON{}, err
	}
	answer := DecisionJSON{}
	d, err := p.check(row)
	if err == nil {
		answer = newDecisionJSON(d)
	}
	answer.ID = row.ID
	return answer, err
}

// check decides about a row.
func (p *Rows) check(row scriptRow) (policy.Decision, error) {
	if row.Command == nil {
		return policy.Decision{}, errors.New("it has no command")
	}
	o, err := p.options(row)
	if err != nil {
		return policy.Decision{}, err
	}
	rules, err := p.policy(o)
	if err != nil {
		return policy.Decision{}, err
	}
	if row.Layer != string(policy.Interceptor) {
		return rules.Check(inputOf(p.config, *row.Command)), nil
	}
	d := rules.Check(withoutCd(*row.Command))
	if d.Layer != policy.Interceptor && d.Verdict == policy.Opaque {
		d = policy.Decision{Verdict: policy.Allow} // the other layers were not asked for
	}
	return d, nil
}

// options is what a row is checked with.
func (p *Rows) options(row scriptRow) (policy.Options, error) {
	o := contractOptions(p.config)
	switch row.Layer {
	case "":
		if row.Rules != nil {
			o.Rules = *row.Rules
		}
	case string(policy.Interceptor):
		o.Checks, o.Sets, o.Mode = nil, nil, policy.Standard
		o.Rules = core.InterceptorRules(p.config)
		if row.Rules != nil {
			o.Rules = *row.Rules
		}
		o.Tools = core.ToolsOf(o.Rules)
	case string(policy.Safety):
		o.Rules = nil
		if p.config.Checks == nil {
			o.Checks = policy.CheckNames()
		}
	default:
		return o, fmt.Errorf("layer %q is unknown: it can be %s or %s", row.Layer, policy.Interceptor, policy.Safety)
	}
	if row.ToolNames != nil {
		o.Tools = *row.ToolNames
	}
	if row.Sets != nil && row.Layer != string(policy.Interceptor) {
		o.Sets = *row.Sets
	}
	return o, nil
}

// policy makes a policy, or finds the one that another row has had made.
func (p *Rows) policy(o policy.Options) (*policy.Policy, error) {
	b, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	if made := p.made[string(b)]; made != nil {
		return made, nil
	}
	rules, warnings, err := policy.New(o)
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		p.note(w.Text)
	}
	if len(p.made) >= MaxPolicies {
		clear(p.made)
	}
	p.made[string(b)] = rules
	return rules, nil
}
