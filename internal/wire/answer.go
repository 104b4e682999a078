package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"strings"
)

// The verbs that run as programs of their own (VerbPush, VerbSurvey, VerbTerms) answer
// in lines of text, one item per line: their runner says no Hello, and the text is the
// same for every version of the protocol.

// Sum is the answer of VerbPush: a hash of all that arrived, so that the sender knows
// that all of it was written.
type Sum [sha256.Size]byte

// Append appends the answer to dst.
func (s Sum) Append(dst []byte) []byte { return append(hex.AppendEncode(dst, s[:]), '\n') }

// ParseSum reads an answer.
func ParseSum(b []byte) (s Sum, err error) {
	text := bytes.TrimSuffix(b, []byte{'\n'})
	if n, err := hex.Decode(s[:], text[:min(len(text), 2*len(s))]); err != nil || n != len(s) || len(text) != 2*len(s) {
		return Sum{}, fmt.Errorf("%w: sum %.80q", ErrFrame, b)
	}
	return s, nil
}

// Survey is what VerbSurvey has found below one directory.
type Survey struct {
	// Digest is the same only if nothing below the directory has changed. It is empty
	// where not everything could be read in time: the numbers are then what was seen.
	Digest  string
	Entries int64
	Bytes   int64 // on the disk
}

// noDigest stands for an empty Digest.
const noDigest = "-"

// AppendSurvey appends one line of the answer to dst.
func AppendSurvey(dst []byte, s Survey) []byte {
	if s.Digest == "" {
		s.Digest = noDigest
	}
	return fmt.Appendf(dst, "%s %d %d\n", s.Digest, s.Entries, s.Bytes)
}

// ParseSurveys reads an answer.
func ParseSurveys(b []byte) ([]Survey, error) {
	var all []Survey
	for line := range textLines(b) {
		var s Survey
		if _, err := fmt.Sscanf(line, "%s %d %d", &s.Digest, &s.Entries, &s.Bytes); err != nil {
			return nil, fmt.Errorf("%w: survey %q: %w", ErrFrame, line, err)
		}
		if s.Digest == noDigest {
			s.Digest = ""
		}
		all = append(all, s)
	}
	return all, nil
}

// MaxTerms bounds the question and the answer of VerbTerms in bytes.
const MaxTerms = 4 << 10

// AppendTerms appends names of kinds of terminals to dst.
func AppendTerms(dst []byte, names []string) []byte {
	for _, name := range names {
		dst = append(append(dst, name...), '\n')
	}
	return dst
}

// ParseTerms reads names of kinds of terminals.
func ParseTerms(b []byte) []string {
	var names []string
	for line := range textLines(b) {
		names = append(names, line)
	}
	return names
}

// textLines yields lines without their ends.
func textLines(b []byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range bytes.Lines(b) {
			if !yield(strings.TrimSuffix(string(line), "\n")) {
				return
			}
		}
	}
}
