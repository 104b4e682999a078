package wire

import (
	"bytes"
	"strings"
	"testing"
)

func TestReadTerminal(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		text, rest string
		pid        int
	}{
		{"123\nrest", "rest", 123},
		{"1\n", "", 0},
		{"x\n", "\n", 0},
		{"", "", 0},
		{strings.Repeat("9", 100), strings.Repeat("9", 92), 0},
	} {
		r := bytes.NewReader([]byte(row.text))
		pid, err := ReadTerminal(r)
		if pid != row.pid || (err == nil) != (row.pid > 0) {
			t.Errorf("ReadTerminal(%q) = %d, %v; want %d", row.text, pid, err, row.pid)
		}
		if got := row.text[len(row.text)-r.Len():]; got != row.rest {
			t.Errorf("ReadTerminal(%q) left %q; want %q", row.text, got, row.rest)
		}
	}
}

func TestPong(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		m    Pong
		want string
	}{{Pong{}, ""}, {Pong{State: TerminalStarted}, "s"}, {Pong{State: TerminalWaits}, "w"}, {Pong{State: TerminalUnknown}, "?"}} {
		b := row.m.Append(nil)
		if string(b) != row.want {
			t.Errorf("%+v.Append() = %q; want %q", row.m, b, row.want)
		}
		if got, err := ParsePong(b); got != row.m || err != nil {
			t.Errorf("ParsePong(%q) = %+v, %v; want %+v", b, got, err, row.m)
		}
	}
}
