package mux

import (
	"net"
	"time"
)

// deadline is that of one direction of a stream. Session.mu guards it.
type deadline struct {
	timer  *time.Timer
	passed bool
}

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// SetDeadline sets both deadlines.
func (st *Stream) SetDeadline(t time.Time) error {
	if err := st.setDeadline(&st.readUntil, st.readable, t); err != nil {
		return err
	}
	return st.setDeadline(&st.writeUntil, st.writable, t)
}

// SetReadDeadline sets the time at which Read and WriteTo return os.ErrDeadlineExceeded,
// those under way too. The zero time removes it.
func (st *Stream) SetReadDeadline(t time.Time) error {
	return st.setDeadline(&st.readUntil, st.readable, t)
}

// SetWriteDeadline does the same for Write, and for ReadFrom while it waits for credit.
func (st *Stream) SetWriteDeadline(t time.Time) error {
	return st.setDeadline(&st.writeUntil, st.writable, t)
}

func (st *Stream) setDeadline(d *deadline, waiter chan struct{}, t time.Time) error {
	st.sess.mu.Lock()
	defer st.sess.mu.Unlock()
	if st.closed {
		return net.ErrClosed
	}
	d.stop()
	left := time.Until(t)
	d.passed = !t.IsZero() && left <= 0
	if d.passed {
		notify(waiter)
	}
	if t.IsZero() || d.passed {
		return nil
	}
	var timer *time.Timer
	timer = time.AfterFunc(left, func() {
		st.sess.mu.Lock()
		defer st.sess.mu.Unlock()
		if d.timer == timer { // else it came too late to be stopped
			d.passed = true
			notify(waiter)
		}
	})
	d.timer = timer
	return nil
}
