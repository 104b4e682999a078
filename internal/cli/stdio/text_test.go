package stdio

import (
	"io"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/sink"
)

// A Name is shown with all that is in it, by escapes where it must be.
func TestName(t *testing.T) {
	t.Parallel()
	secrets, _, err := sink.NewSecrets(sink.FromEnviron([]string{"X_TOKEN=c4nary-0123456789"}))
	if err != nil {
		t.Fatal(err)
	}
	a := New(nil, io.Discard, io.Discard, func() *sink.Secrets { return secrets })
	for name, want := range map[string]string{
		"plain é日😀.go":               "plain é日😀.go",
		`back\slash "quoted"`:        `back\slash "quoted"`,
		"esc\x1b]0;gone":             `esc\x1b]0;gone`,
		"two\nlines\r":               `two\nlines\r`,
		"bidi\u202etxt.exe":          `bidi\u202etxt.exe`,
		"not\xffUTF-8":               `not\xffUTF-8`,
		`both\` + "\x07":             `both\\\a`,
		"x/c4nary-0123456789/\x1b[m": `x/[REDACTED:X_TOKEN]/\x1b[m`,
		"x/c4nary-0123456789":        `x/[REDACTED:X_TOKEN]`,
	} {
		if got := a.Name(name); got != want {
			t.Errorf("name(%q) = %s; want %s", name, got, want)
		}
	}
}

func TestAge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", time.Minute: "1m", 90 * time.Minute: "1h", 47 * time.Hour: "47h", 50 * time.Hour: "2d",
	} {
		if got := Age(now.Add(-d), now); got != want {
			t.Errorf("age(%v ago) = %s; want %s", d, got, want)
		}
	}
}
