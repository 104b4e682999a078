package sink

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sandboxbash/sandboxbash/internal/scrub"
)

// cleaned sends text through a cleaner in writes of n bytes.
func cleaned(opts Text, text string, n int) string {
	var b bytes.Buffer
	c := newCleaner(opts, func(p []byte, _ scrub.Origin) { b.Write(p) })
	for len(text) > 0 {
		n := min(n, len(text))
		c.write([]byte(text[:n]), scrub.Changed)
		text = text[n:]
	}
	c.flush()
	return b.String()
}

func TestText(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("1", n) }
	rewind, lf, show := Text{Return: RewindReturn}, Text{Return: NewlineReturn}, Text{Invisible: ShowInvisible}
	for _, tt := range []struct {
		name     string
		opts     Text
		in, want string
	}{
		{"plain", Text{}, "a\tb\nc", "a\tb\nc"},
		{"utf-8", Text{}, "é日😀\n", "é日😀\n"},
		{"control characters", Text{}, "a\x00b\x07c\bd\ve\ff\x7fg\n", "abcdefg\n"},
		{"colours", Text{}, "\x1b[1;31mred\x1b[0m", "red"},
		{"private and intermediate", Text{}, "\x1b[?25l\x1b[2 qx\x1b[>c", "x"},
		{"title by BEL", Text{}, "\x1b]0;title\x07hello", "hello"},
		{"title by ST", Text{}, "\x1b]2;title\x1b\\hello", "hello"},
		{"title with UTF-8 that has 0x9C", Text{}, "\x1b]0;Ü Ü\x07hello", "hello"},
		{"link", Text{}, "\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"},
		{"clipboard", Text{}, "\x1b]52;c;aGk=\x07x", "x"},
		{"DCS", Text{}, "\x1bP1$q\"p\x1b\\x", "x"},
		{"DCS does not end with BEL", Text{}, "\x1bPa\x07b\x1b\\x", "x"},
		{"APC, PM, SOS", Text{}, "\x1b_a\x1b\\1\x1b^b\x1b\\2\x1bXc\x1b\\3", "123"},
		{"string has a LF", Text{}, "\x1b]0;a\nb\x07c", "\nbc"},
		{"CAN ends", Text{}, "\x1b]0;a\x18b\x1b[1\x18c", "bc"},
		{"ESC begins anew", Text{}, "\x1b]0;a\x1b[31mb", "b"},
		{"never ends", Text{}, "a\x1b]0;bcd\nefg", "a\nefg"},
		{"never ends CSI", Text{}, "a\x1b[1;2;3", "a"},
		{"two-character", Text{}, "\x1bca\x1b7b\x1b(Bc\x1b#8d", "abcd"},
		{"control in a sequence", Text{}, "\x1b[3\n1mx", "\n1mx"},
		{"LF ends each of them", Text{}, "\x1b]a\n1\x1bPa\n2\x1b_a\n3\x1b^a\n4\x1bXa\n5\x1b\n6\x1b \n7\x1b[\n8", "\n1\n2\n3\n4\n5\n6\n7\n8"},
		{"LF ends C1 as UTF-8", Text{}, "\u009da\n1\u0090a\n2\u009fa\n3\u009ea\n4\u0098a\n5\u009b\n6", "\n1\n2\n3\n4\n5\n6"},
		{"LF ends C1 as bytes", Text{}, "\x9da\n1\x90a\n2\x9fa\n3\x9ea\n4\x98a\n5\x9b\n6", "\n1\n2\n3\n4\n5\n6"},
		{"longest string", Text{}, "\x1b]" + long(maxSequence-1) + "\x07b", "b"},
		{"string is too long", Text{}, "\x1b_" + long(maxSequence) + "hello\x1b\\", "hello"},
		{"string is too long within a character", Text{}, "\u0090" + long(maxSequence-1) + "éx", "éx"},
		{"string of bytes is too long", Text{}, "\x1b]" + strings.Repeat("\xff", maxSequence) + "x", "x"},
		{"longest control sequence", Text{}, "\x1b[" + long(maxSequence-1) + "mb", "b"},
		{"control sequence is too long", Text{}, "\x1b[" + long(maxSequence) + "12 m", "12 m"},
		{"escape is too long", Text{}, "\x1b" + strings.Repeat(" ", maxSequence) + "ab", "ab"},
		{"UTF-8 in a sequence", Text{}, "\x1b[éx\x1béy", "éxéy"},
		{"C1 as UTF-8", Text{}, "\u009b31mred\u009d0;t\u009cx\u0090q\u009cy\u0085z", "redxyz"},
		{"C1 as bytes", Text{}, "\x9b31mred\x9d0;t\x9cx\x90q\x9cy", "redxy"},
		{"C1 string as byte ends with its line", Text{}, "caf\x90 au lait\nnext", "caf\nnext"},
		{"invalid", Text{}, "a\xffb\xc0\xafc", "a\uFFFDb\uFFFD\uFFFDc"},
		{"cut character", Text{}, "a\xe2\x82", "a\uFFFD"},
		{"cut character, then text", Text{}, "\xe2\x82x\xf0\x9f\x98y", "\uFFFDx\uFFFDy"},
		{"surrogate", Text{}, "\xed\xa0\x80", "\uFFFD\uFFFD\uFFFD"},
		{"overlong", Text{}, "\xe0\x80\xaf", "\uFFFD\uFFFD\uFFFD"},
		{"beyond Unicode", Text{}, "\xf4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
		{"byte order mark", Text{}, "\uFEFFx", "\uFEFFx"},
		{"CR removed", Text{}, "10%\r20%\r\n", "10%20%\n"},
		{"CR rewinds", rewind, "a\n10%\r20%\r30%\nb\r", "a\n30%\nb"},
		{"CRLF rewinds nothing", rewind, "a\r\nb\r\r\nc\r\n", "a\nb\nc\n"},
		{"CR and erase", rewind, "10%\r\x1b[K20%", "20%"},
		{"CR and longer", rewind, "one\rthree\n", "three\n"},
		{"CR and shorter", rewind, "rm -rf all\rok\n", "rm -rf all\nok\n"},
		{"CR and shorter at the end", rewind, "rm -rf all\rok", "rm -rf all\nok"},
		{"CR and blanks", rewind, "one\r   \rtwo\n", "two\n"},
		{"CR and shorter, erased after", rewind, "rm -rf all\rok\x1b[K\n", "ok\n"},
		{"CR and shorter, erased before", rewind, "rm -rf all\x1b[2K\rok\n", "ok\n"},
		{"CR and erase, not the whole line", rewind, "rm -rf all\r\x1b[20C\x1b[Kok, I say\n", "rm -rf all\nok, I say\n"},
		{"CR and colours", rewind, "10%\r\x1b[32m20%\x1b[0m\n", "20%\n"},
		{"CR and elsewhere", rewind, "rm -rf all\r\x1b[20Cok, I say so\n", "rm -rf all\nok, I say so\n"},
		{"CR and a tab", rewind, "rm -rf all\r\t\tok, I say so\n", "rm -rf all\n\t\tok, I say so\n"},
		{"CR and back again", rewind, "rm -rf all\rok\b\bok\b\bok\b\bok\b\bok\n", "rm -rf all\nokokokokok\n"},
		{"CR and nothing visible", Text{Return: RewindReturn, Invisible: ShowInvisible}, "rm -rf all\r\u200b\u200b\n", "rm -rf all\n<U+200B><U+200B>\n"},
		{"CR and wide characters", rewind, "日本語\rabc\n日本語\rabcdef\n", "日本語\nabc\nabcdef\n"},
		{"CR, and each shorter", rewind, "four\rtwo\ra\n", "four\ntwo\na\n"},
		{"CR as LF", lf, "a\r\nb\rc\r\rd\r", "a\nb\nc\n\nd\n"},
		{"bidi kept", Text{}, "a\u202Eb", "a\u202Eb"},
		{"bidi shown", show, "a\u202Eb\u200Bc\U000E0041d", "a<U+202E>b<U+200B>c<U+E0041>d"},
		{"shown after CR", Text{Return: NewlineReturn, Invisible: ShowInvisible}, "a\r\u202E", "a\n<U+202E>"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, n := range []int{len(tt.in), 1, 2, 3, 5} {
				if got := cleaned(tt.opts, tt.in, n); got != tt.want {
					t.Errorf("clean(%q) in writes of %d = %q; want %q", tt.in, n, got, tt.want)
				}
			}
		})
	}
}

// plainPrefix agrees with its definition for every byte at every place.
func TestPlainPrefix(t *testing.T) {
	t.Parallel()
	plain := func(c byte) bool { return c == '\t' || c == '\n' || c >= 0x20 && c < 0x7F }
	for c := range 256 {
		for at := range 70 {
			p := []byte(strings.Repeat("a \n~\t", 14))
			p[at] = byte(c)
			want := len(p)
			if !plain(byte(c)) {
				want = at
			}
			if got := plainPrefix(p); got != want {
				t.Fatalf("plainPrefix(%q) = %d; want %d", p, got, want)
			}
		}
	}
}

// decode agrees with unicode/utf8 about what is a character.
func TestDecode(t *testing.T) {
	t.Parallel()
	for _, r := range []rune{0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFD, 0xFFFF, 0x10000, 0x10FFFF} {
		p := utf8.AppendRune(nil, r)
		if size, ok, more := decode(p); size != len(p) || !ok || more {
			t.Errorf("decode(%x) = %d, %v, %v; want %d, true, false", p, size, ok, more, len(p))
		}
		for n := 1; n < len(p); n++ {
			if _, _, more := decode(p[:n]); !more {
				t.Errorf("decode(%x) wants no more", p[:n])
			}
		}
	}
}

func TestSafeTextReportsItsWriter(t *testing.T) {
	t.Parallel()
	w := &brokenWriter{}
	s := NewSafeText(w, Text{}, nil)
	for range 3 {
		if _, err := s.Write([]byte("x")); err != errBroken { //nolint:errorlint // passed on as it is
			t.Errorf("Write() = %v; want %v", err, errBroken)
		}
	}
	if err := s.Close(); err != errBroken || w.calls != 1 { //nolint:errorlint // passed on as it is
		t.Errorf("Close() = %v after %d calls; want %v after one", err, w.calls, errBroken)
	}
}

// A secret cut by escape sequences is whole only in the text.
func TestSecretAppearsInText(t *testing.T) {
	t.Parallel()
	secrets := mustSecrets(t, Secret{Name: "A", Value: "hunter2hunter2"})
	in := "x hun\x1b[31mter2\x1b[0mhun\x07ter\x002 y"
	for i, n := range []int{1, 5, 17, len(in), 1, 5, 17, len(in)} {
		opts := Text{}
		if i >= 4 {
			opts.Return = RewindReturn
		}
		s, err := New(Options{Text: opts}, nil, secrets)
		if err != nil {
			t.Fatal(err)
		}
		var shown bytes.Buffer
		safe := NewSafeText(&shown, opts, secrets)
		for rest := in; rest != ""; {
			k := min(n, len(rest))
			writeAll(t, s.Stdout(), rest[:k])
			writeAll(t, safe, rest[:k])
			rest = rest[k:]
		}
		if err := safe.Close(); err != nil {
			t.Fatal(err)
		}
		want := "x [REDACTED:A] y"
		if got := s.Close().Stdout.Head; got != want || shown.String() != want {
			t.Errorf("in writes of %d: %q and %q; want %q", n, got, shown.String(), want)
		}
	}
}

// The line that may still be rewound holds parts of writes that were altered.
func TestSecretAppearsInRewoundLine(t *testing.T) {
	t.Parallel()
	s, err := New(Options{Text: Text{Return: RewindReturn}}, nil, mustSecrets(t, Secret{Name: "A", Value: "hunter2hunter2"}))
	if err != nil {
		t.Fatal(err)
	}
	writeAll(t, s.Stdout(), "x hun\x1b[mter2")
	writeAll(t, s.Stdout(), "hunter2 y\n")
	if got, want := s.Close().Stdout.Head, "x [REDACTED:A] y\n"; got != want {
		t.Errorf("text %q; want %q", got, want)
	}
}
