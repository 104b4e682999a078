package tool

import (
	"testing"

	"github.com/sandboxbash/sandboxbash/sink"
)

func TestCutMiddle(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, text string
		limits     cutLimits
		want       string
		direction  sink.Direction // "" if nothing is cut
		partial    bool
	}{
		{"within", "a\nb\nc", cutLimits{Lines: 3, Bytes: 5}, "a\nb\nc", "", false},
		{"over the lines alone", "a\nb\nc\nd\ne", cutLimits{Lines: 4, Bytes: 100}, "a\nb\n[… 1 line elided (3B) …]\nd\ne", sink.DirectionMiddle, false},
		{"over the lines, odd", "a\nb\nc\nd\ne", cutLimits{Lines: 3, Bytes: 100}, "a\n[… 2 lines elided (5B) …]\nd\ne", sink.DirectionMiddle, false},
		{"over the bytes alone", "aa\nbb\ncc\ndd", cutLimits{Lines: 9, Bytes: 6}, "aa\n[… 2 lines elided (7B) …]\ndd", sink.DirectionMiddle, false},
		{"first line too long", "aaaaaaaa\nb\nc", cutLimits{Lines: 9, Bytes: 6}, "b\nc", sink.DirectionTail, false},
		{"first line too long, and the lines", "aaaaaaaa\nb\nc\nd", cutLimits{Lines: 2, Bytes: 100, HeadBytes: 3}, "c\nd", sink.DirectionTail, false},
		{"only line too long", "aaaaaaaa", cutLimits{Lines: 9, Bytes: 6}, "aaaaaa", sink.DirectionTail, true},
		{"no line for the head", "a\nb", cutLimits{Lines: 1, Bytes: 9}, "b", sink.DirectionTail, false},
		{"no line for the tail", "a\nb\nc", cutLimits{Lines: 2, Bytes: 9, HeadLines: 2}, "a\nb", sink.DirectionHead, false},
		{"no byte for the tail", "a\nb\nc", cutLimits{Lines: 9, Bytes: 3, HeadBytes: 3}, "a\nb", sink.DirectionHead, false},
		{"last line too long", "a\nb\ncccccccc", cutLimits{Lines: 9, Bytes: 8}, "a\nb\n[… 0 lines elided (5B) …]\ncccc", sink.DirectionMiddle, true},
	} {
		got := cutMiddle(row.text, row.limits)
		direction := sink.Direction("")
		if got.Truncation != nil {
			direction = got.Truncation.Direction
		}
		if got.Text != row.want || direction != row.direction || got.LastLinePartial != row.partial {
			t.Errorf("%s: cutMiddle(%q, %+v) = %q, %s, partial %v; want %q, %s, %v",
				row.name, row.text, row.limits, got.Text, direction, got.LastLinePartial, row.want, row.direction, row.partial)
		}
	}
}

func TestHumanizeBytes(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0B", 4095: "4095B", 4096: "4kB", 200000: "195kB", 131072: "128kB", 10 << 20: "10MB", 1 << 30: "more than 1GB",
	} {
		if got := humanizeBytes(n); got != want {
			t.Errorf("humanizeBytes(%d) = %q; want %q", n, got, want)
		}
	}
}
