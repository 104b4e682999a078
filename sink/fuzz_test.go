package sink

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
	"unicode/utf8"
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

// No secret survives, in any of its forms, wherever the stream is cut; and how
// it is cut makes no difference.
func FuzzScrub(f *testing.F) {
	f.Add("hunter2hunter2", "hunter2-and", "x hunter2hunter2 hunter2hunter2-and y", 0, 76, []byte{0})
	f.Add("8bytes!!", "8bytes!!8bytes!!", "8bytes!!8bytes!!8bytes!", 1, 64, []byte{3, 1})
	f.Add("line one is long\nline two is long\nx", "one is long\nline", "line one is long\r\nline two is long\nx", 2, 33, []byte{7})
	f.Add("aaaaaaaa", "aaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaaaaaaaa", 0, 40, []byte{2})
	f.Add(strings.Repeat("0123456789abcdef", 12), "fedcba9876543210", strings.Repeat("0123456789abcdef", 13), 1, 76, []byte{90})
	f.Fuzz(func(t *testing.T, a, b, text string, shift, width int, cuts []byte) {
		if strings.ContainsAny(a+b, "[]") || strings.Contains("REDACTED:", a) {
			t.Skip("would be found in masks")
		}
		s, _, err := NewSecrets([]Secret{{"A", a}, {"B", b}})
		if err != nil {
			t.Fatal(err)
		}
		pad := strings.Repeat("~", min(max(shift, 0), 60))
		text += a + b + base64.StdEncoding.EncodeToString([]byte(pad+a)) +
			hex.EncodeToString([]byte(b)) + "\n" + wrapLines(base64.URLEncoding.EncodeToString([]byte(pad+b+a)), min(max(width, minWrap), 80), "\n") + text
		var got bytes.Buffer
		sc := newScrubber(s, func(p []byte, _ origin) { got.Write(p) })
		cut(text, cuts, func(p []byte) { sc.write(p, changed) })
		sc.flush()
		if whole := s.Scrub(text); got.String() != whole {
			t.Fatalf("secrets %q, %q: in writes by %v\n%q\nat once\n%q", a, b, cuts, got.String(), whole)
		}
		if s.index == nil {
			return
		}
		for _, n := range s.index.needles {
			if strings.Contains(got.String(), n.text) && !strings.ContainsAny(n.text, "[]:") && !strings.Contains("[REDACTED:A][REDACTED:B]", n.text) {
				t.Fatalf("secrets %q, %q: %q survives in %q", a, b, n.text, got.String())
			}
		}
	})
}

// Text has no control characters but TAB and LF, is UTF-8, and is the same
// however the stream is cut; cleaning it again changes nothing.
func FuzzText(f *testing.F) {
	f.Add("a\x1b[31mb\x1b]0;t\x07c\x9bmd\u009dx\u009c\r\n\xe2\x82", 0, 0, []byte{0})
	f.Add("10%\r20%\r\n\x1bP\x1b\\\x90\n\x18", 1, 1, []byte{1, 4})
	f.Add("\u202e\U000e0001é日😀\xed\xa0\x80\xf4\x90\x80\x80", 2, 1, []byte{2})
	f.Add("plain text, long enough for words of eight bytes\n\tand more", 0, 0, []byte{40})
	f.Fuzz(func(t *testing.T, text string, ret, invisibles int, cuts []byte) {
		opts := Text{Return: Return(uint(ret) % 3), Invisible: Invisible(uint(invisibles) % 2)}
		var b bytes.Buffer
		c := newCleaner(opts, func(p []byte, _ origin) { b.Write(p) })
		cut(text, cuts, func(p []byte) { c.write(p, changed) })
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
		secrets := mustSecrets(t, Secret{"A", secret})
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
