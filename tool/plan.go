package tool

import (
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/policy"
)

// Route is where and how a plan runs.
type Route string

// Routes.
const (
	Foreground Route = "foreground"
	Terminal   Route = "terminal"   // in a terminal of the session
	InClient   Route = "client"     // in the client's terminal
	Background Route = "background" // the call returns when it has started
	Managed    Route = "managed"    // in the foreground for Plan.Wait, then a job
)

// Plan is what a call would run, or why it runs nothing.
type Plan struct {
	Contract Name
	Original string // the command as the agent wrote it
	Command  string // what would run
	Dir      string // working directory; "" is the session's
	Head     *int64 // of the result's text
	Tail     *int64
	// Env holds the variables that the contract sets; they override the session's.
	Env     Env
	Timeout Timeout
	Route   Route
	Wait    time.Duration // of Managed
	// Notices are for the model, along with the output.
	Notices    []string
	Expansions []Expansion

	// Denial is set if the policy refuses the command, and Err if the call is invalid.
	// Nothing runs if one of them is set.
	Denial *Denial
	Err    *Error
	// Decided is the policy's decision; the zero value if the policy was not asked.
	Decided policy.Decision
	// Warnings are for the user who configures the program.
	Warnings []string
}

// Denial is a policy's refusal.
type Denial struct {
	Message string `json:"message"` // the exact text for the model
	Rule    string `json:"rule"`
	Layer   string `json:"layer"`
	Tool    string `json:"suggestedTool,omitempty"` // what to use instead
	Reason  string `json:"reason"`
}

// Refused reports whether nothing runs, and returns the result if so.
func (p Plan) Refused() (Result, bool) {
	var text string
	switch {
	case p.Err != nil:
		text = p.Err.Text
	case p.Denial != nil:
		text = p.Denial.Message
	default:
		return Result{}, false
	}
	if p.Contract == Plain {
		return PlainError(text), true
	}
	r := Result{Text: text, IsError: true}
	if p.Contract == Agent {
		r.Thrown = ToolError
	}
	return r, true
}

// Script returns what a session runs: the command, after the prefix if there is one.
// An empty command becomes one that does nothing and succeeds, as with bash -c; a
// session would refuse it.
func (p Plan) Script(prefix string) string {
	switch {
	case prefix != "":
		return prefix + " " + p.Command
	case strings.TrimFunc(p.Command, isSpace) == "":
		return ":"
	}
	return p.Command
}

// PlanRow is a plan as `sandboxbash plan` prints it.
type PlanRow struct {
	Command        *string     `json:"command"` // null if there is an error
	Cwd            *string     `json:"cwd"`     // null for the session's own
	Head           *int64      `json:"head"`
	Tail           *int64      `json:"tail"`
	Env            Env         `json:"env"`
	TimeoutSeconds *float64    `json:"timeoutSeconds"`
	Notices        []string    `json:"notices"`
	Denial         *Denial     `json:"denial"`
	Error          *string     `json:"error"`
	Expansions     []Expansion `json:"expansions,omitempty"`
}

// ErrorRow is the row for a call that has no plan.
func ErrorRow(text string) PlanRow {
	return PlanRow{Env: Env{}, Notices: []string{}, Error: &text}
}

// Row is the plan as a row.
func (p Plan) Row() PlanRow {
	if p.Err != nil {
		return ErrorRow(p.Err.Text)
	}
	row := PlanRow{
		Command: &p.Command, Head: p.Head, Tail: p.Tail, Env: p.Env, TimeoutSeconds: &p.Timeout.Seconds,
		Notices: p.Notices, Denial: p.Denial, Expansions: p.Expansions,
	}
	if p.Dir != "" {
		row.Cwd = &p.Dir
	}
	if row.Env == nil {
		row.Env = Env{}
	}
	if row.Notices == nil {
		row.Notices = []string{}
	}
	return row
}

// fail makes the plan one that is refused. An error that is not an *Error comes from
// the host, and keeps its text.
func (p Plan) fail(err error) Plan {
	if e, ok := err.(*Error); ok { //nolint:errorlint // an *Error is never wrapped: its text is exact
		p.Err = e
	} else {
		p.Err = &Error{Text: err.Error()}
	}
	return p
}

// decide asks rules, which may be nil, whether the command may run.
func (p *Plan) decide(rules policy.Checker) {
	d, err := policy.Admit(rules, policy.Input{Script: p.Command, Original: p.Original})
	p.Decided = d
	if err != nil {
		p.Denial = &Denial{Message: d.Message, Rule: d.Rule, Layer: string(d.Layer), Tool: d.Tool, Reason: d.Reason}
	}
}
