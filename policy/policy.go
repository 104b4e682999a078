// Package policy decides whether a script may run. It is a guard rail that steers an
// agent, and not a security boundary: the container is the boundary.
//
// A Policy has three layers, each of which may be empty:
//
//   - the interceptor: regular expressions over the script's text, each with a better tool
//   - safety rules over the commands that the script runs
//   - the mode: what to do with a script if not all of its commands can be known
//
// The package executes nothing and reads no file. The documentation of type walker
// describes how a script is examined.
package policy

import (
	"fmt"
)

// Verdict is the outcome of a check.
type Verdict string

const (
	// Allow means that no rule matched and every command is known.
	Allow Verdict = "allow"
	// Deny means that a rule matched.
	Deny Verdict = "deny"
	// Opaque means that no rule matched what is known, and that not all is known: a
	// command's name or a shell's script is made at run time, for example, or the
	// script cannot be parsed.
	Opaque Verdict = "opaque"
	// TooComplex means that the script is beyond a limit, and that not all of it was
	// looked at. Every mode refuses it, unless the policy has no rule.
	TooComplex Verdict = "too_complex"
)

// Layer is a part of a policy.
type Layer string

// The layers that can decide.
const (
	Interceptor Layer = "interceptor"
	Safety      Layer = "safety"
)

// Mode says what to do with a script that is opaque.
type Mode string

const (
	// Standard runs an opaque script, and its decision says that it is opaque. It
	// refuses one that is too complex.
	Standard Mode = "standard"
	// Guarded refuses both, and also programs for interpreters such as python3 -c.
	Guarded Mode = "guarded"
)

// Position is a place in a script. The zero value means no place.
type Position struct {
	Offset int `json:"offset"` // bytes, from 0
	Line   int `json:"line"`   // from 1
	Column int `json:"column"` // bytes, from 1
}

func (p Position) String() string { return fmt.Sprintf("%d:%d", p.Line, p.Column) }

// Decision is the result of a check.
type Decision struct {
	Verdict Verdict `json:"verdict"`
	Blocked bool    `json:"blocked"` // the script must not run
	// The following describe the rule that decided, or the first opaque place.
	Layer    Layer    `json:"layer"`
	Rule     string   `json:"rule"` // its id, or the kind of opaque place
	Position Position `json:"position"`
	Reason   string   `json:"reason"`  // why, in a few words
	Tool     string   `json:"tool"`    // what the agent should use instead; may be ""
	Message  string   `json:"message"` // the text for the agent; "" unless blocked
}

// Denial is a decision to refuse a script.
type Denial struct{ Decision }

func (d *Denial) Error() string {
	return fmt.Sprintf("denied by the policy (%s): %s", d.Rule, d.Message)
}

// Options of a Policy. A layer whose options are zero is off.
type Options struct {
	Rules  []Rule   // of the interceptor; the first that matches decides
	Tools  []string // the agent's tools: a rule without its tool is not used
	Match  Match
	Strict bool // New fails if a rule of the interceptor cannot be compiled
	// Checks and Sets name safety rules: the checks of contract modes, and further
	// sets. See CheckNames and SetNames.
	Checks []string
	Sets   []string
	Mode   Mode // "" means Standard
}

// Input is a script to check.
type Input struct {
	Script string // exactly what will run
	// Original is the command as the agent wrote it, if that differs from Script. The
	// interceptor looks at both, and its message quotes this one.
	Original string
}

// Warning says that a rule is left out of a policy.
type Warning struct {
	Rule string // the id of the interceptor rule that is left out
	Text string // which rule, and why
}
