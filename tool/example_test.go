package tool_test

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/tool"
)

// A host plans a call, runs the command wherever it likes, and words the outcome.
func Example() {
	contract, err := tool.Parse("agent")
	if err != nil {
		panic(err)
	}
	host := tool.Host{Settings: tool.DefaultSettings(), Dir: "/workspace"}
	plan := contract.Plan(json.RawMessage(`{"command": "cd src && false", "timeout": 7200}`), host)
	if result, refused := plan.Refused(); refused {
		fmt.Println(result.Text)
		return
	}
	fmt.Printf("run %q in %s for %v\n", plan.Command, plan.Dir, plan.Timeout.Duration())

	result := contract.Result(plan, tool.Outcome{Reason: exec.Exited, Code: 1, Elapsed: 20 * time.Millisecond})
	fmt.Println(result.Text)
	// Output:
	// run "false" in /workspace/src for 1h0m0s
	// (no output)
	//
	// Wall time: 0.02 seconds
	// Timeout clamped to 3600s (requested 7200s; allowed range 1-3600s).
	//
	// Command exited with code 1
}

func ExampleContract_plain() {
	contract, err := tool.Parse("plain")
	if err != nil {
		panic(err)
	}
	plan := contract.Plan(json.RawMessage(`{"command": ""}`), tool.Host{})
	result, _ := plan.Refused()
	fmt.Println(result.Text)
	// Output: {"error":"Command cannot be empty"}
}
