//go:build linux

package user

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// What a program of the session would find at a target is told in one word for each, in the
// order of the targets.
func TestReach(t *testing.T) {
	t.Parallel()
	server := func(answer func(w http.ResponseWriter, r *http.Request)) string {
		s := httptest.NewServer(http.HandlerFunc(answer))
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	open := server(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "for ", r.Host) })
	denied := server(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Sandboxbash-Denied", "rule 1")
		w.WriteHeader(http.StatusForbidden)
	})
	forged := server(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "X-Sandboxbash-Denied: in the text") })
	const closed = "127.0.0.1:1" // tcpmux: nothing listens there
	rows := []struct{ target, want string }{
		{open, wire.TryAllowed},
		{open + " example.org", wire.TryAllowed},
		{denied, wire.TryAllowed}, // nothing was asked
		{denied + " example.org", wire.ReachDenied},
		{forged + " example.org", wire.TryAllowed},
		{closed, "ECONNREFUSED"},
		{closed + " example.org", "ECONNREFUSED"},
	}
	var args wire.ReachArgs
	var want wire.Posture
	for _, row := range rows {
		args.Targets = append(args.Targets, row.target)
		want.Add(wire.FactReach.Of(row.target), row.want)
	}
	var b bytes.Buffer
	if err := Reach(&b, wire.VerbReach.Command(&args)[1:]); err != nil || b.String() != string(want.Append(nil)) {
		t.Errorf("Reach() = %v,\n%s; want\n%s", err, b.String(), want.Append(nil))
	}
	if err := Reach(failing{}, []string{closed}); !errors.Is(err, unix.EPIPE) {
		t.Errorf("Reach() without a reader = %v; want its error", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, unix.EPIPE }

func TestReachError(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		err  error
		want string
	}{
		{&net.DNSError{IsNotFound: true}, wire.ReachNoName},
		{&net.DNSError{IsTimeout: true}, wire.ReachNoDNS},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "server misbehaving"}}, wire.ReachNoDNS},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", unix.ENETUNREACH)}, "ENETUNREACH"},
		{os.NewSyscallError("connect", unix.ETIMEDOUT), "ETIMEDOUT"},
		{os.ErrDeadlineExceeded, "ETIMEDOUT"},
		{context.DeadlineExceeded, "ETIMEDOUT"},
		{errors.New("anything"), "error"},
	} {
		if got := reachError(fmt.Errorf("x: %w", row.err)); got != row.want {
			t.Errorf("reachError(%v) = %s; want %s", row.err, got, row.want)
		}
	}
}

// A way is found without a byte being sent.
func TestWay(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	conn, err := config.ListenPacket(t.Context(), "udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	port := conn.LocalAddr().(*net.UDPAddr).Port
	if err := way(unix.AF_INET, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Errorf("way(this machine) = %v; want one", err)
	}
	if err := way(-1, &unix.SockaddrInet4{}); errnoName(err) != "EAFNOSUPPORT" && errnoName(err) != "EINVAL" {
		t.Errorf("way(no domain) = %v", err)
	}
	if got := strings.Join([]string{errnoName(nil), errnoName(unix.EPERM), errnoName(errors.New("x"))}, " "); got != wire.TryAllowed+" EPERM error" {
		t.Errorf("errnoName() = %s", got)
	}
}
