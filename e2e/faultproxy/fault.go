package faultproxy

import "fmt"

// Fault is what happens to a call. The zero Fault means that the call passes unchanged.
type Fault struct {
	kind  kind
	n     int64
	after bool
}

type kind int

const (
	none kind = iota
	// These replace the answer.
	status
	garbage
	wrongType
	oldHTTP
	hang
	reset
	// These change the answer of a call that does not become a stream.
	slow
	cut
	// These change what the engine sends over a stream.
	cutStream
	endStream
	stall
	drip
)

var names = map[kind]string{
	none: "", status: "status", garbage: "garbage", wrongType: "wrong type", oldHTTP: "HTTP/1.0", hang: "hang", reset: "reset",
	slow: "slow", cut: "cut", cutStream: "cut stream", endStream: "end stream", stall: "stall", drip: "drip",
}

// answers reports whether a fault replaces the answer.
func (k kind) answers() bool { return k >= status && k <= reset }

// String returns the fault's name, "" for the zero Fault.
func (f Fault) String() string {
	text := names[f.kind]
	if f.kind == status || f.kind == cut || f.kind >= cutStream {
		text = fmt.Sprintf("%s %d", text, f.n)
	}
	if f.after {
		text += " after the engine has done it"
	}
	return text
}

// Status answers with a status and an error in Docker's form.
func Status(code int) Fault { return Fault{kind: status, n: int64(code)} }

// Garbage answers 200 with text that is not JSON.
func Garbage() Fault { return Fault{kind: garbage} }

// WrongType answers 200 with an HTML page, as a captive portal does.
func WrongType() Fault { return Fault{kind: wrongType} }

// OldHTTP answers 500 in HTTP/1.0 with plain text, as an old proxy does.
func OldHTTP() Fault { return Fault{kind: oldHTTP} }

// Hang never answers. It ends when the client gives up.
func Hang() Fault { return Fault{kind: hang} }

// Reset closes the connection instead of answering.
func Reset() Fault { return Fault{kind: reset} }

// Slow passes the answer on at one byte a second.
func Slow() Fault { return Fault{kind: slow} }

// Cut closes the connection after n bytes of the answer's body, always before its end.
func Cut(n int64) Fault { return Fault{kind: cut, n: n} }

// CutStream closes the connection after n bytes of what the engine sends.
func CutStream(n int64) Fault { return Fault{kind: cutStream, n: n} }

// EndStream ends the engine's direction of the stream properly after n bytes. The client's
// direction stays open.
func EndStream(n int64) Fault { return Fault{kind: endStream, n: n} }

// Stall passes n bytes of what the engine sends. Then it passes nothing in either direction,
// not even the end of the stream, so that the connection seems to be alive.
func Stall(n int64) Fault { return Fault{kind: stall, n: n} }

// Drip passes n bytes of what the engine sends, then one a second.
func Drip(n int64) Fault { return Fault{kind: drip, n: n} }

// AfterDone passes the call to the engine first and drops its answer. It is for faults that
// replace the answer.
func (f Fault) AfterDone() Fault {
	f.after = true
	return f
}
