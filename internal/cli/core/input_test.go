package core

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/config"
)

func TestScript(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "script.sh")
	if err := os.WriteFile(file, []byte("from $1 file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		file   string
		args   []string
		script string
		rest   []string
	}{
		{"word", "", []string{"echo hi"}, "echo hi", nil},
		{"arguments", "", []string{"echo $1", "a", "-b", "--", "c"}, "echo $1", []string{"a", "-b", "--", "c"}},
		{"standard input", "", []string{"-", "a"}, "from $1 stdin\r\n", []string{"a"}},
		{"file", file, []string{"a", "b"}, "from $1 file\n", []string{"a", "b"}},
		{"file without arguments", file, nil, "from $1 file\n", nil},
		{"file is standard input", "-", []string{"a"}, "from $1 stdin\r\n", []string{"a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			stdin := strings.NewReader("from $1 stdin\r\n")
			script, rest, err := Script(t.Context(), config.Run{File: test.file}, stdin, test.args)
			if err != nil || script != test.script || !slices.Equal(rest, test.rest) {
				t.Errorf("Script(%q) = %q, %q, %v; want %q, %q", test.args, script, rest, err, test.script, test.rest)
			}
		})
	}
}
