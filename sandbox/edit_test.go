package sandbox

import (
	"errors"
	"strings"
	"testing"
)

// A range of lines is the same wherever the stream is cut, and ends the stream behind it.
func TestLineRange(t *testing.T) {
	t.Parallel()
	const text = "one\ntwo\n\nfour"
	for _, row := range []struct {
		first, last int64
		want        string
		seen        int64
		ended       bool
	}{
		{1, 100, text, 4, false},
		{2, 2, "two\n", 2, true},
		{2, 3, "two\n\n", 3, true},
		{4, 4, "four", 4, false},
		{9, 9, "", 4, false},
	} {
		for size := 1; size <= len(text); size++ {
			var out strings.Builder
			l := &lineRange{first: row.first, last: row.last, out: &out, line: 1}
			var err error
			for at := 0; at < len(text) && err == nil; at += size {
				_, err = l.Write([]byte(text[at:min(at+size, len(text))]))
			}
			seen := l.line - 1
			if l.open {
				seen++
			}
			if out.String() != row.want || errors.Is(err, errLinesRead) != row.ended || seen != row.seen {
				t.Errorf("lines %d to %d in pieces of %d: %q, %d lines, %v; want %q, %d", row.first, row.last, size, out.String(), seen, err, row.want, row.seen)
			}
		}
	}
}
