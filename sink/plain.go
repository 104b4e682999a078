package sink

import (
	"encoding/binary"
	"unicode/utf8"
)

const (
	ones = 0x0101010101010101
	tops = 0x8080808080808080
)

// plainPrefix returns how many bytes at the start of p are plain: printable ASCII, TAB
// and LF. It checks eight bytes at a time.
func plainPrefix(p []byte) int {
	n := 0
	for ; n+32 <= len(p); n += 32 {
		b := p[n : n+32]
		if strange(binary.LittleEndian.Uint64(b))|strange(binary.LittleEndian.Uint64(b[8:]))|
			strange(binary.LittleEndian.Uint64(b[16:]))|strange(binary.LittleEndian.Uint64(b[24:])) != 0 {
			break
		}
	}
	for n < len(p) && (p[n] >= 0x20 && p[n] < 0x7F || p[n] == '\n' || p[n] == '\t') {
		n++
	}
	return n
}

// strange has a top bit set if one of the eight bytes of x is not plain. For
// bytes below 0x80 each sum stays in its byte. If there is a byte of 0x80 or above, x
// itself has its top bit set, and the sums do not matter.
func strange(x uint64) uint64 {
	printable := x + (utf8.RuneSelf-0x20)*ones // top bit: 0x20 or above
	from9 := x + (utf8.RuneSelf-'\t')*ones     // top bit: TAB or above
	from11 := x + (utf8.RuneSelf-'\n'-1)*ones  // top bit: above LF
	del := x + ones                            // top bit: DEL
	return (^(printable | from9&^from11) | del | x) & tops
}

// nuls returns how many NULs are at the start of p.
func nuls(p []byte) int {
	n := 0
	for n+8 <= len(p) && binary.LittleEndian.Uint64(p[n:]) == 0 {
		n += 8
	}
	for n < len(p) && p[n] == 0 {
		n++
	}
	return n
}

// decode finds the character at the start of p and returns its size. If the character is
// broken, ok is false and size is that of its longest valid part (Unicode 3.9, maximal
// subparts). more is true if the bytes after p have to decide.
func decode(p []byte) (size int, ok, more bool) {
	low, high := byte(0x80), byte(0xBF) // of the second byte
	var want int
	switch b := p[0]; {
	case b < utf8.RuneSelf:
		return 1, true, false
	case b >= 0xC2 && b <= 0xDF:
		want = 2
	case b >= 0xE0 && b <= 0xEF:
		want = 3
		if b == 0xE0 {
			low = 0xA0
		} else if b == 0xED {
			high = 0x9F
		}
	case b >= 0xF0 && b <= 0xF4:
		want = 4
		if b == 0xF0 {
			low = 0x90
		} else if b == 0xF4 {
			high = 0x8F
		}
	default:
		return 1, false, false
	}
	for n := 1; n < want; n++ {
		if n == len(p) {
			return n, false, true
		}
		if p[n] < low || p[n] > high {
			return n, false, false
		}
		low, high = 0x80, 0xBF
	}
	return want, true, false
}
