package scrub

import (
	"bytes"
	"encoding/binary"
	"sort"
)

// Dumps of base64 and hex have lines of 64 columns (PEM), 76 (MIME, base64) or 60
// (xxd -p). A line end after at least minWrap characters of a dump counts as one inside a
// dump, and the search ignores it.
const minWrap = 32

// encoded are the characters of base64 in both alphabets and of hex.
var encoded = func() (t [256]bool) {
	for c := range 256 {
		b := byte(c)
		t[c] = isAlnum(b) || b == '+' || b == '/' || b == '-' || b == '_' || b == '='
	}
	return t
}()

// ones and tops have the lowest and the highest bit of each byte set.
const (
	ones = 0x0101010101010101
	tops = 0x8080808080808080
)

// A view is a part of a stream. run is the number of characters of a dump directly before
// it, at most minWrap.
type view struct {
	buf []byte
	run int
}

// runBefore counts the characters of a dump directly before v.buf[at], up to minWrap.
func (v view) runBefore(at int) int {
	n := 0
	for n < minWrap && n < at && encoded[v.buf[at-1-n]] {
		n++
	}
	if n == at {
		n = min(n+v.run, minWrap)
	}
	return n
}

// skip returns at or, if there is a line end of a dump at v.buf[at], the offset after it.
// A CR at the end of v counts as the start of a line end.
func (v view) skip(at int) int {
	if at >= len(v.buf) || v.buf[at] != '\n' && v.buf[at] != '\r' || v.runBefore(at) < minWrap {
		return at
	}
	if v.buf[at] == '\r' {
		if at+1 < len(v.buf) && v.buf[at+1] != '\n' {
			return at
		}
		at++
	}
	return min(at+1, len(v.buf))
}

// wrapped reports whether there is a line end of a dump after the first byte of rest,
// which is the end of v.
func (v view) wrapped(rest []byte) bool {
	for at := len(v.buf) - len(rest) + 1; at < len(v.buf); at++ {
		if v.skip(at) != at {
			return true
		}
	}
	return false
}

// begins reports whether the rest of v from at on is a proper prefix of text, ignoring
// line ends of a dump.
func (v view) begins(at int, text string) bool {
	for i := 0; i < len(text); i++ {
		if i > 0 && at < len(v.buf) && v.buf[at] != text[i] {
			at = v.skip(at)
		}
		if at == len(v.buf) {
			return true
		}
		if v.buf[at] != text[i] {
			return false
		}
		at++
	}
	return false
}

// An unwrapper joins the lines of dumps for the search. Its fields are scratch memory.
type unwrapper struct {
	joined []byte
	base   int    // the offset of joined in the view
	seams  []seam // in order
}

// A seam is the position of a line end that was left out.
type seam struct {
	at   int // in joined
	gone int // bytes left out, here and at earlier seams
}

// find appends the occurrences that contain a line end of a dump to found.
func (u *unwrapper) find(x *index, v view, found []match) []match {
	u.joined, u.seams = u.joined[:0], u.seams[:0]
	buf := v.buf
	from := 0
	if v.run == 0 {
		from = nextDump(buf, 0)
	}
	for from < len(buf) {
		n := bytes.IndexByte(buf[from:], '\n')
		if n < 0 {
			break
		}
		lf := from + n
		end := lf
		if end > 0 && buf[end-1] == '\r' {
			end--
		}
		from = lf + 1
		if v.runBefore(end) == minWrap {
			from = u.join(x, v, end, lf+1)
			found = u.search(x, found)
		}
		from = nextDump(buf, from)
	}
	return found
}

// nextDump returns the first offset at or after from at which a line of a dump can start.
// Its characters are '+' or above, so minWrap of them fill three eight-byte words that
// are aligned to from. Such words are rare in ordinary text.
func nextDump(buf []byte, from int) int {
	const atLeast = (0x80 - '+') * ones
	var y, z uint64 // the two words before
	begin := from
	for ; from+32 <= len(buf); from += 32 {
		b := (*[32]byte)(buf[from:])
		w0 := (binary.LittleEndian.Uint64(b[0:]) + atLeast) & tops
		w1 := (binary.LittleEndian.Uint64(b[8:]) + atLeast) & tops
		w2 := (binary.LittleEndian.Uint64(b[16:]) + atLeast) & tops
		w3 := (binary.LittleEndian.Uint64(b[24:]) + atLeast) & tops
		if w1&w2&(w0|w3) == tops || w0&z&(w1|y) == tops {
			return max(from-16, begin)
		}
		y, z = w2, w3
	}
	if len(buf)-from >= 8 { // a dump may end in the third word
		return max(from-16, begin)
	}
	return len(buf)
}

// join joins the line that ends at end, and the following ones while they end like lines
// of a dump. It takes no more of the first and the last one than an occurrence can have.
// It returns the offset of the last one.
func (u *unwrapper) join(x *index, v view, end, next int) int {
	buf := v.buf
	line := max(0, end-x.span)
	line += bytes.LastIndexByte(buf[line:end], '\n') + 1
	u.base = line
	gone := 0
	for {
		u.joined = append(u.joined, buf[line:end]...)
		gone += next - end
		u.seams = append(u.seams, seam{len(u.joined), gone})
		line = next
		n := bytes.IndexByte(buf[line:], '\n')
		if n < 0 {
			end = len(buf)
			break
		}
		next = line + n + 1
		end = line + n
		if end > line && buf[end-1] == '\r' {
			end--
		}
		if v.runBefore(end) < minWrap {
			break
		}
	}
	u.joined = append(u.joined, buf[line:min(end, line+x.span)]...)
	return line
}

// search searches the joined lines, and empties them.
func (u *unwrapper) search(x *index, found []match) []match {
	n := len(found)
	found = x.findPlain(u.joined, found)
	kept := found[:n]
	for _, m := range found[n:] {
		// Seams at or before the start come before it, those before the end too.
		first := sort.Search(len(u.seams), func(i int) bool { return u.seams[i].at > m.start })
		last := sort.Search(len(u.seams), func(i int) bool { return u.seams[i].at >= m.end })
		if first == last {
			continue // within one line: it was found already
		}
		m.start, m.end = u.origin(m.start, first), u.origin(m.end, last)
		kept = append(kept, m)
	}
	u.joined, u.seams = u.joined[:0], u.seams[:0]
	return kept
}

// origin maps an offset in joined, with n seams before it, to one in the view.
func (u *unwrapper) origin(at, n int) int {
	if n > 0 {
		at += u.seams[n-1].gone
	}
	return at + u.base
}
