package sandbox_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// attributions are the commands of a session by their ids, and the connections by their hosts.
type attributions struct {
	mu       sync.Mutex
	commands map[string]string             // guarded by mu
	made     map[string]sandbox.Connection // guarded by mu
}

func (a *attributions) Intend(_ context.Context, o sandbox.Observation) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o.Kind == sandbox.EventCommand {
		a.commands[o.ID], _ = o.Command(1 << 10)
	}
	return nil
}

func (a *attributions) Note(o sandbox.Observation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o.Connection != nil && o.Connection.Port != 0 {
		a.made[o.Connection.Host] = *o.Connection
	}
}

// Each connection is recorded with the command that made it, also of a child and of a command that runs at
// the same time as others.
func TestAttribution(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(2 * time.Second) // the owner is looked for next to the connection
		fmt.Fprint(w, "here")
	}))
	t.Cleanup(server.Close)
	at := netip.MustParseAddrPort(server.Listener.Addr().String())
	hosts := names{"a.test", "b.test", "child.test"}
	for _, profile := range []sandbox.Profile{sandbox.Strict, sandbox.Dev} {
		t.Run(string(profile), func(t *testing.T) {
			t.Parallel()
			client := dockertest.Connect(t)
			seen := &attributions{commands: map[string]string{}, made: map[string]sandbox.Connection{}}
			e := newEngine(client, resolver(t, client), sandbox.Options{Resolver: hosts, Observer: seen})
			spec := sandbox.Spec{Profile: profile, Allow: rules(t, at.String())}
			for _, host := range hosts {
				spec.Allow = append(spec.Allow, rules(t, fmt.Sprintf("%s:%d", host, at.Port()))...)
			}
			s := startIn(t, client, e, spec)
			var commands sync.WaitGroup
			for _, host := range hosts {
				commands.Go(func() {
					script := fmt.Sprintf("curl -sS http://%s:%d/", host, at.Port())
					if host == "child.test" {
						script = "bash -c 'setsid bash -c \"" + script + "\" & wait'"
					}
					if res, err := s.Run(t.Context(), sandbox.Command{Script: script}); err != nil || res.Output.Stdout.Text() != "here" {
						t.Errorf("%s: %q, %q, %v", host, res.Output.Stdout.Text(), res.Output.Stderr.Text(), err)
					}
				})
			}
			commands.Wait()
			for _, host := range hosts {
				var made sandbox.Connection
				for range 400 { // the record comes with the connection's end, which the command does not wait for
					seen.mu.Lock()
					made = seen.made[host]
					seen.mu.Unlock()
					if made.Host != "" {
						break
					}
					time.Sleep(50 * time.Millisecond)
				}
				seen.mu.Lock()
				command := seen.commands[made.Command]
				seen.mu.Unlock()
				if !strings.Contains(command, host) {
					t.Errorf("the connection to %s is recorded as that of %q, which is %q", host, made.Command, command)
				}
			}
		})
	}
}
