package transfer

import (
	"encoding/binary"
	"errors"
	"io"
)

// An update brings changes of this machine to a directory of a session: deletions, directories, files
// and links. The runner compares what is there with what both sides had immediately before it replaces
// it, so that what the session has changed is never lost.

// Verdict says what has become of one change.
type Verdict byte

// Verdicts.
const (
	Taken   Verdict = 't' // done; if it was only asked: it can be done
	Alike   Verdict = 's' // the session has it already
	Clash   Verdict = 'c' // the session has changed it, too
	Gone    Verdict = 'g' // the session has deleted what was changed
	Missed  Verdict = 'm' // the content that was announced has not come
	endMark         = '.' // behind the last verdict
)

// Modes of an update: the first byte of its stream.
const (
	updateAsk  = '?' // verdicts only: no content follows
	updateDo   = '!'
	maxUpdates = 96 << 20 // bytes of a state, as many as one of DefaultLimits has
)

// errUpdate is returned for a stream that is not an update.
var errUpdate = errors.New("not an update")

// AppendUpdate appends the beginning of an update to b: what is to change, as deltas that are sorted
// by name. If ask is set, it is only asked what would become of them. Else a tar stream of the files
// and links follows.
func AppendUpdate(b []byte, deltas []Delta, ask bool) []byte {
	mode := byte(updateDo)
	if ask {
		mode = updateAsk
	}
	b = append(b, mode)
	var was, now State
	for _, d := range deltas {
		if d.Was.Kind != 0 {
			was = append(was, d.Was)
		}
		if d.Now.Kind != 0 {
			now = append(now, d.Now)
		}
	}
	for _, s := range []State{was, now} {
		text := s.Append(nil)
		b = binary.AppendUvarint(b, uint64(len(text)))
		b = append(b, text...)
	}
	return b
}

// readUpdate reads what AppendUpdate has written.
func readUpdate(in interface {
	io.Reader
	io.ByteReader
},
) (deltas []Delta, ask bool, err error) {
	mode, err := in.ReadByte()
	if err != nil {
		return nil, false, err
	}
	if mode != updateAsk && mode != updateDo {
		return nil, false, errUpdate
	}
	var states [2]State
	for i := range states {
		size, err := binary.ReadUvarint(in)
		if err != nil {
			return nil, false, err
		}
		if size > maxUpdates {
			return nil, false, errUpdate
		}
		text, err := io.ReadAll(io.LimitReader(in, int64(size)))
		if err == nil && uint64(len(text)) < size {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, false, err
		}
		if states[i], err = ParseState(text); err != nil {
			return nil, false, err
		}
	}
	return Deltas(states[0], states[1]), mode == updateAsk, nil
}

// ParseVerdicts reads the answer to an update of n changes.
func ParseVerdicts(b []byte, n int) ([]Verdict, error) {
	if len(b) != n+1 || b[n] != endMark {
		return nil, errors.New("the answer to the changes is not one")
	}
	out := make([]Verdict, n)
	for i, v := range b[:n] {
		switch out[i] = Verdict(v); out[i] {
		case Taken, Alike, Clash, Gone, Missed:
		default:
			return nil, errors.New("the answer to the changes is not one")
		}
	}
	return out, nil
}
