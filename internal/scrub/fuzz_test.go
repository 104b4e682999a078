package scrub

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
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
		sc := New(s, func(p []byte, _ Origin) { got.Write(p) })
		cut(text, cuts, func(p []byte) { sc.Write(p, Changed) })
		sc.Flush()
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
