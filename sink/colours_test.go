package sink

import (
	"bytes"
	"strings"
	"testing"
)

func safeColours(t *testing.T, secrets *Secrets, pieces ...string) string {
	t.Helper()
	var b bytes.Buffer
	s := NewSafeText(&b, Text{Return: NewlineReturn, Invisible: ShowInvisible, Colours: true}, secrets)
	for _, p := range pieces {
		if _, err := s.Write([]byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Colours pass, whole and cut, and nothing else that is not text; they end with the output.
func TestSafeTextColours(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, in, want string }{
		{"a colour", "a \x1b[31mred\x1b[m b\n", "a \x1b[31mred\x1b[m b\n"},
		{"reset by 0", "\x1b[1;32mok\x1b[0m\n", "\x1b[1;32mok\x1b[0m\n"},
		{"left on", "\x1b[31mred\n", "\x1b[31mred\n\x1b[m"},
		{"24 bits", "\x1b[38;2;255;100;50mx\x1b[m", "\x1b[38;2;255;100;50mx\x1b[m"},
		{"24 bits with colons", "\x1b[38:2::255:100:50mx\x1b[m", "\x1b[38:2::255:100:50mx\x1b[m"},
		{"one of 256", "\x1b[38;5;8mgrey\x1b[m", "\x1b[38;5;8mgrey\x1b[m"},
		{"concealed", "\x1b[8mhidden\x1b[m", "hidden\x1b[m"},
		{"concealed among others", "\x1b[31;8mhidden\x1b[1;38;5;1;8mx\x1b[m", "hiddenx\x1b[m"},
		{"concealed with zeros", "\x1b[008mhidden", "hidden"},
		{"modifyOtherKeys", "\x1b[>4;2mx", "x"},
		{"with an intermediate", "\x1b[1 mx", "x"},
		{"the cursor", "\x1b[2J\x1b[1;1Hx\x1b[?25l", "x"},
		{"a title", "\x1b]0;title\x07x", "x"},
		{"a carriage return", "10%\r\x1b[32m20%\x1b[m\r\n", "10%\x1b[32m\n20%\x1b[m\n"},
		{"too long", "\x1b[" + strings.Repeat("1;", 100) + "1mx", "x"},
		{"not ended", "x\x1b[31", "x"},
	} {
		if got := safeColours(t, nil, row.in); got != row.want {
			t.Errorf("%s: %q; want %q", row.name, got, row.want)
		}
		if got := safeColours(t, nil, strings.Split(row.in, "")...); got != row.want {
			t.Errorf("%s, byte by byte: %q; want %q", row.name, got, row.want)
		}
	}
}

var withoutColours = strings.NewReplacer("\x1b[m", "", "\x1b[31m", "", "\x1b[32m", "", "\x1b[33m", "", "\x1b[34m", "", "\x1b[35m", "")

// A colour within a secret does not keep it from being masked.
func TestSafeTextColoursAndSecrets(t *testing.T) {
	t.Parallel()
	secrets, _, err := NewSecrets([]Secret{{Name: "KEY", Value: "hunter2-hunter2"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{
		"a \x1b[31mhunter2-hunter2\x1b[m b\n", "a hun\x1b[31mter2-\x1b[mhunter2 b\n", "a hunter2-hunter\x1b[31m2\x1b[m b\n",
		"a \x1b[31mh\x1b[32mu\x1b[33mn\x1b[34mt\x1b[35mer2-hunter2 b\n",
	} {
		for _, pieces := range [][]string{{in}, strings.Split(in, "")} {
			got := safeColours(t, secrets, pieces...)
			if strings.Contains(got, "hunter") || !strings.Contains(got, "[REDACTED:KEY]") || !strings.Contains(withoutColours.Replace(got), " b\n") {
				t.Errorf("%q in %d pieces: %q", in, len(pieces), got)
			}
		}
	}
	if got := safeColours(t, secrets, "\x1b[31mh\x1b[mello\n"); strings.Count(got, "\x1b[") != 2 || !strings.HasPrefix(got, "\x1b[31m") {
		t.Errorf("what is not a secret after all: %q; want its colours", got)
	}
}
