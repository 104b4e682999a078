package gateway

import (
	"context"
	"net"
)

// Answer answers one DNS question.
func (g *Gateway) Answer(ctx context.Context, question []byte, limit int) []byte {
	return g.answer(ctx, question, limit)
}

// SetDial replaces how a Gateway dials what the rules allow.
func (g *Gateway) SetDial(dial func(ctx context.Context, host string, port int) (net.Conn, error)) {
	g.dialer = dial
}

// Open returns how many connections count at the moment.
func (g *Gateway) Open() int { return g.open.len() }
