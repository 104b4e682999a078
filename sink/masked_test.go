package sink

import (
	"bytes"
	"testing"
)

func TestMasked(t *testing.T) {
	t.Parallel()
	secrets := mustSecrets(t, Secret{Name: "A", Value: "hunter2hunter2"})
	const text = "x hunter2hunter2 y\nhunter2\nhunter2hunter2"
	for n := 1; n <= len(text); n++ {
		var b bytes.Buffer
		m := NewMasked(&b, secrets)
		for i := 0; i < len(text); i += n {
			if _, err := m.Write([]byte(text[i:min(i+n, len(text))])); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Flush(); err != nil || b.String() != "x [REDACTED:A] y\nhunter2\n[REDACTED:A]" {
			t.Errorf("in writes of %d: %q, %v", n, b.String(), err)
		}
	}
	var b bytes.Buffer
	m := NewMasked(&b, secrets)
	_, _ = m.Write([]byte("ready at hunter\n"))
	if b.String() != "ready at hunter\n" {
		t.Errorf("a line waits for more: %q", b.String())
	}
}
