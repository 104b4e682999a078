package bashtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/policy"
)

// forms are the places of a script that a command can be in. CMD stands for it. Bash says
// whether it runs there.
var forms = []string{
	"CMD", "a; CMD", "a\nCMD", "a & CMD", "CMD & wait", "(CMD)", "{ CMD; }", "! CMD", "time CMD", "time -p CMD", "a | CMD", "CMD | a", "a |& CMD",
	"true && CMD", "false || CMD", "exit; CMD #", "# CMD", "a # CMD", "a #\\\nCMD", "a \\\n; CMD", "a;#;\nCMD", "a\\#; CMD",
	// quotes
	"echo 'CMD'", "echo 'a'; CMD; echo 'b'", "echo \"a\"; CMD; echo \"b\"", "echo '; CMD ;'", "echo \"; CMD ;\"", "echo \\; CMD", "echo \\\\; CMD", "echo 'a\\'; CMD", "echo \"a\\\"; CMD\"", "echo $'a\\'; CMD'", "echo $'a\\\\'; CMD",
	"'' CMD", "\"$(CMD)\"", "echo \"$(CMD)\"", "echo '$(CMD)'", "echo \"\\$(CMD)\"", "echo \"\\\\$(CMD)\"", "echo $'$(CMD)'", "echo $\"$(CMD)\"", "echo \"'$(CMD)'\"", "echo '\"$(CMD)\"'", "echo \"`CMD`\"", "echo '`CMD`'", "echo \"\\`CMD\\`\"", "echo `echo \\`CMD\\``",
	// expansions
	"echo $(CMD)", "echo $(a; CMD)", "echo `CMD`", "x=$(CMD)", "x=$(CMD) a", "x=a$(CMD)b", "x=(a $(CMD))", "x=([$(CMD)]=1)", "x[$(CMD)]=1", "x+=$(CMD)", "export x=$(CMD)", "declare -a x=($(CMD))", "readonly x=$(CMD)",
	"echo ${x:-$(CMD)}", "x=1; echo ${x:-$(CMD)}", "echo ${x:+$(CMD)}", "x=1; echo ${x:+$(CMD)}", "echo ${x:=$(CMD)}", "x=1; echo ${x/$(CMD)/b}", "x=1; echo ${x/1/$(CMD)}", "x=1; echo ${x#$(CMD)}", "x=1; echo ${x:$(CMD)}", "x=1; echo ${x:0:$(CMD)}", "x=1; echo ${x[$(CMD)]}", "x=1; echo ${#x[$(CMD)]}",
	"echo \"${x:-$(CMD)}\"", "echo \"${x:-'$(CMD)'}\"", "echo ${x:-'$(CMD)'}", "echo {a,$(CMD)}", "echo $((1+$(CMD)))", "echo $[$(CMD)]", "((x=$(CMD)))", "let x=$(CMD)", "echo $(($(CMD)))", "echo *$(CMD)*", "echo ~$(CMD)",
	// evaluated once more
	"x='a[$(CMD)]'; ((x))", "x='a[$(CMD)]'; echo $((x))", "x='a[$(CMD)]'; [[ $x -eq 0 ]]", "x='a[$(CMD)]'; y=1; echo ${y:x}", "x='a[$(CMD)]'; let x", "declare -i x; x='a[$(CMD)]'", "printf -v 'a[$(CMD)]' b", "read 'a[$(CMD)]' <<<b", "a=(1); unset 'a[$(CMD)]'", "x='$(CMD)'; echo ${x@P}", "x='$(CMD)'; echo $x", "x='$(CMD)'; echo \"$x\"", "[[ '$(CMD)' = a ]]", "test -v 'a[$(CMD)]'",
	// redirections and here-documents
	"a >$(CMD)", "a <<<$(CMD)", "a <<<'$(CMD)'", "cat <(CMD)", "exec 3> >(CMD); exec 3>&-; wait $!", "a 2>$(CMD)", "{ a; } >$(CMD)", "f() { a; } >$(CMD)", "f() { a; } >$(CMD); f", "cat <<E\n$(CMD)\nE", "cat <<'E'\n$(CMD)\nE", "cat <<\\E\n$(CMD)\nE", "cat <<E\n\\$(CMD)\nE", "cat <<E\nCMD\nE", "cat <<E\na\nE\nCMD",
	"cat <<-E\n\t$(CMD)\n\tE", "cat <<-E\na\n\tE\nCMD", "cat <<E\na\n\tE\nCMD\nE", "cat <<E; CMD\na\nE", "cat <<E\n`CMD`\nE", "cat <<A <<B\n$(CMD)\nA\nB", "cat <<A <<B\nA\n$(CMD)\nB", "cat <<E\n'$(CMD)'\nE", "cat <<\"E F\"\n$(CMD)\nE F\nCMD",
	// compound commands
	"if true; then CMD; fi", "if CMD; then a; fi", "if false; then a; else CMD; fi", "if false; then a; elif CMD; then b; fi", "while CMD; do break; done", "until CMD; do break; done", "while true; do CMD; break; done",
	"for x in a; do CMD; done", "for x in $(CMD); do a; done", "for ((i=$(CMD);i<0;)); do a; done", "for ((;;)); do CMD; break; done", "for ((i=0;i<1;i++)) { CMD; }", "select x in $(CMD); do break; done <<<1", "select x in a; do CMD; break; done <<<1",
	"case a in a) CMD;; esac", "case a in (a|b) CMD;; esac", "case $(CMD) in a) ;; esac", "case a in $(CMD)) ;; esac", "case a in a) b;;& *) CMD;; esac", "case a in a) b;& c) CMD;; esac", "[[ -n $(CMD) ]]", "[[ a == $(CMD) ]]", "[[ a =~ $(CMD) ]]", "[[ a && -n $(CMD) ]]",
	"f() { CMD; }; f", "function f { CMD; }; f", "f() (CMD); f", "f() { g; }; g() { CMD; }; f", "f() { \"$@\"; }; f CMD", "f() { $1; }; f 'CMD'", "f() { shift; \"$@\"; }; f a CMD", "f() if true; then CMD; fi; f",
	"coproc CMD; wait", "coproc X { CMD; }; wait", "exec CMD", "command CMD", "command -v CMD", "builtin CMD", "builtin command CMD", "command -p -- CMD",
	// text for later
	"eval CMD", "eval 'CMD'", "eval \"a; CMD\"", "eval 'echo \"$(CMD)\"'", "eval 'echo \"\\$(CMD)\"'", "eval eval CMD", "eval -- CMD", "eval 'f() { CMD; }'; f", "eval '# CMD'", "x='a; CMD'; eval \"$x\"",
	"trap 'CMD' EXIT", "trap -- 'CMD' 0", "trap 'CMD' DEBUG; a", "trap 'CMD' ERR; false", "trap - EXIT CMD", "trap '# CMD' EXIT", "shopt -s expand_aliases\nalias x='CMD'\nx", "shopt -s expand_aliases\nalias x='a; CMD'\nx", "source <(echo CMD)", "source /dev/stdin <<<'CMD'", "mapfile -C 'CMD;:' -c 1 x <<<a",
	// scripts for other shells and programs that run their words
	"bash -c 'CMD'", "bash -xc 'CMD'", "bash -c -e 'CMD'", "bash -c 'a' 'CMD'", "bash -c '$0' CMD", "bash -c '\"$@\"' _ CMD", "bash -c 'eval \"$1\"' _ 'CMD'", "bash <<<'CMD'", "bash -s <<<'CMD'", "bash -s CMD <<<'\"$@\"'", "bash <<E\nCMD\nE", "echo CMD | bash", "echo '# CMD' | bash", "printf '%s\\n' a 'CMD' | bash", "bash <(echo CMD)", "bash -c \"bash -c 'CMD'\"", "cat <<E | bash\nCMD\nE", "bash -o posix -c 'CMD'",
	"env CMD", "env -i PATH=$PATH CMD", "env a=b CMD", "env -u a CMD", "env -S 'CMD'", "env -S CMD", "env -S'CMD'", "env -SCMD", "env -vS CMD", "env -vS'CMD'", "env --split-string='CMD'", "env --split CMD", "env -S -S CMD", "env -S a=b CMD", "env -S '-u a' -S CMD", "env -S '-u' a CMD", "env -S '-u' CMD",
	"env -S 'env -S \"CMD\"'", "env -S 'env -S \"env -S CMD\"'", "env -S '-S \"CMD\"'", "env -S '-S\"-S CMD\"'", "env -S 'CMD # a'", "env -S 'echo # CMD'", "env -S 'echo #' CMD", "env -S '# CMD'", "env -S '\\c' CMD", "env -S 'CMD \\ca'", "env -S '\\_CMD'", "env -S '\"CMD\"'", "env -S \"'CMD'\"", "env -S '\"\\_CMD\"'", "env -S 'echo\\_CMD'",
	"env -S 'a=b CMD'", "env -S '-- CMD'", "env -S -- CMD", "env -S '- PATH='$PATH CMD", "env - PATH=$PATH CMD", "env -- - PATH=$PATH CMD", "env a/b=c CMD", "env -- -a=b CMD", "env a=b -S CMD", "env - PATH=$PATH -S CMD", "echo a | xargs env -S CMD",
	"env -- CMD", "timeout 5 CMD", "timeout -k 1 5 CMD", "nice CMD", "nice -n 5 CMD", "nice -5 CMD", "nohup CMD", "setsid -w CMD", "stdbuf -oL CMD", "nice env timeout 5 CMD", "env nice bash -c 'CMD'",
	"echo a | xargs CMD", "xargs CMD <<<a", "xargs -n1 CMD <<<a", "xargs -I{} CMD <<<a", "xargs -I{} bash -c '{}' <<<'CMD'", "xargs -r CMD </dev/null", "xargs bash -c 'CMD' <<<a", "find . -maxdepth 0 -exec CMD \\;", "find . -maxdepth 0 -exec CMD {} +", "find . -maxdepth 0 -exec bash -c 'CMD' \\;", "find . -name 'CMD'",
}

// cautious are the forms in which bash does not run the command, and the policy refuses it
// all the same, because it does not find out whether a place is reached.
var cautious = []string{
	"exit; CMD #", "x=1; echo ${x:-$(CMD)}", "echo ${x:+$(CMD)}", "f() { a; } >$(CMD)", "builtin CMD",
	"env -S '-u' CMD", "env a=b -S CMD", "env - PATH=$PATH -S CMD",
}

// notKnown are the forms in which bash runs the command, and the policy says that it does
// not know what is run.
var notKnown = []string{"f() { shift; \"$@\"; }; f a CMD"}

// TestForms puts a command into each form, and asks bash whether it runs. If it does, the
// policy must refuse rm -rf / there, and if not, it must not.
func TestForms(t *testing.T) {
	t.Parallel()
	b := newBash(t)
	p, _, err := policy.New(policy.Options{Checks: []string{"rm"}})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[bool]int{}
	for _, form := range forms {
		d := p.Check(policy.Input{Script: strings.ReplaceAll(form, "CMD", "rm -rf /")})
		var ran bool
		var want policy.Verdict
		for range 3 { // a busy machine may take longer than a script may run
			ran = runs(t, b, form)
			switch {
			case slices.Contains(notKnown, form):
				want = policy.Opaque
			case ran || slices.Contains(cautious, form):
				want = policy.Deny
			default:
				want = policy.Allow
			}
			if d.Verdict == want {
				break
			}
		}
		if d.Verdict != want {
			t.Errorf("Check(%q) = %s (%s); want %s: bash ran the command: %v", form, d.Verdict, d.Reason, want, ran)
		}
		counts[ran]++
	}
	if counts[true] < 150 || counts[false] < 30 {
		t.Errorf("bash ran the command in %d forms and not in %d; want 150 and 30", counts[true], counts[false])
	}
}

// runs reports whether bash runs the command in a form.
func runs(t *testing.T, b *Bash, form string) bool {
	t.Helper()
	argvs, err := b.Run(t.Context(), strings.ReplaceAll(form, "CMD", "s1 -rf /"))
	if err != nil {
		t.Fatalf("%q: %v", form, err)
	}
	return slices.ContainsFunc(argvs, func(argv []string) bool { return len(argv) > 2 && slices.Equal(argv[:3], []string{"s1", "-rf", "/"}) })
}
