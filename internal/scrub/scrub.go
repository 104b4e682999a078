package scrub

import (
	"cmp"
	"slices"
)

// An Origin says what is known of bytes before or after a Scrubber.
type Origin int

const (
	// Changed bytes may hold anything.
	Changed Origin = iota
	// Scanned bytes contain no whole secret; one may start or end in them.
	Scanned
)

// A Scrubber masks secrets in a stream, however the stream is cut into writes. It passes
// on bytes that cannot be part of a secret at once, without a copy. It holds back only
// bytes at the end that may be the start of a secret.
//
// The Scrubber is a window that moves over the stream. Each Write is one step:
//
//  1. The window is what was held, followed by the start of the write: at most span bytes
//     of that, because no occurrence is longer. The rest of a longer write is then a window
//     of its own, which starts at the first byte that the first window could not decide. So
//     only held bytes are copied.
//  2. index.hold finds the first byte from which the rest of the window is the start of a
//     needle. Every occurrence that starts before that byte ends in the window.
//  3. emit passes on everything before that byte, with a mask in the place of each
//     occurrence that starts there. Occurrences of one secret share a mask if they overlap,
//     and so do its pieces if they follow each other.
//  4. The rest becomes held. The last mask may reach into it: covered says how many of its
//     bytes the mask has replaced already. They stay in the window, because another secret
//     can start in them. run says how many characters of a dump come before held: they
//     decide whether a line end is one of a dump.
//
// Flush is a step in which nothing is held back.
type Scrubber struct {
	secrets *Secrets
	index   *index
	out     func(p []byte, from Origin) // p is valid during the call

	held    []byte // possible beginning of a secret
	joined  []byte // scratch: held and the start of a write
	found   []match
	unwrap  unwrapper
	run     int // characters of an encoded dump before held
	covered int // bytes of held that a mask has replaced already; -1 if no mask reaches held
	last    int // the secret of that mask
	masked  int64
}

// New returns a Scrubber that calls out. Without secrets it passes on each write
// unchanged.
func New(s *Secrets, out func([]byte, Origin)) *Scrubber {
	sc := &Scrubber{secrets: s, out: out, covered: -1}
	if s != nil {
		sc.index = s.index
	}
	return sc
}

// Write scrubs a part of the stream. It does not keep p.
func (sc *Scrubber) Write(p []byte, from Origin) {
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
		kept := sc.process(sc.joined, Changed)
		if n == len(p) {
			sc.held = append(sc.held, sc.joined[kept:]...)
			return
		}
		// The held bytes are shorter than span, so they lie within p.
		p = p[n-(len(sc.joined)-kept):]
	}
	kept := sc.process(p, from)
	sc.held = append(sc.held[:0], p[kept:]...)
}

// Masked returns how many occurrences of secrets have been masked.
func (sc *Scrubber) Masked() int64 { return sc.masked }

// Holds reports whether bytes are held back: the last ones written may be the start of a secret.
func (sc *Scrubber) Holds() bool { return len(sc.held) > 0 }

// Flush passes on what is held back: the stream has ended.
func (sc *Scrubber) Flush() {
	if len(sc.held) > 0 {
		held := sc.held
		sc.held = nil
		sc.emit(view{held, sc.run}, len(held), Changed)
	}
}

// process passes on buf up to where a secret may start, and returns that offset.
func (sc *Scrubber) process(buf []byte, from Origin) int {
	v := view{buf, sc.run}
	to := sc.index.hold(v)
	sc.emit(v, to, from)
	return to
}

// emit passes on v.buf[:to], with the secrets that start in it masked.
func (sc *Scrubber) emit(v view, to int, from Origin) {
	sc.found = sc.found[:0]
	if from == Changed {
		sc.find(v)
	}
	at := max(sc.covered, 0) // passed on, or masked, up to here
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
				sc.out(v.buf[at:m.start], Scanned)
			}
			sc.mask(m.needle.secret)
		}
		end = m.end
		at = end
	}
	if at < to {
		sc.out(v.buf[at:to], Scanned)
	}
	sc.covered = max(end-to, -1)
	sc.run = v.runBefore(to)
}

// find finds every occurrence in v, ordered by start, the longest first.
func (sc *Scrubber) find(v view) {
	sc.found = sc.index.findPlain(v.buf, sc.found)
	sc.found = sc.unwrap.find(sc.index, v, sc.found)
	if len(sc.found) > 1 {
		slices.SortStableFunc(sc.found, func(a, b match) int {
			return cmp.Or(a.start-b.start, b.end-a.end)
		})
	}
}

func (sc *Scrubber) mask(secret int) {
	sc.last = secret
	sc.masked++
	sc.out([]byte(sc.secrets.masks[secret]), Changed)
}
