package gateway

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A connection that begins as TLS does and does not go on is given up, and one that is not TLS passes at
// once, whatever its first byte is.
func TestHelloStops(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, sends string
		late        bool
	}{
		{"half a message", "\x16\x03\x01\x02\x00\x01", true},
		{"one byte of it", "\x16", true},
		{"another version", "\x16\x04\x01\x02\x00\x01", false},
		{"another message", "\x16\x03\x01\x02\x00\x0b", false},
		{"text", "SSH-2.0-x", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				program, conn := net.Pipe()
				defer func() { _, _ = program.Close(), conn.Close() }()
				go func() { _, _ = program.Write([]byte(tt.sends)) }()
				start := time.Now()
				h := &helloCheck{Reader: conn, conn: conn, want: "a.test"}
				got := make([]byte, 64)
				n, err := h.Read(got)
				if took := time.Since(start); tt.late && (!errors.Is(err, errLateHello) || took != helloTime) {
					t.Errorf("Read() = %v after %v; want %v after %v", err, took, errLateHello, helloTime)
				}
				if !tt.late && (err != nil || string(got[:n]) != tt.sends) {
					t.Errorf("Read() = %q, %v; want what was sent", got[:n], err)
				}
			})
		})
	}
}
