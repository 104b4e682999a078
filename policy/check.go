package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Policy decides about scripts. A nil Policy allows all of them. A Policy may be used
// concurrently.
type Policy struct {
	interceptor *interceptor
	on          map[string]bool // the safety rules that are switched on, by id
	watches     bool            // one of those rules looks at the files that are written
	mode        Mode
	commands    map[string]*command
}

// New compiles a policy. It starts nothing. It returns a warning for each interceptor rule
// that it leaves out because the rule cannot be compiled. The first rule with a pattern
// that needs backtracking changes the clock period of package regexp2, which the whole
// process shares.
func New(o Options) (*Policy, []Warning, error) {
	if err := known("safety check", o.Checks, CheckNames()); err != nil {
		return nil, nil, err
	}
	if err := known("set of safety rules", o.Sets, SetNames()); err != nil {
		return nil, nil, err
	}
	switch o.Mode {
	case "":
		o.Mode = Standard
	case Standard, Guarded:
	default:
		return nil, nil, fmt.Errorf("policy: mode %q is unknown: it can be %s or %s", o.Mode, Standard, Guarded)
	}
	ic, warnings, err := newInterceptor(o.Rules, o.Tools, o.Match, o.Strict)
	if err != nil {
		return nil, nil, fmt.Errorf("policy: %w", err)
	}
	p := &Policy{interceptor: ic, on: enabledRules(o.Checks, o.Sets), mode: o.Mode, commands: knownCommands()}
	p.watches = slices.Contains(o.Sets, setDisk) || slices.Contains(o.Sets, setEnv)
	return p, warnings, nil
}

func known(what string, names, all []string) error {
	for _, n := range names {
		if !slices.Contains(all, n) {
			return fmt.Errorf("policy: the %s %q is unknown: it can be %s", what, n, strings.Join(all, ", "))
		}
	}
	return nil
}

// Check decides whether a script may run. It looks for a denial in all of the script: a
// denial takes precedence over an opaque place, wherever they are. Check does not
// panic, and its time is bounded, whatever the input is.
func (p *Policy) Check(in Input) Decision {
	if p == nil {
		return Decision{Verdict: Allow}
	}
	return p.decide(in, nil)
}

// Explain returns what Check sees and decides.
func (p *Policy) Explain(in Input) Explanation {
	root := &Node{Children: []*Node{}}
	if p == nil {
		p = &Policy{mode: Standard, commands: knownCommands()}
	}
	d := p.decide(in, root)
	return Explanation{Decision: d, Commands: root.Children}
}

// decide does the work of Check. If root is not nil, the commands become its children.
func (p *Policy) decide(in Input, root *Node) Decision {
	if len(in.Script) > maxScript || len(in.Original) > maxScript {
		return p.tooComplex(tooLong)
	}
	s := parse(in.Script)
	hit, matched := p.interceptor.check(in, s.segments)
	if matched && !hit.undecided && root == nil {
		return hit.decision(p.mode)
	}
	d := p.safety(s, root)
	if matched && (d.Verdict != Deny || !hit.undecided) {
		d = hit.decision(p.mode)
	}
	return d
}

// safety decides by the commands that a script runs.
func (p *Policy) safety(s *script, root *Node) (d Decision) {
	// A bug of ours must neither end a server nor let a script pass as looked at. It
	// makes the script opaque; tests fail on it.
	defer func() {
		if r := recover(); r != nil {
			d = p.opaque(s.text, &finding{rule: opaqueFault, reason: fmt.Sprint(r)})
		}
	}()
	if s.over != nil {
		return p.tooComplex(s.over)
	}
	w := newWalker(p, s, root)
	w.script(s)
	w.evaluated()
	switch {
	case w.denial != nil:
		r := ruleByID[w.denial.rule]
		return Decision{
			Verdict: Deny, Blocked: true, Layer: Safety, Rule: w.denial.rule,
			Position: positionAt(s.text, w.denial.at), Reason: w.denial.reason, Message: r.text(),
		}
	case w.over != nil:
		return p.tooComplex(w.over)
	case w.opaque != nil:
		return p.opaque(s.text, w.opaque)
	}
	return Decision{Verdict: Allow}
}

func (p *Policy) tooComplex(l *limit) Decision {
	d := Decision{Verdict: TooComplex, Blocked: p.mode == Guarded || p.refuses(), Layer: Safety, Rule: tooComplexID, Reason: l.reason()}
	if d.Blocked {
		d.Message = "permission denied: " + d.Reason + ", and a script must be read before it runs. Split it into smaller scripts"
	}
	return d
}

// refuses reports whether the policy has a rule, which could refuse a script.
func (p *Policy) refuses() bool {
	return len(p.on) > 0 || p.interceptor != nil && len(p.interceptor.rules) > 0
}

func (p *Policy) opaque(text string, f *finding) Decision {
	d := Decision{
		Verdict: Opaque, Blocked: p.mode == Guarded, Layer: Safety, Rule: f.rule,
		Position: positionAt(text, f.at), Reason: f.reason,
	}
	if d.Blocked {
		k := opaqueByID[f.rule]
		d.Message = fmt.Sprintf("permission denied: at %v %s (%s). %s", d.Position, k.what, f.reason, k.hint)
	}
	return d
}
