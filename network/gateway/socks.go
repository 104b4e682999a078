package gateway

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"time"

	"github.com/sandboxbash/sandboxbash/network"
)

// SOCKS5, RFC 1928: the command CONNECT without authentication, and nothing else.
const (
	socksVersion   = 5
	socksNoAuth    = 0
	socksNoMethod  = 0xff
	socksConnect   = 1
	socksIPv4      = 1
	socksName      = 3
	socksIPv6      = 4
	socksSucceeded = 0
	socksDenied    = 2 // "connection not allowed by ruleset"
	socksFailed    = 4 // "host unreachable"
	socksCommand   = 7 // "command not supported"
	socksAddress   = 8 // "address type not supported"
)

// serveProxy serves a connection to the session's proxy, which takes HTTP, CONNECT and SOCKS5.
func (g *Gateway) serveProxy(ctx context.Context, conn Conn, start time.Time) {
	stop := context.AfterFunc(ctx, conn.Reset)
	_ = conn.SetReadDeadline(start.Add(helloTime))
	var first [1]byte
	_, err := io.ReadFull(conn, first[:])
	if !stop() || err != nil {
		conn.Reset()
		return
	}
	if first[0] == socksVersion {
		g.socks(ctx, conn, start)
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	g.web.serve(&bufferedConn{Conn: conn, first: bytes.NewReader(first[:])}, target{})
}

// socks serves a connection whose first byte, the version, was read.
func (g *Gateway) socks(ctx context.Context, conn Conn, start time.Time) {
	stop := context.AfterFunc(ctx, conn.Reset)
	_ = conn.SetDeadline(start.Add(helloTime))
	to, reply := socksRequest(conn)
	if reply != socksSucceeded {
		stop()
		g.endSocks(conn, reply)
		return
	}
	_ = conn.SetDeadline(time.Time{}) // what follows has times of its own: an answer, a dial
	conn = g.permit(ctx, conn, to)
	r := Record{Time: start, Kind: KindConnection, Host: to.name, Port: to.port}
	upstream, err := g.begin(ctx, to, &r)
	stop()
	read := errors.Is(err, errRead)
	if err != nil && !read {
		reply = socksFailed
		if refusal, ok := errors.AsType[*network.Denial](err); ok {
			reply = socksDenied
			g.refused(r, refusal.Verdict)
		} else {
			r.Err, r.Elapsed = dialError(err), time.Since(r.Time)
			g.record(r)
		}
		g.endSocks(conn, reply)
		return
	}
	_ = conn.SetDeadline(time.Now().Add(helloTime))
	if _, err := conn.Write(socksReply(socksSucceeded)); err != nil {
		conn.Reset()
		closeUpstream(upstream)
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if read {
		g.read(ctx, conn, r)
		return
	}
	g.splice(ctx, conn, upstream, to, r)
}

// endSocks refuses what was asked for.
func (g *Gateway) endSocks(conn Conn, reply byte) {
	answer := socksReply(reply)
	if reply == socksNoMethod {
		answer = []byte{socksVersion, socksNoMethod}
	}
	_ = conn.SetDeadline(time.Now().Add(drainTime))
	if _, err := conn.Write(answer); err == nil && conn.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, conn, drainBytes)
	}
	_ = conn.Close()
}

// socksReply says how a request went. The address that it names is of no use to a client.
func socksReply(reply byte) []byte {
	return []byte{socksVersion, reply, 0, socksIPv4, 0, 0, 0, 0, 0, 0}
}

// socksRequest agrees on no authentication, and reads where to connect to. Any reply but
// socksSucceeded refuses the connection.
func socksRequest(conn io.ReadWriter) (to target, reply byte) {
	var b [4]byte
	if _, err := io.ReadFull(conn, b[:1]); err != nil {
		return to, socksNoMethod
	}
	methods := make([]byte, b[0])
	if _, err := io.ReadFull(conn, methods); err != nil || !bytes.Contains(methods, []byte{socksNoAuth}) {
		return to, socksNoMethod
	}
	if _, err := conn.Write([]byte{socksVersion, socksNoAuth}); err != nil {
		return to, socksNoMethod
	}
	if _, err := io.ReadFull(conn, b[:]); err != nil || b[0] != socksVersion || b[1] != socksConnect {
		return to, socksCommand
	}
	host, ok := socksHost(conn, b[3])
	if !ok {
		return to, socksAddress
	}
	if _, err := io.ReadFull(conn, b[:2]); err != nil {
		return to, socksAddress
	}
	to = target{name: host, port: int(binary.BigEndian.Uint16(b[:2]))}
	if canonical, err := network.Canonical(host); err == nil {
		to.name = canonical // else the rules refuse it, and say why
	}
	return to, socksSucceeded
}

// socksHost reads a host of one of the three kinds.
func socksHost(conn io.Reader, kind byte) (host string, ok bool) {
	size := map[byte]int{socksIPv4: 4, socksIPv6: 16}[kind]
	if kind == socksName {
		var length [1]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return "", false
		}
		size = int(length[0])
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(conn, text); size == 0 || err != nil {
		return "", false
	}
	if kind == socksName {
		return string(text), true
	}
	addr, ok := netip.AddrFromSlice(text)
	return addr.String(), ok
}
