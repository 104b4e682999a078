package merge

import (
	"bytes"
	"slices"

	"github.com/rogpeppe/go-internal/diff"
)

// Unified returns the hunks of a unified diff, without the names, and how many lines were
// added and removed.
func Unified(was, now []byte) (hunks []byte, added, removed int) {
	body := diff.Diff("a", was, "b", now)
	if len(body) == 0 {
		return nil, 0, 0
	}
	hunks = body[head(body):]
	for row := range bytes.Lines(hunks) {
		switch row[0] {
		case '+':
			added++
		case '-':
			removed++
		}
	}
	return hunks, added, removed
}

// Choose returns the former text with those hunks of Unified that are to be taken.
func Choose(was, now []byte, take []bool) []byte {
	chosen := slices.DeleteFunc(edits(was, now), func(e edit) bool { return e.hunk >= len(take) || !take[e.hunk] })
	base := lines(was)
	return []byte(apply(base, 0, len(base), chosen))
}

// Hunks splits what Unified returns.
func Hunks(unified []byte) (out []string) {
	for row := range bytes.Lines(unified) {
		if row[0] == '@' { // any other row begins with a blank, a sign or a backslash
			out = append(out, "")
		}
		out[len(out)-1] += string(row)
	}
	return out
}
