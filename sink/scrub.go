package sink

import (
	"cmp"
	"slices"
)

// An origin says what is known of the bytes that a scrubber is given or gives.
type origin int

const (
	// changed bytes may hold anything.
	changed origin = iota
	// scanned bytes hold no secret by themselves; one may begin or end in them.
	scanned
)

// A scrubber masks secrets in a stream, however it is cut into writes. It
// passes on what cannot be part of a secret at once and without a copy, and holds
// back at its end only what may be the beginning of one.
type scrubber struct {
	secrets *Secrets
	index   *index
	out     func(p []byte, from origin) // p is valid during the call

	held    []byte // possible beginning of a secret
	joined  []byte // scratch: held and the begin of a write
	found   []match
	unwrap  unwrapper
	run     int // characters of an encoded dump before held
	covered int // bytes of held that are masked already; -1 if no mask touches held
	last    int // the secret of that mask
	masked  int64
}

// newScrubber returns a scrubber that gives to out. With no secrets, out is
// given what write is.
func newScrubber(s *Secrets, out func([]byte, origin)) *scrubber {
	sc := &scrubber{secrets: s, out: out, covered: -1}
	if s != nil {
		sc.index = s.index
	}
	return sc
}

func (sc *scrubber) write(p []byte, from origin) {
	switch {
	case sc.index == nil:
		sc.out(p, from)
		return
	case len(p) == 0:
		return
	}
	if len(sc.held) > 0 {
		n := min(len(p), sc.index.span)
		sc.joined = append(append(sc.joined[:0], sc.held...), p[:n]...)
		sc.held = sc.held[:0]
		kept := sc.process(sc.joined, changed)
		if n == len(p) {
			sc.held = append(sc.held, sc.joined[kept:]...)
			return
		}
		// What is held is shorter than span, so that it lies within p.
		p = p[n-(len(sc.joined)-kept):]
	}
	kept := sc.process(p, from)
	sc.held = append(sc.held[:0], p[kept:]...)
}

// flush gives out what is held: the stream ends here.
func (sc *scrubber) flush() {
	if len(sc.held) > 0 {
		held := sc.held
		sc.held = nil
		sc.emit(view{held, sc.run}, len(held), changed)
	}
}

// process gives out buf up to where a secret may begin, and returns that point.
func (sc *scrubber) process(buf []byte, from origin) int {
	v := view{buf, sc.run}
	to := sc.index.hold(v)
	sc.emit(v, to, from)
	return to
}

// emit gives out v.buf[:to] with the secrets that begin in it masked.
func (sc *scrubber) emit(v view, to int, from origin) {
	sc.found = sc.found[:0]
	if from == changed {
		sc.find(v)
	}
	at := max(sc.covered, 0) // given out, or masked, up to here
	end := sc.covered        // end of the last mask; -1 if there is none
	for _, m := range sc.found {
		if m.start >= to {
			break
		}
		follows := m.start < end || m.start == end && m.needle.later && m.needle.secret == sc.last
		switch {
		case follows && m.end <= end:
			continue
		case follows && m.needle.secret == sc.last:
		case follows:
			sc.mask(m.needle.secret)
		default:
			if m.start > at {
				sc.out(v.buf[at:m.start], scanned)
			}
			sc.mask(m.needle.secret)
		}
		end = m.end
		at = end
	}
	if at < to {
		sc.out(v.buf[at:to], scanned)
	}
	sc.covered = max(end-to, -1)
	sc.run = v.runBefore(to)
}

// find finds every occurrence in v, ordered by start, the longest first.
func (sc *scrubber) find(v view) {
	sc.found = sc.index.findPlain(v.buf, sc.found)
	sc.found = sc.unwrap.find(sc.index, v, sc.found)
	if len(sc.found) > 1 {
		slices.SortStableFunc(sc.found, func(a, b match) int {
			return cmp.Or(a.start-b.start, b.end-a.end)
		})
	}
}

func (sc *scrubber) mask(secret int) {
	sc.last = secret
	sc.masked++
	sc.out([]byte(sc.secrets.masks[secret]), changed)
}
