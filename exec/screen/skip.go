package screen

import "bytes"

// skip returns how much of p need not be looked at, because what follows it in p
// moves it out of the screen: the grid takes 1 or 2 MB a second, and a program
// that floods its terminal is not to wait for what nobody will see.
//
// Behind 2*rows line feeds every row has been scrolled in since, wherever the
// cursor was: at most rows-1 of them bring it to the last row, and each later one
// brings a new row. That holds for text alone, on the whole screen.
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
	t.coloured = true // as far as anybody can tell without a look
	return at + 1
}

// minSkip is where looking for what to skip begins to pay.
const minSkip = 2 << 10 // bytes

// textRun returns how long p is text: characters, line ends and the like, and
// colours.
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

// colour returns the length of the SGR sequence that p begins with, or 0.
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
