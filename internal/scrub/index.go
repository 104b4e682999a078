package scrub

import (
	"encoding/binary"
	"math/bits"
)

// How the search works. A gram is a run of gram bytes. The search looks only at the grams
// that start at every stride-th byte of the stream. All needles of a class have at least
// least bytes, and stride = least-gram+1, so every occurrence of a needle contains at
// least one of those grams. Each gram costs one probe of a small table. No step depends
// on the one before, so the processor can overlap them; a shift table (Wu-Manber) does
// not allow that. A hit leads to the needles that have the gram at one of their first
// stride offsets, and these are compared.
//
// Short needles have few, short grams and long needles have many, long ones. Each kind
// has a class of its own, so that it does not fill the other's table.
const (
	shortGram   = 4
	shortStride = MinSecret - shortGram + 1

	longNeedle = 24 // bytes; needles of that length or more are in the long class
	longGram   = 8
	longStride = longNeedle - longGram + 1

	shortBits  = 14 // of the short class's hash: a table of 16 KiB, one byte per entry
	bitsPerKey = 32 // of the long class's filter, for each gram
	spread32   = 0x9E3779B1
	spread64   = 0x9E3779B97F4A7C15
)

type index struct {
	needles []needle
	short   shortClass
	long    longClass
	span    int // the most bytes that an occurrence can have, with line ends

	// The first bytes of needles, for hold.
	first  [256][]int32    // by one byte: the needles
	pairs  [1 << 10]uint64 // bit set: two bytes
	threes map[[3]byte]bool
	fours  map[uint32][]int32 // four bytes: the needles
}

// newIndex makes the index of at least one needle.
func newIndex(needles []needle) *index {
	x := &index{needles: needles, threes: map[[3]byte]bool{}, fours: map[uint32][]int32{}}
	grams := 0
	for _, n := range needles {
		x.span = max(x.span, len(n.text))
		if len(n.text) >= longNeedle {
			grams += longStride
		}
	}
	x.span += 2 * (x.span/minWrap + 2) // CRLF after every minWrap characters
	x.long.filter = make([]uint64, 1<<bits.Len(uint(grams*bitsPerKey/64)))
	for i, n := range needles {
		x.add(int32(i), []byte(n.text))
	}
	return x
}

func (x *index) add(k int32, text []byte) {
	if len(text) < longNeedle {
		for d := range int32(shortStride) {
			x.short.add(binary.LittleEndian.Uint32(text[d:]), gramOffset{k, d})
		}
	} else {
		for d := range int32(longStride) {
			x.long.add(binary.LittleEndian.Uint64(text[d:]), gramOffset{k, d})
		}
	}
	x.first[text[0]] = append(x.first[text[0]], k)
	pair := uint(text[0])<<8 | uint(text[1])
	x.pairs[pair>>6] |= 1 << (pair & 63)
	x.threes[[3]byte(text)] = true
	four := binary.LittleEndian.Uint32(text)
	x.fours[four] = append(x.fours[four], k)
}

// A gramOffset is a needle that has a gram, and the gram's offset in it.
type gramOffset struct {
	needle int32
	offset int32
}

// shortClass finds needles of less than longNeedle bytes.
type shortClass struct {
	table  [1 << shortBits]byte // by hash of a gram: 1 if there is one
	places map[uint32][]gramOffset
}

func shortHash(gram uint32) uint32 { return gram * spread32 >> (32 - shortBits) }

func (c *shortClass) add(gram uint32, p gramOffset) {
	if c.places == nil {
		c.places = map[uint32][]gramOffset{}
	}
	c.table[shortHash(gram)] = 1
	c.places[gram] = append(c.places[gram], p)
}

func (c *shortClass) at(gram uint32) []gramOffset {
	if c.table[shortHash(gram)] == 0 {
		return nil
	}
	return c.places[gram]
}

// longClass finds all other needles.
type longClass struct {
	filter []uint64 // a bit for each gram's hash; a power of two of words
	places map[uint64][]gramOffset
}

func (c *longClass) add(gram uint64, p gramOffset) {
	if c.places == nil {
		c.places = map[uint64][]gramOffset{}
	}
	h := gram * spread64
	c.filter[h>>32&uint64(len(c.filter)-1)] |= 1 << (h >> 58)
	c.places[gram] = append(c.places[gram], p)
}

func (c *longClass) at(gram uint64) []gramOffset {
	if h := gram * spread64; c.filter[h>>32&uint64(len(c.filter)-1)]>>(h>>58)&1 == 0 {
		return nil
	}
	return c.places[gram]
}

// A match is an occurrence of a needle.
type match struct {
	start, end int
	needle     *needle
}

// findPlain appends every occurrence of every needle in buf to found.
func (x *index) findPlain(buf []byte, found []match) []match {
	if x.short.places != nil {
		found = x.findShort(buf, found)
	}
	if x.long.places != nil {
		found = x.findLong(buf, found)
	}
	return found
}

// findShort probes eight grams per turn, with one branch for all of them and without a
// load that waits for another.
func (x *index) findShort(buf []byte, found []match) []match {
	const turn = 8 * shortStride
	table := &x.short.table
	at := 0
	for ; at+turn <= len(buf); at += turn {
		b := (*[turn]byte)(buf[at:])
		if table[shortHash(binary.LittleEndian.Uint32(b[0*shortStride:]))]|
			table[shortHash(binary.LittleEndian.Uint32(b[1*shortStride:]))]|
			table[shortHash(binary.LittleEndian.Uint32(b[2*shortStride:]))]|
			table[shortHash(binary.LittleEndian.Uint32(b[3*shortStride:]))]|
			table[shortHash(binary.LittleEndian.Uint32(b[4*shortStride:]))]|
			table[shortHash(binary.LittleEndian.Uint32(b[5*shortStride:]))]|
			table[shortHash(binary.LittleEndian.Uint32(b[6*shortStride:]))]|
			table[shortHash(binary.LittleEndian.Uint32(b[7*shortStride:]))] == 0 {
			continue
		}
		for i := at; i < at+turn; i += shortStride {
			found = x.verify(buf, i, x.short.at(binary.LittleEndian.Uint32(buf[i:])), found)
		}
	}
	for ; at+shortGram <= len(buf); at += shortStride {
		found = x.verify(buf, at, x.short.at(binary.LittleEndian.Uint32(buf[at:])), found)
	}
	return found
}

// findLong does the same with four of the longer grams per turn.
func (x *index) findLong(buf []byte, found []match) []match {
	const turn = 4 * longStride
	filter := x.long.filter
	last := uint64(len(filter) - 1)
	at := 0
	for ; at+turn <= len(buf); at += turn {
		b := (*[turn]byte)(buf[at:])
		h0 := binary.LittleEndian.Uint64(b[0*longStride:]) * spread64
		h1 := binary.LittleEndian.Uint64(b[1*longStride:]) * spread64
		h2 := binary.LittleEndian.Uint64(b[2*longStride:]) * spread64
		h3 := binary.LittleEndian.Uint64(b[3*longStride:]) * spread64
		if (filter[h0>>32&last]>>(h0>>58)|filter[h1>>32&last]>>(h1>>58)|
			filter[h2>>32&last]>>(h2>>58)|filter[h3>>32&last]>>(h3>>58))&1 == 0 {
			continue
		}
		for i := at; i < at+turn; i += longStride {
			found = x.verify(buf, i, x.long.at(binary.LittleEndian.Uint64(buf[i:])), found)
		}
	}
	for ; at+longGram <= len(buf); at += longStride {
		found = x.verify(buf, at, x.long.at(binary.LittleEndian.Uint64(buf[at:])), found)
	}
	return found
}

// verify compares the needles that have the gram at buf[at:], and appends those that are in
// buf to found.
func (x *index) verify(buf []byte, at int, places []gramOffset, found []match) []match {
	for _, p := range places {
		n := &x.needles[p.needle]
		start := at - int(p.offset)
		end := start + len(n.text)
		if start >= 0 && end <= len(buf) && string(buf[start:end]) == n.text {
			found = append(found, match{start, end, n})
		}
	}
	return found
}

// hold returns the first offset in v from which the rest of v is the start of a needle,
// len(v.buf) if there is none.
func (x *index) hold(v view) int {
	buf := v.buf
	i := max(0, len(buf)-x.span)
	for ; i+4 <= len(buf); i++ {
		if needles, ok := x.fours[binary.LittleEndian.Uint32(buf[i:])]; ok && x.begins(v, i, needles) {
			return i
		}
		// The four bytes may have a line end of a dump between them.
		for j := i + 1; j < i+4; j++ {
			if v.skip(j) != j && x.begins(v, i, x.first[buf[i]]) {
				return i
			}
		}
	}
	for ; i < len(buf); i++ {
		rest := buf[i:]
		switch {
		case v.wrapped(rest) && x.begins(v, i, x.first[rest[0]]):
			return i
		case len(rest) == 3 && x.threes[[3]byte(rest)]:
			return i
		case len(rest) == 2 && x.pairs[uint(rest[0])<<2|uint(rest[1])>>6]>>(rest[1]&63)&1 != 0:
			return i
		case len(rest) == 1 && len(x.first[rest[0]]) > 0:
			return i
		}
	}
	return i
}

// begins reports whether the rest of v from i on is the start of one of the needles.
func (x *index) begins(v view, i int, needles []int32) bool {
	for _, k := range needles {
		text := x.needles[k].text
		if rest := v.buf[i:]; len(text) > len(rest) && string(rest) == text[:len(rest)] || v.begins(i, text) {
			return true
		}
	}
	return false
}
