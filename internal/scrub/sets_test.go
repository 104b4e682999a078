package scrub

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

// Without secrets everything passes as it is, in the same pieces, and with the same origin.
func TestNoSecrets(t *testing.T) {
	t.Parallel()
	empty, warnings, err := NewSecrets(nil)
	if err != nil || warnings != nil {
		t.Fatalf("NewSecrets(nil) = %v, %v; want neither", warnings, err)
	}
	ignored, _, err := NewSecrets([]Secret{{"A", "short"}, {"B", "\r\n"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*Secrets{"nil": nil, "empty": empty, "all left out": ignored} {
		doc := []byte(`{"a":"short"}`)
		if s.Len() != 0 || s.Scrub("short") != "short" || !bytes.Equal(s.ScrubJSON(doc), doc) {
			t.Errorf("%s: %d secrets, %q, %s; want all unchanged", name, s.Len(), s.Scrub("short"), s.ScrubJSON(doc))
		}
		sc, got := recorder(s)
		sc.Write([]byte("one"), Scanned)
		sc.Write([]byte("short"), Changed)
		sc.Flush()
		if len(*got) != 2 || (*got)[0] != (passed{"one", Scanned}) || (*got)[1] != (passed{"short", Changed}) || sc.Masked() != 0 {
			t.Errorf("%s: passed on %+v, %d masked", name, *got, sc.Masked())
		}
	}
}

// Neither a warning nor an error has a secret's value, and of two names for one value the
// first is shown.
func TestSetsOfSecrets(t *testing.T) {
	t.Parallel()
	const value = "correct-horse"
	for _, name := range []string{"", "a b", "a]", "é", "a\n", strings.Repeat("x", 129)} {
		s, _, err := NewSecrets([]Secret{{"FINE", "another-value"}, {name, value}})
		if s != nil || err == nil || strings.Contains(err.Error(), value) {
			t.Errorf("NewSecrets(name %q) = %v, %v; want an error without the value", name, s, err)
		}
	}
	s, warnings, err := NewSecrets([]Secret{{"ONE", value + "\r\n"}, {"TWO", value}, {"TINY", "pa55"}, {"REDACTED", "REDACTED"}, {"NONE", ""}})
	if err != nil || s.Len() != 2 || len(warnings) != 3 {
		t.Fatalf("NewSecrets() = %d secrets, %v, %v; want 2 and three warnings", s.Len(), warnings, err)
	}
	for i, name := range []string{"TINY", "REDACTED", "NONE"} {
		if got := warnings[i].String(); !strings.HasPrefix(got, "secret "+name+": ") || strings.Contains(got, "pa55") {
			t.Errorf("warning %d is %q; want one about %s, without its value", i, got, name)
		}
	}
	if got := s.Scrub("<" + value + "\n>"); got != "<[REDACTED:ONE]\n>" {
		t.Errorf("Scrub() = %q; want the first name, and the line end", got)
	}
}

// Masks are counted as they appear, and a second scrubber finds nothing more: what is passed
// on never makes a secret with what follows.
func TestMasksAreCounted(t *testing.T) {
	t.Parallel()
	secrets := mustSecrets(t, Secret{"A", "abcabcabd"}, Secret{"B", "cabdabca\nbcabcabc"}, Secret{"C", "dabcabcab"})
	r := rand.New(rand.NewPCG(5, 6))
	for range 3000 {
		text := make([]byte, r.IntN(120))
		for i := range text {
			text[i] = "abcabcabd\n"[r.IntN(10)]
		}
		if r.IntN(2) == 0 {
			text = append(text, "abcabcabdabcabcab"[r.IntN(8):]...)
		}
		want := secrets.Scrub(string(text))
		sc, got := recorder(secrets)
		for rest := text; len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			sc.Write(rest[:n], Changed)
			rest = rest[n:]
		}
		sc.Flush()
		if textOf(*got) != want || sc.Masked() != int64(strings.Count(want, "[REDACTED:")) {
			t.Fatalf("%q in parts: %q, %d masked; want %q", text, textOf(*got), sc.Masked(), want)
		}
		if again := secrets.Scrub(want); again != want {
			t.Fatalf("%q is scrubbed to %q, and then to %q", text, want, again)
		}
	}
}
