package artifactcmd

import (
	"testing"
)

func TestParseRange(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text     string
		from, to int64
		ok       bool
	}{
		{"-", 0, -1, true},
		{"5-", 5, -1, true},
		{"-7", 0, 7, true},
		{"5-7", 5, 7, true},
		{"7-7", 7, 7, true},
		{"7-5", 0, 0, false},
		{"5", 0, 0, false},
		{"a-b", 0, 0, false},
		{"1-2-3", 0, 0, false},
		{"--5", 0, 0, false},
		{"99999999999999999999-", 0, 0, false},
		{"", 0, 0, false},
	} {
		from, to, err := parseRange(test.text)
		if from != test.from || to != test.to || (err == nil) != test.ok {
			t.Errorf("parseRange(%q) = %d, %d, %v; want %d, %d, ok %v", test.text, from, to, err, test.from, test.to, test.ok)
		}
	}
}
