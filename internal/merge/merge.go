// Package merge compares texts by lines, and merges what two sides have made of one text.
package merge

import (
	"bytes"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// MaxText is the largest content that is taken for a text, in bytes.
const MaxText = 1 << 20

// IsText reports whether a content is a text of lines: no NUL byte, and not too large.
func IsText(b []byte) bool { return len(b) <= MaxText && bytes.IndexByte(b, 0) < 0 }

// edit says that lines [from, to) of one text are new in another.
type edit struct {
	from, to int
	new      []string
	hunk     int // of Unified
}

// lines splits a text. Each line keeps its end; the last one may have none.
func lines(text []byte) []string {
	if len(text) == 0 {
		return nil
	}
	all := strings.SplitAfter(string(text), "\n")
	if all[len(all)-1] == "" {
		all = all[:len(all)-1]
	}
	return all
}

// edits returns what makes b of a, in order. No two of them touch.
func edits(a, b []byte) []edit {
	var out []edit
	now := lines(b)
	i, j, hunk := 0, 0, -1
	add := func(drop bool) {
		if n := len(out); n == 0 || out[n-1].to < i {
			out = append(out, edit{from: i, to: i, hunk: hunk})
		}
		last := &out[len(out)-1]
		if drop {
			i++
			last.to = i
			return
		}
		last.new = append(last.new, now[j])
		j++
	}
	body := diff.Diff("a", a, "b", b)
	for row := range bytes.Lines(body[min(len(body), head(body)):]) {
		switch row[0] {
		case '@':
			hunk++
			from, skip := hunkStart(row)
			if skip {
				from++ // an empty range is named by the line before it
			}
			j += from - 1 - i
			i = from - 1
		case ' ':
			i++
			j++
		case '-':
			add(true)
		case '+':
			add(false)
		}
	}
	return out
}

// head returns the length of the lines before the first hunk: three.
func head(body []byte) int {
	n := 0
	for range 3 {
		n += bytes.IndexByte(body[n:], '\n') + 1
	}
	return n
}

// hunkStart reads "@@ -FROM,COUNT +…", and reports whether COUNT is 0.
func hunkStart(row []byte) (from int, empty bool) {
	text := strings.TrimPrefix(string(row), "@@ -")
	number, text, _ := strings.Cut(text, ",")
	for _, digit := range number {
		from = from*10 + int(digit-'0')
	}
	return from, strings.HasPrefix(text, "0 ")
}

// Merge merges what two sides have made of base. It reports false where they have changed
// the same lines, or lines next to each other, in different ways, and for what is not a text.
func Merge(base, ours, theirs []byte) ([]byte, bool) {
	switch {
	case bytes.Equal(ours, theirs), bytes.Equal(base, theirs):
		return ours, true
	case bytes.Equal(base, ours):
		return theirs, true
	case !IsText(base) || !IsText(ours) || !IsText(theirs):
		return nil, false
	}
	m := merger{base: lines(base), sides: [2][]edit{edits(base, ours), edits(base, theirs)}}
	for len(m.sides[0])+len(m.sides[1]) > 0 {
		if !m.step() {
			return nil, false
		}
	}
	m.copyTo(len(m.base))
	return m.out.Bytes(), true
}

// merger is one Merge.
type merger struct {
	base  []string
	at    int       // the lines of base before it are in out
	sides [2][]edit // that are left
	out   bytes.Buffer
}

// step merges the next region: the edits that touch each other.
func (m *merger) step() bool {
	from, to := m.next()
	var taken [2][]edit
	for grown := true; grown; {
		grown = false
		for k, left := range m.sides {
			if len(left) > 0 && left[0].from <= to {
				to = max(to, left[0].to)
				taken[k], m.sides[k] = append(taken[k], left[0]), left[1:]
				grown = true
			}
		}
	}
	m.copyTo(from)
	ours, theirs := apply(m.base, from, to, taken[0]), apply(m.base, from, to, taken[1])
	switch {
	case len(taken[1]) == 0 || ours == theirs:
		m.out.WriteString(ours)
	case len(taken[0]) == 0:
		m.out.WriteString(theirs)
	default:
		return false
	}
	m.at = to
	return true
}

// next returns the range of the first edit of both sides.
func (m *merger) next() (from, to int) {
	k := 0
	if len(m.sides[0]) == 0 || len(m.sides[1]) > 0 && m.sides[1][0].from < m.sides[0][0].from {
		k = 1
	}
	return m.sides[k][0].from, m.sides[k][0].to
}

func (m *merger) copyTo(line int) {
	for ; m.at < line; m.at++ {
		m.out.WriteString(m.base[m.at])
	}
}

// apply returns lines [from, to) of base with edits that lie in them.
func apply(base []string, from, to int, edits []edit) string {
	var out strings.Builder
	for _, e := range edits {
		out.WriteString(strings.Join(base[from:e.from], ""))
		out.WriteString(strings.Join(e.new, ""))
		from = e.to
	}
	out.WriteString(strings.Join(base[from:to], ""))
	return out.String()
}
