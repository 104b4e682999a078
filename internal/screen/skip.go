package screen

import "bytes"

// skip returns how much of p can be skipped, because what follows it in p scrolls it
// off the screen. The grid takes only 1 or 2 MB a second, and a program that floods
// its terminal should not wait for output that is never seen.
//
// After 2*rows line feeds every row is new, wherever the cursor was: at most rows-1 of
// them bring it to the last row, and each later one scrolls. This is true only for
// plain text, with the whole screen as the scrolling region.
func (t *interpreter) skip(p []byte) int {
	if len(p) < minSkip || t.insert || t.region || t.origin || t.wrap || len(t.cluster) > 0 {
		return 0
	}
	run := p[:textRun(p)]
	at := len(run)
	for range 2*t.size.Rows + 1 {
		if at = bytes.LastIndexByte(run[:at], '\n'); at < 0 {
			return 0
		}
	}
	// The line ends there, and the cursor is in the first column behind CR LF.
	for at > 0 && run[at-1] != '\r' {
		if at = bytes.LastIndexByte(run[:at], '\n'); at < 0 {
			return 0
		}
	}
	if at <= 0 {
		return 0
	}
	t.out = append(t.out, '\r')
	t.last = t.last[:0]
	t.coloured = true // the skipped text may have set a colour
	return at + 1
}

// minSkip is the length from which searching for text to skip pays.
const minSkip = 2 << 10 // bytes

// textRun returns the length of the text that p begins with: characters, line ends and
// the like, and colours.
func textRun(p []byte) int {
	n := 0
	for n < len(p) {
		switch b := p[n]; {
		case b >= 0x20 && b != 0x7f, b == '\n', b == '\r', b == '\t', b == '\b', b == '\a':
			n++
		case b == 0x1b:
			end := colour(p[n:])
			if end == 0 {
				return n
			}
			n += end
		default:
			return n
		}
	}
	return n
}

// colour returns the length of the SGR sequence at the start of p, or 0.
func colour(p []byte) int {
	if len(p) < 3 || p[1] != '[' {
		return 0
	}
	for n := 2; n < len(p); n++ {
		switch b := p[n]; {
		case b == 'm':
			return n + 1
		case b >= '0' && b <= ';': // digits, ':' and ';'
		default:
			return 0
		}
	}
	return 0
}
