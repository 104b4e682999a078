package policycmd

import (
	"testing"
)

func TestShellWord(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"": "''", "a": "a", "a b": "'a b'", "it's": `'it'\''s'`, "-x=/y": "-x=/y", "a\nb": "'a\nb'", "*": "'*'", "é": "é", "$x": "'$x'",
	} {
		if got := shellWord(word); got != want {
			t.Errorf("shellWord(%q) = %s; want %s", word, got, want)
		}
	}
}
