// Package tool is the three contracts under which a command line for agents is
// offered: what a model is told of the tool, what its arguments mean, and what it
// is told of the outcome.
//
//	arguments ─ Plan ─┬─ denial, error
//	                  └─ command ─ (a session runs it) ─ Outcome ─ Result
//
// A contract decides and words; it runs nothing, and knows no engine. Each is a
// file that reads like its document: agent.go, plain.go and modes.go.
package tool

import (
	"encoding/json"
	"fmt"

	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Contract is one of the three. Its methods may be called concurrently.
type Contract interface {
	// Definition is what a model is told of the tool.
	Definition(host Host) Definition
	// Plan decides everything about a call that can be decided before it runs: the
	// command that would run, or why none would. Nothing of it is run.
	Plan(arguments json.RawMessage, host Host) Plan
	// Result words what became of a plan that was run.
	Result(plan Plan, outcome Outcome) Result
}

// Name of a contract.
type Name string

// Names of the contracts.
const (
	Agent Name = "agent" // one text, details; timeout, cwd, environment, jobs, terminals
	Plain Name = "plain" // stdout, stderr and exit code
	Modes Name = "modes" // one text; three modes instead of a timeout
)

// Parse finds the contract of a name. Its letter in the specification, A, B or C,
// will do too.
func Parse(name string) (Contract, error) {
	switch name {
	case string(Agent), "A":
		return agentContract{}, nil
	case string(Plain), "B":
		return plainContract{}, nil
	case string(Modes), "C":
		return modesContract{}, nil
	}
	return nil, fmt.Errorf("unknown contract %q: it can be %s, %s or %s", name, Agent, Plain, Modes)
}

// Definition of a tool.
type Definition struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Strict       bool            `json:"strict,omitempty"`
	// Exclusive means that a session runs one call of the tool at a time.
	Exclusive bool `json:"-"`
}

// Host is what a contract may know of the place that it is used in. The zero value
// is a session whose settings are all defaults and that can do everything.
type Host struct {
	Settings Settings
	Tools    []string // names of the tools that the agent has
	URLs     URLs

	// Dir and Home are directories of the session. Where Dir is "", a plan shows
	// the working directory as the agent gave it.
	Dir, Home string

	UI    bool // somebody can use a terminal
	NoPTY bool // PI_NO_PTY is "1": nobody gets one
	// Terminal means that commands may run in the client's own terminal.
	Terminal bool
	NoJobs   bool // the session has no job manager

	// Policy decides whether a command may run; nil is the contract's own, by the
	// settings.
	Policy Checker
	// Place says where the session sees what a URL stands for, and sees to it that
	// it is there. Nil is the path on the host.
	Place func(Expansion) (string, error)
}

// Checker is a *policy.Policy.
type Checker interface {
	Check(in policy.Input) policy.Decision
}

// Error is a call that a contract refuses. What it says is for the model, exactly.
type Error struct{ Text string }

func (e *Error) Error() string { return e.Text }

func refuse(format string, args ...any) *Error {
	return &Error{Text: fmt.Sprintf(format, args...)}
}

// Thrown says how a result came to be an error. Protocols that have no exceptions
// need not tell them apart.
type Thrown string

// Ways.
const (
	Returned  Thrown = ""      // it is a result, whether or not IsError
	ToolError Thrown = "error" // the tool failed
	ToolAbort Thrown = "abort" // the caller has cancelled
)

// Result is what a model is told.
type Result struct {
	Text    string
	IsError bool
	Thrown  Thrown       // contract agent
	Details *Details     // contract agent; off the model's path
	Plain   *PlainOutput // contract plain; Text is its JSON
	// JobDetails is of the tool job; off the model's path.
	JobDetails *JobDetails
	// Receipt is of a command that has ended in the session; off the model's path.
	Receipt *sandbox.Receipt
}

// thrown is the result for an error that ends a call.
func thrown(how Thrown, text string, details *Details) Result {
	return Result{Text: text, IsError: true, Thrown: how, Details: details}
}
