//go:build linux

package network

import (
	"context"
	"net"
	"net/netip"
	"sync"

	"github.com/sandboxbash/sandboxbash/internal/mux"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// maxQuestions is how many datagrams may wait for their answers. The oldest is forgotten
// for the next one: its program asks again.
const maxQuestions = 1024

// questions are datagrams to the name server's port, on their way to the host and back.
type questions struct {
	mu   sync.Mutex
	conn *net.UDPConn           // guarded by mu; the socket of the last question
	last uint32                 // guarded by mu
	open [maxQuestions]question // guarded by mu; by the number's remainder
}

type question struct {
	id   uint32 // 0: none
	from netip.AddrPort
}

// ask sends datagrams to the host until the socket is closed.
func (q *questions) ask(conn *net.UDPConn, sess *mux.Session) {
	buf := make([]byte, wire.MaxDatagram+1)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		if n > wire.MaxDatagram {
			continue // no question is that long
		}
		// A datagram may get lost. A resolver asks again.
		_ = sess.SendDatagram(q.add(conn, from), buf[:n])
	}
}

func (q *questions) add(conn *net.UDPConn, from netip.AddrPort) uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.conn = conn
	if q.last++; q.last == 0 {
		q.last = 1
	}
	q.open[q.last%maxQuestions] = question{q.last, from}
	return q.last
}

// take returns who asked a question, and the socket for the answer, once. It returns nil for
// an unknown question.
func (q *questions) take(id uint32) (*net.UDPConn, netip.AddrPort) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := &q.open[id%maxQuestions]
	if id == 0 || at.id != id {
		return nil, netip.AddrPort{}
	}
	from := at.from
	*at = question{}
	return q.conn, from
}

// answer sends the host's answers to those who asked, until the session is
// over.
func (q *questions) answer(ctx context.Context, sess *mux.Session) {
	for {
		id, data, err := sess.ReceiveDatagram(ctx)
		if err != nil {
			return
		}
		if conn, from := q.take(id); conn != nil {
			_, _ = conn.WriteToUDPAddrPort(data, from)
		}
	}
}
