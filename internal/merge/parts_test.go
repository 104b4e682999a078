package merge

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestLines(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"": nil, "a": {"a"}, "a\n": {"a\n"}, "a\nb": {"a\n", "b"}, "\n\n": {"\n", "\n"}, "a\r\nb\r\n": {"a\r\n", "b\r\n"},
	} {
		if got := lines([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("lines(%q) = %q; want %q", text, got, want)
		}
	}
}

func TestIsText(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		content []byte
		want    bool
	}{
		{nil, true},
		{[]byte("a\xff\n"), true},
		{[]byte("a\x00"), false},
		{bytes.Repeat([]byte("x"), MaxText), true},
		{bytes.Repeat([]byte("x"), MaxText+1), false},
	} {
		if got := IsText(row.content); got != row.want {
			t.Errorf("IsText of %d bytes = %v; want %v", len(row.content), got, row.want)
		}
	}
}

// Changes to lines that are two apart are merged, and those to neighbours are not, wherever in
// the text they are.
func TestMergeDistance(t *testing.T) {
	t.Parallel()
	const n = 12
	base := make([]string, n)
	for i := range base {
		base[i] = fmt.Sprintf("%d\n", i)
	}
	with := func(i int) []byte {
		list := slices.Clone(base)
		list[i] = "changed " + list[i]
		return []byte(strings.Join(list, ""))
	}
	for i := range n {
		for j := range n {
			got, ok := Merge([]byte(strings.Join(base, "")), with(i), with(j))
			apart := i == j || i-j > 1 || j-i > 1
			if ok != apart {
				t.Errorf("lines %d and %d: merged %v; want %v", i, j, ok, apart)
			}
			if ok && bytes.Count(got, []byte("changed")) != 1+min(1, max(i-j, j-i)) {
				t.Errorf("lines %d and %d: %q", i, j, got)
			}
		}
	}
}

// What is merged has every line that only one side has added, and none that a side has removed.
func TestMergeKeepsChanges(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(20261123, 1))
	clean := 0
	for range 2000 {
		base := make([]string, 30)
		for i := range base {
			base[i] = fmt.Sprintf("line %d\n", i)
		}
		var added, removed []string
		change := func(side string) []byte {
			var out []string
			for i, line := range base {
				switch random.IntN(20) {
				case 0:
					removed = append(removed, line)
					continue
				case 1:
					more := fmt.Sprintf("%s adds %d\n", side, i)
					added = append(added, more)
					out = append(out, more)
				}
				out = append(out, line)
			}
			return []byte(strings.Join(out, ""))
		}
		ours, theirs := change("ours"), change("theirs")
		got, ok := Merge([]byte(strings.Join(base, "")), ours, theirs)
		if !ok {
			continue
		}
		clean++
		now := lines(got)
		for _, line := range added {
			if !slices.Contains(now, line) {
				t.Fatalf("%q was lost:\n%s", line, got)
			}
		}
		for _, line := range removed {
			if slices.Contains(now, line) {
				t.Fatalf("%q has come back:\n%s", line, got)
			}
		}
	}
	if clean < 200 {
		t.Errorf("%d merges were clean; want enough to say something", clean)
	}
}
