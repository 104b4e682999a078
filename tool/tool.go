// Package tool implements the three contracts under which agents use a command line.
// A contract describes the tool to a model, reads its arguments, and words its results.
//
//	arguments ─ Plan ─┬─ denial, error
//	                  └─ command ─ (a session runs it) ─ Outcome ─ Result
//
// A contract runs nothing and knows no engine: package agent runs plans. Each contract
// has a file that follows its document: agent.go, plain.go and modes.go.
package tool

import (
	"encoding/json"
	"fmt"

	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Contract is one of the three. Its methods may be called concurrently.
type Contract interface {
	// Definition describes the tool to a model.
	Definition(host Host) Definition
	// Plan decides everything about a call that can be decided before it runs: which
	// command would run, or why none would. It runs nothing.
	Plan(arguments json.RawMessage, host Host) Plan
	// Result words the outcome of a plan.
	Result(plan Plan, outcome Outcome) Result
}

// Name is the name of a contract.
type Name string

// Names of the contracts.
const (
	Agent Name = "agent" // one text, details; timeout, cwd, environment, jobs, terminals
	Plain Name = "plain" // stdout, stderr and exit code
	Modes Name = "modes" // one text; three modes instead of a timeout
)

// Parse returns the contract with the name, which may be its letter in the
// specification: A, B or C.
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

// Names of the tools.
const (
	BashName = "bash" // of every contract
	JobName  = "job"  // contract agent, if its settings allow jobs
)

// Definitions returns the tools of a contract.
func Definitions(contract Name, h Host) ([]Definition, error) {
	c, err := Parse(string(contract))
	if err != nil {
		return nil, err
	}
	all := []Definition{c.Definition(h)}
	if d, ok := (JobTool{}).Definition(h.Settings); ok && c == (agentContract{}) {
		all = append(all, d)
	}
	return all, nil
}

// Definition describes a tool.
type Definition struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Strict       bool            `json:"strict,omitempty"`
	// Exclusive means that a session runs one call of the tool at a time.
	Exclusive bool `json:"-"`
}

// Host is what a contract knows of the program and the session that use it. The zero
// value is a session with default settings that can do everything.
type Host struct {
	Settings Settings
	Tools    []string // names of the tools that the agent has
	URLs     URLs

	// Dir and Home are directories of the session. Where Dir is "", a plan shows
	// the working directory as the agent gave it.
	Dir, Home string

	UI    bool // there is a user who can use a terminal
	NoPTY bool // PI_NO_PTY is "1": commands get no terminal
	// Terminal means that commands may run in the client's own terminal.
	Terminal bool
	NoJobs   bool // the session has no job manager

	// Policy decides whether a command may run; nil is the contract's own, by the
	// settings.
	Policy policy.Checker
	// Place puts what a URL stands for into the session, and returns its path there.
	// Nil means that the session sees the path of the host.
	Place func(Expansion) (string, error)
}

// Error is a contract's refusal of a call. The model gets its text unchanged.
type Error struct{ Text string }

func (e *Error) Error() string { return e.Text }

// Refusef makes an Error of a format, as fmt.Sprintf does.
func Refusef(format string, args ...any) *Error {
	return &Error{Text: fmt.Sprintf(format, args...)}
}

// Thrown says whether a contract returns a result or throws it as an error. Protocols
// without exceptions need not tell them apart.
type Thrown string

// Values of Thrown.
const (
	Returned  Thrown = ""      // it is a result, whether or not IsError
	ToolError Thrown = "error" // the tool failed
	ToolAbort Thrown = "abort" // the caller has cancelled
)

// Result is what a model gets.
type Result struct {
	Text    string
	IsError bool
	Thrown  Thrown       // contract agent
	Details *Details     // contract agent; the model does not see them
	Plain   *PlainOutput // contract plain; Text is its JSON
	// JobDetails is set by the tool job. The model does not see it.
	JobDetails *JobDetails
	// Receipt is that of a command that has ended in the session. The model does not
	// see it.
	Receipt *sandbox.Receipt
}

// thrown returns the result for an error that ends a call.
func thrown(how Thrown, text string, details *Details) Result {
	return Result{Text: text, IsError: true, Thrown: how, Details: details}
}
