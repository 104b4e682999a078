package sandbox_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/network/gateway"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// A command that listens at a name's port first gets no connection that is meant for the name: the name is
// not known until the port is free, and the result says why.
func TestNetworkPortTaken(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"0.0.0.0", "::"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			s, url := networked(t, sandbox.Spec{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") }))
			port := url[strings.LastIndex(url, ":")+1:]
			script(t, s, fmt.Sprintf(`python3 -c '
import socket
s = socket.socket(socket.AF_INET6 if ":" in %[1]q else socket.AF_INET)
s.bind((%[1]q, %[2]s))
s.listen(5)
open("taken", "w").close()
while True: s.accept()[0].sendall(b"HTTP/1.0 200 OK\r\n\r\nforged")
' >log 2>&1 & echo $! >pid; until [ -e taken ]; do sleep 0.05; done`, at, port))
			res, err := s.Run(t.Context(), sandbox.Command{Script: "curl -sS " + url, Timeout: time.Minute})
			const notResolved = 6 // CURLE_COULDNT_RESOLVE_HOST
			if err != nil || res.Code != notResolved {
				t.Fatalf("curl: code %d, %q, %v; want %d", res.Code, res.Output.Stdout.Text(), err, notResolved)
			}
			if res.Network == nil || len(res.Network.Denied) != 1 || res.Network.Denied[0].Reason != gateway.ReasonPortTaken {
				t.Errorf("the result says of the network: %+v; want that the port is taken", res.Network)
			}
			if got := script(t, s, "kill $(cat pid); for i in $(seq 100); do curl -sS "+url+" 2>/dev/null && break; sleep 0.1; done"); got != "here" {
				t.Errorf("once the port is free curl prints %q; want here", got)
			}
		})
	}
}

// Commands cannot take the resolver's port, nor kill what carries connections, in a strict session.
func TestNetworkHostileCommands(t *testing.T) {
	t.Parallel()
	s, url := networked(t, sandbox.Spec{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") }))
	if got := script(t, s, `python3 -c '
import socket
for family, kind, addr in [
    (socket.AF_INET, socket.SOCK_STREAM, "127.0.0.1"), (socket.AF_INET, socket.SOCK_DGRAM, "127.0.0.1"),
    (socket.AF_INET, socket.SOCK_STREAM, "0.0.0.0"), (socket.AF_INET, socket.SOCK_DGRAM, "0.0.0.0"),
    (socket.AF_INET6, socket.SOCK_STREAM, "::"), (socket.AF_INET6, socket.SOCK_DGRAM, "::")]:
    for option in [0, socket.SO_REUSEADDR, socket.SO_REUSEPORT]:
        s = socket.socket(family, kind)
        if option: s.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            s.bind((addr, 53))
            if kind == socket.SOCK_STREAM: s.listen(5)
            print("took", addr, kind, option)
        except OSError as e: pass
'`); got != "" {
		t.Errorf("port 53: %q; want that all are refused", got)
	}
	for _, kill := range []string{"kill -9 -1", "pkill -9 -f runner", "for p in /proc/[0-9]*; do kill -9 ${p#/proc/}; kill -STOP ${p#/proc/}; done"} {
		if _, err := s.Run(t.Context(), sandbox.Command{Script: kill, Timeout: time.Minute}); err != nil {
			t.Errorf("%s: %v", kill, err)
		}
		res, err := s.Run(t.Context(), sandbox.Command{Script: "curl -sS " + url, Timeout: time.Minute})
		if err != nil || res.Output.Stdout.Text() != "here" {
			t.Fatalf("after %s curl prints %q, %v; want here", kill, res.Output.Stdout.Text()+res.Output.Stderr.Text(), err)
		}
		if res.Network != nil && res.Network.Lost {
			t.Errorf("after %s connections were lost: %+v", kill, res.Network)
		}
	}
}
