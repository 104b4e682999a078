// Package policy decides whether a script may be run at all. It is a guard rail
// that steers an agent, not a security boundary: the container is.
package policy

import (
	"context"
	"fmt"
)

// Check looks at a script before anything runs. It returns nil to let it run, a
// *Denial to refuse it, and any other error if it cannot decide, which refuses
// it too. It may be called concurrently.
type Check func(ctx context.Context, script string) error

// Denial is a refusal with its reason.
type Denial struct {
	Rule        string // the name of the rule that matched
	Reason      string
	Alternative string // what to do instead; may be empty
}

func (d *Denial) Error() string {
	if d.Alternative == "" {
		return fmt.Sprintf("denied by rule %s: %s (a guard rail, not a security boundary)", d.Rule, d.Reason)
	}
	return fmt.Sprintf("denied by rule %s: %s; instead: %s (a guard rail, not a security boundary)", d.Rule, d.Reason, d.Alternative)
}
