package shellcmd

import (
	"bytes"
	"errors"
	osexec "os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		argv []string
		want line
	}{
		{nil, line{}},
		{[]string{"-l"}, line{login: true}},
		{[]string{"--login"}, line{login: true}},
		{[]string{"-c", "x"}, line{from: fromText, text: "x"}},
		{[]string{"-lc", "x"}, line{from: fromText, text: "x", login: true}},
		{[]string{"-ilc", "x", "n", "1"}, line{from: fromText, text: "x", name: "n", args: []string{"1"}, login: true, interactive: true}},
		{[]string{"-i", "-l", "-c", "x"}, line{from: fromText, text: "x", login: true, interactive: true}},
		{[]string{"-c", "-e", "x"}, line{from: fromText, text: "x", set: []string{"-e"}}},
		{[]string{"-euo", "pipefail", "-c", "x"}, line{from: fromText, text: "x", set: []string{"-e", "-u", "-o pipefail"}}},
		{[]string{"-c", "--", "-x"}, line{from: fromText, text: "-x"}},
		{[]string{"-c", "x", "--", "-e"}, line{from: fromText, text: "x", name: "--", args: []string{"-e"}}},
		{[]string{"+e", "-O", "extglob", "f"}, line{from: fromFile, file: "f", name: "f", set: []string{"+e"}, shopt: []string{"-s extglob"}}},
		{[]string{"f", "-c", "x"}, line{from: fromFile, file: "f", name: "f", args: []string{"-c", "x"}}},
		{[]string{"-s", "a", "b"}, line{args: []string{"a", "b"}}},
		{[]string{"-", "f"}, line{from: fromFile, file: "f", name: "f"}},
		{[]string{"--init-file", "/a/b", "-i"}, line{interactive: true, left: []string{"--init-file /a/b"}}},
		{[]string{"--noprofile", "--norc", "-o", "errexit"}, line{long: []string{"--noprofile", "--norc"}, set: []string{"-o errexit"}}},
		{[]string{"--version"}, line{print: "--version"}},
	} {
		got, err := parse(test.argv)
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(line{}), cmp.Comparer(func(a, b []string) bool { return slices.Equal(a, b) })); err != nil || diff != "" {
			t.Errorf("parse(%q): %v\n%s", test.argv, err, diff)
		}
	}
	for _, argv := range [][]string{{"-c"}, {"-lc"}, {"-o"}, {"-Z"}, {"--nosuch"}, {"--rcfile"}, {"-o", "a;b"}, {"-O", "$(x)"}, {"--wordexp"}} {
		if got, err := parse(argv); err == nil {
			t.Errorf("parse(%q) = %+v; want an error", argv, got)
		}
	}
}

// A line runs as bash runs it: output, errors, $0, arguments, options and the exit status.
func TestAsBashRuns(t *testing.T) {
	t.Parallel()
	bash, err := osexec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash on this machine")
	}
	files := map[string]string{"here.sh": "echo here $0 $# \"$@\"; false; echo still", "empty.sh": ""}
	read := func(path string) (string, error) {
		text, ok := files[path]
		if !ok {
			return "", &fileError{errors.New("no such file"), notFound}
		}
		return text, nil
	}
	for _, test := range []struct {
		input string
		argv  []string
	}{
		{"", []string{"-c", `echo "$0" "$#" "$@"`, "name of it", "a b", "c'd"}},
		{"", []string{"-c", `echo "$0" "$#"`}},
		{"", []string{"-ec", "false; echo no"}},
		{"", []string{"-c", "exit 7"}},
		{"", []string{"-c", "kill -TERM $$"}},
		{"", []string{"-uc", "echo $nosuch; echo no"}},
		{"", []string{"-o", "pipefail", "-c", "false | true; echo $?"}},
		{"", []string{"-c", "\necho $LINENO\n\necho $LINENO"}},
		{"", []string{"-nc", "echo no"}},
		{"", []string{"-c", ""}},
		{"", []string{"-c", "# only words"}},
		{"", []string{"-O", "extglob", "-c", "case ab in @(ab|c)) echo yes;; esac"}},
		{"", []string{"-fc", "echo *"}},
		{"", []string{"-c", "cat <<'E'\nit's\nE"}},
		{"", []string{"-c", "--", "-x() { echo dash; }; -x"}},
		{"", []string{"-c", "--", "echo one"}},
		{"echo from input $1; read -r x; echo got $x\nthis line\n", []string{"-s", "an argument"}},
		{"read -r x\nline\necho $x $-\n", nil},
		{"false; echo no\n", []string{"-e"}},
		{"data", []string{"-c", "cat"}},
	} {
		l, err := parse(test.argv)
		if err != nil {
			t.Errorf("parse(%q): %v", test.argv, err)
			continue
		}
		s, err := l.script("bash", func(string) (string, bool) { return "", false }, read)
		if err != nil {
			t.Errorf("script of %q: %v", test.argv, err)
			continue
		}
		run := func(argv []string) (string, string) {
			cmd := osexec.CommandContext(t.Context(), bash, argv...)
			cmd.Stdin = strings.NewReader(test.input)
			cmd.Env = []string{"PATH=/usr/bin:/bin"}
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			_ = cmd.Run()
			return out.String(), cmd.ProcessState.String()
		}
		wantOut, wantState := run(test.argv)
		gotOut, gotState := run(append([]string{"--noprofile", "--norc", "-c", "--", s.text, "bash"}, s.args...))
		wantOut = strings.Replace(wantOut, bash+" 0\n", "bash 0\n", 1) // the shell's own name
		if gotOut != wantOut || gotState != wantState {
			t.Errorf("%q as %q: %q, %s; want %q, %s", test.argv, s.text, gotOut, gotState, wantOut, wantState)
		}
	}
	for _, test := range []struct {
		argv       []string
		text, want string
	}{
		{[]string{"here.sh", "1"}, files["here.sh"], "BASH_ARGV0='here.sh'; " + files["here.sh"]},
		{[]string{"-e", "in.sh", "a b"}, "", "exec bash -e -- /workspace/in.sh 'a b'"},
		{[]string{"-l"}, "", "exec bash --login -s"},
		{[]string{"--version"}, "", "bash --version"},
		{[]string{"empty.sh"}, "", "BASH_ARGV0='empty.sh'; :"},
	} {
		l, err := parse(test.argv)
		if err != nil {
			t.Fatal(err)
		}
		inside := func(path string) (string, bool) { return "/workspace/" + path, path == "in.sh" }
		if s, err := l.script("bash", inside, read); err != nil || s.text != test.want {
			t.Errorf("script of %q = %q, %v; want %q", test.argv, s.text, err, test.want)
		}
	}
	l, _ := parse([]string{"nosuch.sh"})
	if _, err := l.script("bash", func(string) (string, bool) { return "", false }, read); err == nil {
		t.Error("a file that is nowhere is not refused")
	}
	l, _ = parse([]string{"-O", "extglob", "-c", "x"})
	if _, err := l.script("sh", func(string) (string, bool) { return "", false }, read); err == nil {
		t.Error("-O is not refused for sh")
	}
}

func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "'", "a'b'", "\n", "$(x)", "é", "\xff"} {
		f.Add(s)
	}
	bash, err := osexec.LookPath("bash")
	if err != nil {
		f.Skip("there is no bash on this machine")
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "\x00") {
			return
		}
		for _, word := range []string{quote(text), plainOrQuoted(text)} {
			out, err := osexec.CommandContext(t.Context(), bash, "-c", "printf %s "+word).Output()
			if err != nil || string(out) != text {
				t.Errorf("%q as %s is %q, %v", text, word, out, err)
			}
		}
	})
}
