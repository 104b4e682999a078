package sink

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sandboxbash/sandboxbash/internal/scrub"
)

// cut cuts text into writes whose sizes the bytes of cuts say.
func cut(text string, cuts []byte, write func(p []byte)) {
	for i := 0; len(text) > 0; i++ {
		n := len(text)
		if len(cuts) > 0 {
			n = min(n, 1+int(cuts[i%len(cuts)]))
		}
		write([]byte(text[:n]))
		text = text[n:]
	}
}

// Text has no control characters but TAB and LF, is UTF-8, and is the same
// however the stream is cut; cleaning it again changes nothing.
func FuzzText(f *testing.F) {
	f.Add("a\x1b[31mb\x1b]0;t\x07c\x9bmd\u009dx\u009c\r\n\xe2\x82", 0, 0, []byte{0})
	f.Add("10%\r20%\r\n\x1bP\x1b\\\x90\n\x18", 1, 1, []byte{1, 4})
	f.Add("\x1b]0;a", 0, 0, []byte{0})
	f.Add("long line\r\x1b[3Cx\t\x1b[", 1, 0, []byte{3})
	f.Add("\u202e\U000e0001é日😀\xed\xa0\x80\xf4\x90\x80\x80", 2, 1, []byte{2})
	f.Add("plain text, long enough for words of eight bytes\n\tand more", 0, 0, []byte{40})
	f.Fuzz(func(t *testing.T, text string, ret, invisibles int, cuts []byte) {
		opts := Text{Return: Return(uint(ret) % 3), Invisible: Invisible(uint(invisibles) % 2)}
		var b bytes.Buffer
		c := newCleaner(opts, func(p []byte, _ scrub.Origin) { b.Write(p) })
		cut(text, cuts, func(p []byte) { c.write(p, scrub.Changed) })
		c.flush()
		got := b.String()
		if whole := cleaned(opts, text, len(text)+1); got != whole {
			t.Fatalf("clean(%q) in writes by %v = %q; at once %q", text, cuts, got, whole)
		}
		if !utf8.ValidString(got) {
			t.Fatalf("clean(%q) = %q is not UTF-8", text, got)
		}
		for _, r := range got {
			if r < 0x20 && r != '\t' && r != '\n' || r >= 0x7F && r < 0xA0 || opts.Invisible == ShowInvisible && invisible(r) {
				t.Fatalf("clean(%q) = %q has %U", text, got, r)
			}
		}
		// What comes behind a line feed is shown, whatever began before it.
		const behind = "\nshown, all of it: 1;2 [m ]0;\n"
		if more := cleaned(opts, text+behind, 7); !strings.HasSuffix(more, behind) {
			t.Fatalf("clean(%q) = %q", text+behind, more)
		}
		if again := cleaned(opts, got, 3); again != got {
			t.Fatalf("clean(%q) = %q; want no change", got, again)
		}
	})
}

// What is shown and what is elided is all there is.
func FuzzWindow(f *testing.F) {
	f.Add("a\nb\nc\nd", 2, 3, 0, []byte{0})
	f.Add("é日😀\n😀", 3, 5, 9, []byte{1})
	f.Fuzz(func(t *testing.T, text string, head, tail, whole int, cuts []byte) {
		if !utf8.ValidString(text) || max(head, tail, whole) > 1<<16 {
			t.Skip("a window is given text")
		}
		w := newWindow(Window{Whole: whole, Head: head, Tail: tail})
		cut(text, cuts, w.write)
		h, e, tr := w.view()
		if tr == nil {
			if h+e != text {
				t.Fatalf("shows %q of %q", h+e, text)
			}
			return
		}
		if !strings.HasPrefix(text, h) || !strings.HasSuffix(text, e) || len(h) > w.size.Head || len(e) > w.size.Tail {
			t.Fatalf("shows %q and %q of %q", h, e, text)
		}
		middle := text[len(h) : len(text)-len(e)]
		if !utf8.ValidString(h) || !utf8.ValidString(e) || tr.TotalBytes != int64(len(text)) ||
			tr.OutputBytes != int64(len(h)+len(e)) || tr.ElidedBytes != int64(len(middle)) ||
			tr.ElidedLines != int64(strings.Count(middle, "\n")) || tr.TotalLines != int64(strings.Count(text, "\n")+1) {
			t.Fatalf("%+v for %q and %q of %q", tr, h, e, text)
		}
	})
}

// Everything together: nothing that is shown or stored has a secret in it.
func FuzzSink(f *testing.F) {
	f.Add("hunter2hunter2", "x hunt\x1b[mer2hunter2\r\n", 20, []byte{0})
	f.Add("sécret-sécret", "sécret-sé\x00cret", 9, []byte{5, 1})
	f.Fuzz(func(t *testing.T, secret, text string, tail int, cuts []byte) {
		value := strings.TrimRight(secret, "\r\n")
		if len(value) < MinSecret || strings.ContainsAny(value, "[]:") || strings.Contains("REDACTED", value) {
			t.Skip("no secret, or found in masks")
		}
		secrets := mustSecrets(t, Secret{Name: "A", Value: secret})
		var live bytes.Buffer
		s, err := New(Options{Streams: Merged, Window: Tail(min(max(tail, 0), 1<<16)), LiveStdout: &live, Text: Text{Return: Return(uint(tail) % 3)}}, nil, secrets)
		if err != nil {
			t.Fatal(err)
		}
		in := text + secret + text
		cut(in, cuts, func(p []byte) { writeAll(t, s.Stdout(), string(p)) })
		o := s.Close()
		if shown := o.Stdout.Text(); strings.Contains(shown, value) || strings.Contains(live.String(), value) {
			t.Fatalf("secret %q survives: shown %q, live %q", secret, shown, live.String())
		}
		if o.Stdout.Bytes != int64(len(in)) {
			t.Fatalf("Bytes = %d; want %d", o.Stdout.Bytes, len(in))
		}
	})
}
