package mux

import (
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Conn is a connection that Join joins with a stream: a *net.TCPConn, or what has its
// methods. SetLinger(0) must make Close reset the connection.
type Conn interface {
	net.Conn
	CloseWrite() error
	SetLinger(seconds int) error
}

// Join carries bytes between a stream and a connection until both directions have ended,
// and closes both. Ends and resets pass in both directions: a connection sees an end only
// if the other one has ended so. It is reset if anything else happens, even if this process
// is killed: it has SO_LINGER 0 until both directions have ended cleanly.
//
// The numbers are bytes: sent to the stream, received from it. The error is nil if both
// directions have ended cleanly.
func Join(st *Stream, conn Conn) (sent, received int64, err error) {
	_ = conn.SetLinger(0)
	st.whenSevered(func() {
		_ = conn.SetReadDeadline(past)
		if !st.mayDrain() {
			_ = conn.Close() // unblocks WriteTo
		}
	})
	upward := make(chan error, 1)
	go func() {
		var err error
		if sent, err = st.ReadFrom(conn); err == nil { //nolint:revive // its reader waits for the goroutine
			err = st.CloseWrite()
		}
		if err != nil {
			st.Reset(reasonOf(err))
		}
		upward <- err
	}()
	received, err = st.WriteTo(conn)
	if err == nil {
		err = conn.CloseWrite()
	}
	if err != nil {
		st.Reset(reasonOf(err))
		_ = conn.SetReadDeadline(past)
	}
	if up := <-upward; err == nil {
		err = up
	}
	if err == nil {
		_ = conn.SetLinger(-1)
	}
	_ = conn.Close()
	_ = st.Close()
	return sent, received, err
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// mayDrain reports whether data that came before a reset is still to be read.
func (st *Stream) mayDrain() bool {
	st.sess.mu.Lock()
	defer st.sess.mu.Unlock()
	return st.drain && st.buffered > 0
}

// reasonOf says why a connection broke.
func reasonOf(err error) wire.NetReason {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return wire.NetRefused
	}
	return wire.NetBroken
}
