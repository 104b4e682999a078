package policy

import (
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
)

// pieces are what words are made of that bash and fields must read alike.
var pieces = []string{
	"a", "b", "rm", "-", "/", ".", " ", "'a b'", `"a b"`, `\`, `\\`, `''`, `""`, `\'`, `\"`, `'`, `"`,
	`$'\x41'`, `$'\101b'`, `$'\''`, `$'\u0041'`, `$'a\nb'`, `$'\cA'`, `$'\q'`, `$'a\0b'`, `$"x"`, `\ `, `\{`, `"{"`, `{a,b}`, `{a,{b,c}}`, `{a,}`, `{}`, `{a}`, `{`, `}`, `,`,
	`{1..3}`, `{c..a}`, `{1..9..4}`, `{a,b`, `a,b}`, `{'a,b',c}`, `{"a",'b'}`, `{a,\,}`, `"\$x"`, `"\a"`, `"\\"`, "\\\n", `..`, `=`, `{1..a}`, `{3..1}`, `{a..c..2}`, `{,}`, `{x,y}{1,2}`,
	`"\"'\"" `, `#`, `a#b`, `\#`,
	`$a`, `"$a"`, `$b`, `"$b"`, `${b}`, `"$@"`, `$@`, `$*`, `"$*"`, `$1`, `"$2"`, `$2`, `$IFS`, `${IFS}`, `${IFS:0:1}`, `"x$a y"`, `$'\t'$b`, `"${a}"`,
}

// TestWordsAsBash makes commands at random, and has bash say what their words are.
func TestWordsAsBash(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash here to compare with")
	}
	p := newPolicy(t, Options{})
	r := rand.New(rand.NewPCG(1, 2))
	var scripts []string
	var want [][]Word
	for len(want) < 2000 {
		var b strings.Builder
		b.WriteString("a=rm b='x y'; set -- p 'q r'; args ")
		for range 1 + r.IntN(5) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		e := p.Explain(Input{Script: b.String()})
		if len(e.Commands) == 2 && e.Decision.Rule != opaqueParse {
			scripts, want = append(scripts, b.String()), append(want, e.Commands[1].Argv[1:])
		}
	}
	// A \3 stands for what bash cannot parse and the parser can.
	cmd := exec.CommandContext(t.Context(), bash, append([]string{
		"--norc", "--noprofile", "-c",
		`args() { [ $# = 0 ] || printf '%s\1' "$@"; }
		for s; do f() { eval "$s"; }; f 2>/dev/null || printf '\3'; printf '\2'; done`, "_",
	}, scripts...)...)
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(string(out), "\x02")
	if len(got) != len(want)+1 {
		t.Fatalf("bash ran %d commands of %d", len(got)-1, len(want))
	}
	known := 0
	for i, argv := range want {
		all := true
		var b strings.Builder
		for _, word := range argv {
			all = all && word.Known
			b.WriteString(word.Text + "\x01")
		}
		if !all || got[i] == "\x03" {
			continue
		}
		known++
		if b.String() != got[i] {
			t.Errorf("%q: the words are %q; bash has %q", scripts[i], b.String(), got[i])
		}
	}
	if known < 1000 {
		t.Errorf("%d commands were compared; want 1000", known)
	}
}
