package recordcmd

import (
	"context"
	"io"
	"time"
)

// play shows a recording on a terminal, with its pauses.
func (c *cast) play(ctx context.Context, w io.Writer, speed float64, idle time.Duration) error {
	var f tamer
	var at time.Duration
	defer func() { _, _ = io.WriteString(w, restore) }() // the terminal is left as it was, as far as that is known
	for _, e := range c.events {
		pause := e.at - at
		at = e.at
		if idle > 0 {
			pause = min(pause, idle)
		}
		if pause = time.Duration(float64(pause) / speed); pause > 0 {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if e.code != "o" {
			continue
		}
		if _, err := w.Write(f.tame([]byte(e.data))); err != nil {
			return err
		}
	}
	return nil
}

// restore resets what a program may have set: another screen, the cursor, the mouse, pasting, colours.
const restore = "\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?7h\x1b[?1l\x1b>\x1b[r\x1b[0m"

// tamer leaves out what makes a terminal do more than draw: control strings (titles, the clipboard), queries, which it would
// answer as if they were typed, and reports of mouse and focus. What draws passes, also where it is cut.
type tamer struct {
	state tameState
	seq   []byte // the sequence so far
}

type tameState int

const (
	tameText tameState = iota
	tameEscape
	tameCSI
	tameString       // until ST or BEL
	tameStringEscape // an ESC in it
	tameOther        // ESC with intermediate bytes
)

// maxTamed bounds a sequence, in bytes; a longer one is dropped.
const maxTamed = 256

func (t *tamer) tame(p []byte) []byte {
	out := make([]byte, 0, len(p))
	for _, c := range p {
		out = t.next(out, c)
	}
	return out
}

func (t *tamer) next(out []byte, c byte) []byte {
	switch t.state {
	case tameText:
		switch {
		case c == 0x1b:
			t.state, t.seq = tameEscape, append(t.seq[:0], c)
		case c < 0x20 && c != '\n' && c != '\r' && c != '\t' && c != '\b' && c != 0x0e && c != 0x0f || c == 0x7f: // BEL and ENQ among them
		default:
			return append(out, c)
		}
	case tameEscape:
		t.seq = append(t.seq, c)
		switch {
		case c == '[':
			t.state = tameCSI
		case c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_':
			t.state = tameString
		case c >= 0x20 && c <= 0x2f:
			t.state = tameOther
		case c == 0x1b:
			t.seq = t.seq[:1]
		default:
			t.state = tameText
			if c == 'Z' || c < 0x20 { // DECID is a query
				return out
			}
			return append(out, t.seq...)
		}
	case tameOther:
		t.seq = append(t.seq, c)
		if c < 0x20 || c > 0x2f {
			t.state = tameText
			return append(out, t.seq...)
		}
	case tameCSI:
		t.seq = append(t.seq, c)
		switch {
		case c == 0x1b:
			t.state, t.seq = tameEscape, append(t.seq[:0], c)
		case c >= 0x40 && c <= 0x7e:
			t.state = tameText
			if len(t.seq) <= maxTamed && draws(t.seq) {
				return append(out, t.seq...)
			}
		case c < 0x20 || c > 0x7e:
			t.state = tameText
		}
		t.seq = t.seq[:min(len(t.seq), maxTamed+1)]
	case tameString:
		switch c {
		case 0x07, 0x18, 0x1a:
			t.state = tameText
		case 0x1b:
			t.state = tameStringEscape
		}
	case tameStringEscape:
		if t.state = tameString; c == '\\' {
			t.state = tameText
		}
	}
	return out
}

// draws reports whether a control sequence only draws.
func draws(seq []byte) bool {
	body, final := seq[2:len(seq)-1], seq[len(seq)-1]
	for _, c := range body {
		if c >= 0x20 && c <= 0x2f && c != ' ' { // DECRQM and the like
			return false
		}
	}
	switch final {
	case 'c', 'n', 't', 'x', 'q', 'u', 'i', 'p', 'y': // reports, windows, printing, keyboards
		return final == 'q' && len(body) > 0 && body[len(body)-1] == ' ' || final == 'u' && len(body) == 0 // the cursor's shape, and back to where it was
	case 'h':
		switch string(body) {
		case "?9", "?1000", "?1001", "?1002", "?1003", "?1004", "?1005", "?1006", "?1015", "?1016", "?2004", "?2031", "?2048":
			return false
		}
	}
	return true
}
