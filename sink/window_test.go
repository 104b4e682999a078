package sink

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestWindow(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		size       Window
		in         string
		head, tail string
		want       *Truncation
	}{
		{"tail fits", Tail(5), "a\nb\nc", "a\nb\nc", "", nil},
		{"tail", Tail(5), "a\nb\ncd", "", "\nb\ncd", &Truncation{
			Direction: DirectionTail, TruncatedBy: ByBytes, TotalLines: 3, TotalBytes: 6, OutputLines: 3, OutputBytes: 5,
			ShownRange: &Range{1, 3}, ElidedBytes: 1,
		}},
		{"head", Head(3), "a\nb\ncd", "a\nb", "", &Truncation{
			Direction: DirectionHead, TruncatedBy: ByBytes, TotalLines: 3, TotalBytes: 6, OutputLines: 2, OutputBytes: 3,
			ShownRange: &Range{1, 2}, ElidedBytes: 3, ElidedLines: 1,
		}},
		{"head and tail", HeadTail(4, 3), "a\nb\nc\nd\ne\nf", "a\nb\n", "e\nf", &Truncation{
			Direction: DirectionMiddle, TruncatedBy: ByMiddle, TotalLines: 6, TotalBytes: 11, OutputLines: 4, OutputBytes: 7,
			HeadRange: &Range{1, 2}, TailRange: &Range{5, 6}, ElidedBytes: 4, ElidedLines: 2,
		}},
		{"whole", Window{Whole: 10, Head: 2, Tail: 2}, "0123456789", "0123456789", "", nil},
		{"beyond whole", Window{Whole: 10, Head: 2, Tail: 2}, "0123456789a", "01", "9a", &Truncation{
			Direction: DirectionMiddle, TruncatedBy: ByMiddle, TotalLines: 1, TotalBytes: 11, OutputLines: 2, OutputBytes: 4,
			HeadRange: &Range{1, 1}, TailRange: &Range{1, 1}, ElidedBytes: 7,
		}},
		{"empty", Window{}, "", "", "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, n := range []int{1, 2, 4, len(tt.in) + 1} {
				w := newWindow(tt.size)
				for rest := tt.in; rest != ""; {
					k := min(n, len(rest))
					w.write([]byte(rest[:k]))
					rest = rest[k:]
				}
				head, tail, got := w.view()
				if head != tt.head || tail != tt.tail {
					t.Errorf("view() in writes of %d = %q, %q; want %q, %q", n, head, tail, tt.head, tt.tail)
				}
				if !sameTruncation(got, tt.want) {
					t.Errorf("view() in writes of %d says %+v; want %+v", n, got, tt.want)
				}
			}
		})
	}
}

func sameTruncation(a, b *Truncation) bool {
	if a == nil || b == nil {
		return a == b
	}
	same := func(a, b *Range) bool { return a == b || a != nil && b != nil && *a == *b }
	x, y := *a, *b
	x.ShownRange, x.HeadRange, x.TailRange, y.ShownRange, y.HeadRange, y.TailRange = nil, nil, nil, nil, nil, nil
	return x == y && same(a.ShownRange, b.ShownRange) && same(a.HeadRange, b.HeadRange) && same(a.TailRange, b.TailRange)
}

// TestWindowFrom goes on where a read has ended, and tells where it begins.
func TestWindowFrom(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		size  Window
		write string
		at    int64
		want  string
		begin int64
	}{
		{"all", Tail(10), "hello", 0, "hello", 0},
		{"a part", Tail(10), "hello", 3, "lo", 3},
		{"the end", Tail(10), "hello", 5, "", 5},
		{"beyond the end", Tail(10), "hello", 9, "", 5},
		{"elided", Tail(4), "hello world", 2, "orld", 7},
		{"behind what is elided", Tail(4), "hello world", 9, "ld", 9},
		{"inside a character", Tail(10), "aéb", 2, "b", 3},
		{"elided inside a character", Tail(3), "xxéé", 0, "é", 4},
		{"with a head that is whole", HeadTail(3, 4), "hello", 1, "ello", 1},
		{"with a head, elided", HeadTail(3, 4), "hello world", 1, "orld", 7},
	} {
		w := newWindow(test.size)
		for i := range len(test.write) { // however it is cut
			w.write([]byte(test.write[i : i+1]))
		}
		if got, begin := w.from(test.at); got != test.want || begin != test.begin {
			t.Errorf("%s: from(%d) = %q, %d; want %q, %d", test.name, test.at, got, begin, test.want, test.begin)
		}
	}
}

func TestWindowKeepsCharactersWhole(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("aé日😀", 50)
	for head := range 12 {
		for tail := range 12 {
			w := newWindow(Window{Whole: 24, Head: head, Tail: tail})
			w.write([]byte(text))
			h, e, tr := w.view()
			if !utf8.ValidString(h) || !utf8.ValidString(e) || !strings.HasPrefix(text, h) || !strings.HasSuffix(text, e) {
				t.Fatalf("Window{%d, %d} shows %q and %q", head, tail, h, e)
			}
			if tr.OutputBytes+tr.ElidedBytes != int64(len(text)) || head+tail > 0 && (len(h) < head-3 || len(e) < tail-3) {
				t.Fatalf("Window{%d, %d}: %+v", head, tail, tr)
			}
		}
	}
}

func TestFormatCount(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 7148: "7,148", 1234567: "1,234,567"} {
		if got := FormatCount(n); got != want {
			t.Errorf("FormatCount(%d) = %q; want %q", n, got, want)
		}
	}
}

func TestWindowOfNothing(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]Window{"Tail": Tail(0), "Head": Head(0), "HeadTail": HeadTail(0, 0)} {
		w := newWindow(size)
		for range 3 {
			w.write([]byte(strings.Repeat("line\n", 50_000)))
		}
		head, tail, tr := w.view()
		if head+tail != "" || cap(w.tail.buf) > 0 || tr == nil || tr.ElidedBytes != 750_000 || tr.OutputLines != 0 {
			t.Errorf("%s(0) keeps %q and %d bytes, %+v; want nothing", name, head+tail, cap(w.tail.buf), tr)
		}
	}
	if w := newWindow(Window{}); w.size.Tail != DefaultWindow {
		t.Errorf("the zero window keeps %d bytes; want %d", w.size.Tail, DefaultWindow)
	}
}

// Where no whole character fits, there is no marker for what is not there.
func TestMiddleNeedsBothEnds(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		size Window
		want string
		by   Direction
	}{{HeadTail(1, 2), "é", DirectionTail}, {HeadTail(2, 1), "é", DirectionHead}, {HeadTail(2, 2), "é\n[… 0 lines elided (2B) …]\né", DirectionMiddle}} {
		o := run(t, Options{Streams: Merged, Window: row.size}, "ééé")
		if got := o.Stdout.Text(); got != row.want || o.Stdout.Truncation.Direction != row.by {
			t.Errorf("window %+v shows %q, %s; want %q, %s", row.size, got, o.Stdout.Truncation.Direction, row.want, row.by)
		}
	}
}
