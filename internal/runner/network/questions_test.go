//go:build linux

package network

import (
	"bytes"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/mux"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

func TestQuestions(t *testing.T) {
	t.Parallel()
	from := func(n int) netip.AddrPort { return netip.AddrPortFrom(localhost, uint16(10_000+n)) }
	conn := &net.UDPConn{}
	var q questions
	for n := range maxQuestions + 1 {
		if id := q.add(conn, from(n)); id != uint32(n+1) {
			t.Fatalf("question %d has number %d", n, id)
		}
	}
	for _, row := range []struct {
		name string
		id   uint32
		want netip.AddrPort // zero: none
	}{
		{"the oldest, which had to go", 1, netip.AddrPort{}},
		{"the second", 2, from(1)},
		{"the second, answered twice", 2, netip.AddrPort{}},
		{"the last", maxQuestions + 1, from(maxQuestions)},
		{"one of the future in a used slot", maxQuestions + 3, netip.AddrPort{}},
		{"that slot's own", 3, from(2)},
		{"none", 0, netip.AddrPort{}},
	} {
		got, to := q.take(row.id)
		if to != row.want || (got == conn) != row.want.IsValid() {
			t.Errorf("%s: take(%d) = %p, %s; want %s", row.name, row.id, got, to, row.want)
		}
	}
	// No question has the number 0, which stands for none.
	q.last = math.MaxUint32
	if id := q.add(conn, from(7)); id != 1 {
		t.Errorf("the question behind the last number has number %d; want 1", id)
	}
	if _, to := q.take(1); to != from(7) {
		t.Errorf("take(1) = %s; want %s", to, from(7))
	}
}

// socket is a UDP socket on the loopback interface.
func socket(t *testing.T) *net.UDPConn {
	t.Helper()
	var config net.ListenConfig
	conn, err := config.ListenPacket(t.Context(), "udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	udp, _ := conn.(*net.UDPConn)
	return udp
}

// Each program gets the answer to its own question, once, whatever the host answers.
func TestAnswersGoToAskers(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	host, runner := mux.New(mux.Host, near, mux.Options{}), mux.New(mux.Runner, far, mux.Options{})
	server := socket(t)
	var q questions
	done := make(chan struct{}, 2)
	go func() { q.ask(server, runner); done <- struct{}{} }()
	go func() { q.answer(t.Context(), runner); done <- struct{}{} }()

	ids := map[string]uint32{}
	var askers []*net.UDPConn
	to, _ := server.LocalAddr().(*net.UDPAddr)
	for n := range 5 {
		asker := socket(t)
		askers = append(askers, asker)
		for _, text := range []string{
			strings.Repeat("x", wire.MaxDatagram+1), // is dropped
			fmt.Sprint("question ", n),
		} {
			if _, err := asker.WriteToUDP([]byte(text), to); err != nil {
				t.Fatal(err)
			}
		}
		id, data, err := host.ReceiveDatagram(t.Context())
		if err != nil || string(data) != fmt.Sprint("question ", n) {
			t.Fatalf("the host receives %.20q (%d bytes), %v; want question %d", data, len(data), err, n)
		}
		if id != uint32(n+1) {
			t.Errorf("question %d has number %d: what is dropped has used one up", n, id)
		}
		ids[string(data)] = id
	}
	long := bytes.Repeat([]byte("y"), wire.MaxDatagram)
	for n := range askers { // the last question is answered first
		n = len(askers) - 1 - n
		id := ids[fmt.Sprint("question ", n)]
		for _, answer := range []struct {
			id   uint32
			data []byte
		}{
			{id + maxQuestions, []byte("to no question")},
			{0, []byte("to none")},
			{id, append([]byte(fmt.Sprint("answer ", n)), long[:wire.MaxDatagram-10]...)},
			{id, []byte("once more")},
		} {
			if err := host.SendDatagram(answer.id, answer.data); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The answers to this question come behind all the others.
	last := socket(t)
	if _, err := last.WriteToUDP([]byte("last"), to); err != nil {
		t.Fatal(err)
	}
	id, _, err := host.ReceiveDatagram(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := host.SendDatagram(id, nil); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2*wire.MaxDatagram)
	if n, err := last.Read(buf); err != nil || n != 0 {
		t.Errorf("the last program receives %q, %v; want an empty datagram", buf[:n], err)
	}
	for n, asker := range askers {
		got, err := asker.Read(buf)
		if want := fmt.Sprint("answer ", n); err != nil || !strings.HasPrefix(string(buf[:got]), want) || got != wire.MaxDatagram-10+len(want) {
			t.Errorf("program %d receives %.20q (%d bytes), %v; want %s", n, buf[:got], got, err, want)
		}
		_ = asker.SetReadDeadline(time.Now().Add(time.Millisecond))
		if got, err := asker.Read(buf); err == nil {
			t.Errorf("program %d receives %.20q too", n, buf[:got])
		}
	}
	_ = server.Close()
	_ = host.Close()
	_ = runner.Close()
	<-done
	<-done
}
