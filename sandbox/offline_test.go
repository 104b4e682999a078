package sandbox

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/sink"
)

// The texts are those of the programs, as they wrote them in a session without a network.
func TestSaysOffline(t *testing.T) {
	t.Parallel()
	far := strings.Repeat("x", 2*offlineTail)
	for _, row := range []struct {
		text string
		want bool
	}{
		{"curl: (6) Could not resolve host: example.com\n", true},
		{"fatal: unable to access 'https://example.com/': Could not resolve host: example.com\n", true},
		{"wget: unable to resolve host address 'example.com'\n", true},
		{"wget: bad address 'example.com'\n", true},
		{"socket.gaierror: [Errno -3] Temporary failure in name resolution\n", true},
		{"ssh: Could not resolve hostname example.com: Temporary failure in name resolution\n", true},
		{"W: Failed to fetch http://deb.debian.org/  Temporary failure resolving 'deb.debian.org'\n", true},
		{"npm error code EAI_AGAIN\nnpm error request to https://registry.npmjs.org/x failed, reason: getaddrinfo EAI_AGAIN registry.npmjs.org\n", true},
		{"go: x: dial tcp: lookup proxy.golang.org: no such host\n", true},
		{"dial udp 10.0.0.2:53: connect: network is unreachable\n", true},
		{"error: failed to lookup address information: Try again\n", true},
		{"java.net.UnknownHostException: repo.maven.apache.org\n", true},
		{"FAIL TestX\n", false},
		{"", false},
		{"curl: (7) Failed to connect to 127.0.0.1 port 80: Connection refused\n", false},
		{"Could not resolve host: example.com\n" + far, false}, // it went on for long
		{far + "Could not resolve host: example.com\n", true},
	} {
		if got := saysOffline(row.text); got != row.want {
			t.Errorf("saysOffline(%.60q) = %t; want %t", row.text, got, row.want)
		}
	}
}

func TestOffline(t *testing.T) {
	t.Parallel()
	const text = "curl: (6) Could not resolve host: example.com"
	both := []sink.Output{{Stdout: sink.Stream{Head: text}}, {Stderr: sink.Stream{Head: text}}}
	for _, row := range []struct {
		name string
		st   exec.Status
		want bool
	}{
		{"failed", exec.Status{Reason: exec.Exited, Code: 6}, true},
		{"retried to its timeout", exec.Status{Reason: exec.TimedOut}, true},
		{"succeeded", exec.Status{Reason: exec.Exited}, false},
		{"cancelled", exec.Status{Reason: exec.Cancelled}, false},
		{"killed", exec.Status{Reason: exec.Signalled, Signal: 9}, false},
	} {
		for _, out := range both {
			if got := offline(row.st, out); got != row.want {
				t.Errorf("%s: offline() = %t; want %t", row.name, got, row.want)
			}
		}
		if offline(row.st, sink.Output{}) {
			t.Errorf("%s: offline() without output = true", row.name)
		}
	}
}

// A result has the hint only where nothing of the session's network knows better.
func TestRunOffline(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		spec Spec
		want bool
	}{
		{"no network", Spec{}, true},
		{"no rules so far", Spec{Detached: true}, true},
		{"the engine's network", Spec{Network: NetworkBridge}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFakeEngine(t)
				d.on = func(f *fakeRunner, _ wire.Request) {
					const text = "Could not resolve host: example.com\n"
					f.send(wire.TypeStdout, []byte(text))
					f.send(wire.TypeExit, wire.Exit{Seq: f.current.Seq, Code: 6, Stdout: uint64(len(text))}.Append(nil))
				}
				e := New(d, &fakeImages{note: "an image"}, Options{})
				s, err := e.Start(t.Context(), row.spec)
				if err != nil {
					t.Fatal(err)
				}
				res, err := s.Run(t.Context(), Command{Script: "curl example.com"})
				if err != nil || res.Code != 6 || res.Offline != row.want {
					t.Errorf("Run() = %+v, %v; want Offline %t", res.Status, err, row.want)
				}
				standing := []string{"an image"}
				if row.spec.Network == NetworkBridge {
					standing = append(standing, bridgeNote)
				}
				if got := s.StandingNotes(); !slices.Equal(got, standing) {
					t.Errorf("StandingNotes() = %q; want %q", got, standing)
				}
				if err := e.Close(t.Context()); err != nil {
					t.Errorf("Close() = %v", err)
				}
			})
		})
	}
}
