// Package policy decides whether a script may be run at all. It is a guard rail
// that steers an agent, not a security boundary: the container is.
//
// A Policy has three layers, each of which may be empty: the interceptor, regular
// expressions over the script's text that name a better tool; safety rules over
// the commands that the script is seen to run; and what is done with a script
// whose commands cannot all be known. Nothing is executed, and no file is read.
package policy

import (
	"fmt"
)

// Verdict is what a policy thinks of a script.
type Verdict string

const (
	// Allow means that no rule matched and every command is known.
	Allow Verdict = "allow"
	// Deny means that a rule matched.
	Deny Verdict = "deny"
	// Opaque means that no rule matched what is known, and that not all is: a
	// command's name or a shell's script is made at run time, or the script cannot
	// be parsed.
	Opaque Verdict = "opaque"
	// TooComplex means that the script is beyond a limit and was not looked at. It
	// counts as opaque.
	TooComplex Verdict = "too_complex"
)

// Layer is the part of a policy that decided.
type Layer string

// The layers that can decide.
const (
	Interceptor Layer = "interceptor"
	Safety      Layer = "safety"
)

// Mode says what is done with what is opaque.
type Mode string

const (
	// Standard runs it: the container is the boundary. Its decision says so.
	Standard Mode = "standard"
	// Guarded refuses it.
	Guarded Mode = "guarded"
)

// Position is a place in a script. The zero value is none.
type Position struct {
	Offset int `json:"offset"` // bytes, from 0
	Line   int `json:"line"`   // from 1
	Column int `json:"column"` // bytes, from 1
}

func (p Position) String() string { return fmt.Sprintf("%d:%d", p.Line, p.Column) }

// Decision is what Check has to say of a script.
type Decision struct {
	Verdict Verdict `json:"verdict"`
	Blocked bool    `json:"blocked"` // the script must not run
	// The following are of the rule that decided, or of the first opaque place.
	Layer    Layer    `json:"layer"`
	Rule     string   `json:"rule"` // its id; of an opaque place, its kind
	Position Position `json:"position"`
	Reason   string   `json:"reason"`  // why, in a few words, for a person
	Tool     string   `json:"tool"`    // what the agent should use instead; may be ""
	Message  string   `json:"message"` // what the agent is told, exactly; "" unless blocked
}

// Denial is a decision to refuse a script.
type Denial struct{ Decision }

func (d *Denial) Error() string {
	return fmt.Sprintf("denied by the policy (%s): %s", d.Rule, d.Message)
}

// Options of a Policy. Zero values switch a layer off.
type Options struct {
	Rules  []Rule   // the interceptor's, in order; the first that matches wins
	Tools  []string // that the agent has: a rule is considered only if its tool is there
	Match  Match
	Strict bool // a rule that cannot be compiled is an error
	// Checks are the three safety checks of contract modes, and Sets the further
	// rule sets, by name: see CheckNames and SetNames.
	Checks []string
	Sets   []string
	Mode   Mode // "": Standard
}

// Input is a script to be looked at.
type Input struct {
	Script string // exactly what will run
	// Original is the command as the agent wrote it, if that is not Script. The
	// interceptor looks at both, and its message repeats this one.
	Original string
}

// Warning says that a part of a policy is not in force.
type Warning struct {
	Rule string // the id of the interceptor rule that is left out
	Text string // which rule, and why
}
