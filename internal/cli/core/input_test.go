package core

import (
	"os"
	"os/exec"
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
		words  Words
		script string
		rest   []string
	}{
		{"word", "", Words{List: []string{"echo hi"}}, "echo hi", nil},
		{"empty word", "", Words{List: []string{""}}, "", nil},
		{"words", "", Words{List: []string{"make", "-j2", "it's", "--", "a b"}}, `make -j2 'it'\''s' -- 'a b'`, nil},
		{"no command", "", Words{List: []string{"if", "if", "A=1"}}, "'if' if A=1", nil},
		{"no assignment", "", Words{List: []string{"A=1", "b"}}, "'A=1' b", nil},
		{"command", "", Words{List: []string{"a", "-b"}, Script: new("echo $1")}, "echo $1", []string{"a", "-b"}},
		{"command and a dash", "", Words{List: []string{"-"}, Script: new("")}, "", []string{"-"}},
		{"standard input", "", Words{List: []string{"-", "a"}}, "from $1 stdin\r\n", []string{"a"}},
		{"file", file, Words{List: []string{"a", "b"}}, "from $1 file\n", []string{"a", "b"}},
		{"file and a flag", file, Words{List: []string{"-x"}}, "from $1 file\n", []string{"-x"}},
		{"file without arguments", file, Words{}, "from $1 file\n", nil},
		{"file is standard input", "-", Words{List: []string{"a"}}, "from $1 stdin\r\n", []string{"a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			stdin := strings.NewReader("from $1 stdin\r\n")
			script, rest, err := Script(t.Context(), config.Run{File: test.file}, stdin, test.words)
			if err != nil || script != test.script || !slices.Equal(rest, test.rest) {
				t.Errorf("Script(%+v) = %q, %q, %v; want %q, %q", test.words, script, rest, err, test.script, test.rest)
			}
		})
	}
}

func TestScriptErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		run   config.Run
		words Words
		want  string
	}{
		{"nothing", config.Run{}, Words{}, "there is no command"},
		{"two scripts", config.Run{File: "x"}, Words{Script: new("")}, "--command and --file both give the script"},
		{"standard input twice", config.Run{Stdin: true}, Words{List: []string{"-"}}, "standard input cannot be both"},
		{"no file", config.Run{File: "/nowhere/script.sh"}, Words{}, "script /nowhere/script.sh: no such file"},
	} {
		if _, _, err := Script(t.Context(), test.run, strings.NewReader(""), test.words); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v; want %q", test.name, err, test.want)
		}
	}
}

// Every word arrives as it is, in each shell that a session may have.
func TestShellWords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	show := "#!/bin/sh\nprintf '<%s>' \"$0\" \"$@\"\n"
	for _, shell := range []string{"bash", "sh"} {
		for _, program := range []string{"show", "A=1", "if", "time", "in", "a b", "it's", "~", "x;y", "$x", "#x", "-n"} {
			if err := os.WriteFile(filepath.Join(dir, program), []byte(show), 0o700); err != nil { //nolint:gosec // it is a program
				t.Fatal(err)
			}
			words := []string{program, "", "a b", "'", "\"", "$HOME", "`id`", "\\", "*", "~", "a\nb", "-x", "--", "A=1", "{a,b}", "!x", "\xff", "#", "a#b", "time"}
			cmd := exec.CommandContext(t.Context(), shell, "-c", "--", shellWords(words))
			cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
			out, err := cmd.CombinedOutput()
			want := "<" + strings.Join(append([]string{filepath.Join(dir, program)}, words[1:]...), "><") + ">"
			if err != nil || string(out) != want {
				t.Errorf("%s: %s\n got %q, %v\nwant %q", shell, shellWords(words), out, err, want)
			}
		}
	}
}
