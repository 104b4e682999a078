package serve

import (
	"slices"
	"sync"
	"testing"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Options.Kept is called with a session whose client has gone if its workspace is
// kept. Sessions that were stopped, or only opened, are not kept.
func TestRPCKept(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var told []string
	c := connect(t, func(o *Options) {
		o.Kept = func(i sandbox.Info) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, i.ID)
		}
	})
	c.hello("")
	c.ask("session/start", `{}`)
	c.ask("session/start", `{}`)
	c.ask("session/start", `{}`)
	c.ask("session/attach", `{"session":"0199"}`)
	var ids []string
	for i := range 4 {
		s := c.host.session(t, i)
		ids = append(ids, s.id)
		s.mu.Lock()
		s.changed = i != 0
		s.mu.Unlock()
	}
	c.ask("session/stop", `{"session":"`+ids[1]+`"}`)
	if err := c.end(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(told, ids[2:3]) {
		t.Errorf("told of %q; want %q: it has changed, and was not stopped", told, ids[2:3])
	}
}
