package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Policy decides about scripts. A nil Policy allows all of them. It may be used
// concurrently.
type Policy struct {
	interceptor *interceptor
	on          map[string]bool // the safety rules that are switched on, by id
	watches     bool            // files that are written to matter to one of them
	mode        Mode
}

// New compiles a policy and starts nothing. The warnings are for interceptor
// rules that are left out because they cannot be compiled.
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
	p := &Policy{interceptor: ic, on: enabledRules(o.Checks, o.Sets), mode: o.Mode}
	p.watches = slices.Contains(o.Sets, setDisk) || slices.Contains(o.Sets, setEnv)
	return p, warnings, nil
}

func known(what string, names, all []string) error {
	for _, n := range names {
		if !slices.Contains(all, n) {
			return fmt.Errorf("policy: there is no %s %q: there are %s", what, n, strings.Join(all, ", "))
		}
	}
	return nil
}

// Check decides whether a script may run. It looks at all of it, however early it
// is sure: what is denied always wins over what is opaque. No input makes it
// panic or take long.
func (p *Policy) Check(in Input) Decision {
	if p == nil {
		return Decision{Verdict: Allow}
	}
	return p.look(in, nil)
}

// Explain tells what Check sees.
func (p *Policy) Explain(in Input) Explanation {
	root := &Node{Children: []*Node{}}
	if p == nil {
		p = &Policy{mode: Standard}
	}
	d := p.look(in, root)
	return Explanation{Decision: d, Commands: root.Children}
}

// look does the work of Check; root, if not nil, is given the commands seen.
func (p *Policy) look(in Input, root *Node) Decision {
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

// safety decides by the commands of a script.
func (p *Policy) safety(s *script, root *Node) (d Decision) {
	// A fault of ours must not end a server, and must not let a script pass as
	// looked at. Tests fail on it.
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
	switch {
	case w.denial != nil:
		r := ruleByID[w.denial.rule]
		return Decision{
			Verdict: Deny, Blocked: true, Layer: Safety, Rule: w.denial.rule,
			Position: positionAt(s.text, w.denial.at), Reason: w.denial.reason, Message: r.text(),
		}
	case w.run.over != nil:
		return p.tooComplex(w.run.over)
	case w.opaque != nil:
		return p.opaque(s.text, w.opaque)
	}
	return Decision{Verdict: Allow}
}

func (p *Policy) tooComplex(l *limit) Decision {
	d := Decision{Verdict: TooComplex, Blocked: p.mode == Guarded, Layer: Safety, Rule: tooComplexID, Reason: l.reason()}
	if d.Blocked {
		d.Message = "permission denied: " + d.Reason + ", and is not run unread. Split it into smaller scripts"
	}
	return d
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
