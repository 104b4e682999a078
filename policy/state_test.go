package policy

import (
	"strings"
	"testing"
)

// TestState holds the walker to what it knows of a shell's state. In each row rm -rf is
// denied exactly if the walker knows that its operand is / or a home directory.
func TestState(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, Options{Checks: []string{checkRm}})
	for _, tt := range []struct {
		script string
		want   Verdict
	}{
		// Functions are judged where they are called, with what is known by then.
		{"f() { rm -rf $x; }; x=/; f", Deny},
		{"f() { rm -rf $x; }; f; x=/", Allow},
		{"f() { rm -rf $x; }; x=a; f", Allow},
		{"f() { rm -rf $x; }; x=/; x=a; f", Allow},
		{"f() { rm -rf $x; }; (x=/); f", Allow},
		{"f() { rm -rf $x; }; (x=/; f)", Deny},
		{"f() { rm -rf $x; }; a && x=/; f", Allow},
		{"f() { rm -rf $x; }; a && x=/ && f", Deny},
		{"f() { rm -rf $x; }; f; x=/; f", Deny},
		{"f() { rm -rf .; }; cd /; f", Deny},
		{"f() { rm -rf .; }; f; cd /", Allow},
		{"f() { rm -rf .; }; cd /a; f", Allow},
		{"f() { rm -rf .; }; (cd /; f)", Deny},
		{"f() { rm -rf .; }; (cd /); f", Allow},
		{"f() { rm -rf a/..; }; cd /; f", Deny},
		{"f() { cd /; }; rm -rf .", Allow},
		{"f() { cd /; rm -rf .; }; f", Deny},
		{"g() { f; }; f() { rm -rf $x; }; x=/; g", Deny},
		{"g() { f; }; x=/; f() { rm -rf $x; }; g", Deny},
		{"g() { f; }; f() { rm -rf $1; }; g", Allow},
		{"g() { f /; }; f() { rm -rf $1; }; g", Deny},
		{"g() { f \"$@\"; }; f() { rm -rf \"$@\"; }; g a /", Deny},
		{"g() { f \"$1\"; }; f() { rm -rf \"$@\"; }; g a /", Allow},
		{"g() { f $2; }; f() { rm -rf $1; }; g a /", Deny},
		{"h() { g; }; g() { f; }; f() { rm -rf $x; }; x=/; h", Deny},
		{"f() { rm -rf $1; f $1; }; f /", Deny},
		{"f() { f; }; f", Allow},
		{"f() { g; }; g() { f; rm -rf $x; }; x=/; f", Deny},
		{"function f { rm -rf $1; }; f /", Deny},
		{"f() (rm -rf $1); f /", Deny},
		{"f() { rm -rf $1; } >x; f /", Deny},
		{"f() if a; then rm -rf $1; fi; f /", Deny},
		{"f() for i in a; do rm -rf $1; done; f /", Deny},
		{"f() { rm -rf $2; }; f / a", Allow},
		{"f() { rm -rf ${1}; }; f /", Deny},
		{"f() { rm -rf ${10}; }; f 1 2 3 4 5 6 7 8 9 /", Deny},
		{"f() { rm -rf $10; }; f /", Allow}, // ${1}0
		{"f() { rm -rf $*; }; f /", Deny},
		{"f() { rm -rf \"$*\"; }; f a /", Allow}, // one name with a space
		{"f() { rm -rf \"$*\"; }; f /", Deny},
		{"f() { local x=/; rm -rf $x; }; f", Deny},
		{"f() { local x=a; rm -rf $x; }; f", Allow},
		{"f() { x=$1; rm -rf $x; }; f /", Deny},
		{"f() { eval \"$1\"; }; f 'rm -rf /'", Deny},
		{"f() { eval \"$@\"; }; f rm -rf /", Deny},
		{"f() { eval \"$1\"; }; f ls", Allow},
		{"f() { \"$@\"; }; f rm -rf /", Deny},
		{"f() { \"$@\"; }; f ls /", Allow},
		{"f() { sh -c \"$1\"; }; f 'rm -rf /'", Deny},
		{"f() { sh; }; f <<<'rm -rf /'", Deny},
		{"f() { sh; }; f <<<ls", Allow},
		{"f() { cat; }; f <<<'rm -rf /'", Allow},
		{"f() { rm -rf /; }", Deny}, // not called, and refused all the same
		{"rm() { echo; }; rm -rf /", Deny},
		{"unset -f rm; rm -rf /", Deny},
		{"f() { rm() { :; }; }; rm -rf /", Deny},
		{"if a; then f() { rm -rf $1; }; fi; f /", Deny},
		{"f() { ls; }; f() { rm -rf $1; }; f /", Deny},
		{"f() { rm -rf $1; }; f() { ls; }; f /", Allow},
		{"f() { rm -rf $1; }; command f /", Deny}, // command calls no function; the walker does not tell
		{"f() { rm -rf $1; }; a | f /", Deny},
		{"f() { rm -rf $1; }; f / &", Deny},
		{"f() { rm -rf $1; }; ! f /", Deny},
		{"f() { rm -rf $1; }; x=$(f /)", Deny},
		{"f() { rm -rf $1; }; export -f f; bash -c 'f /'", Allow}, // not followed into another shell

		// Aliases.
		{"alias r='rm -rf'\nr /", Deny},
		{"alias r='rm -rf'\nr a", Allow},
		{"alias r=rm\nr -rf /", Deny},
		{"alias r='sudo rm'\nr -rf /", Deny},
		{"alias r='ls; rm -rf'\nr /", Deny},
		{"alias r='ls #'\nr; rm -rf a", Allow},
		{"alias a='b /' b='rm -rf'\na", Deny},
		{"alias a=b b=a\na", Allow},
		{"alias rm='rm -i'\nrm -rf /", Deny},
		{"alias r='rm -rf'\n\\r /", Deny}, // bash does not expand it; the walker does not tell
		{"alias r='rm -rf'\ncommand r /", Deny},
		{"alias r='rm -rf'\nunalias r\nr /", Deny},
		{"alias -p\nrm -rf a", Allow},
		{"alias r=\"rm -rf $x\"\nr /", Deny},
		{"alias r='for i in'\nr /", Opaque},

		// Subshells, lists and background jobs.
		{"(x=/; rm -rf $x)", Deny},
		{"(x=/; (rm -rf $x))", Deny},
		{"((x=1)); rm -rf /a", Allow},
		{"(cd /); rm -rf .", Allow},
		{"(cd /; rm -rf .)", Deny},
		{"{ cd /; }; rm -rf .", Deny},
		{"{ cd /; } & rm -rf .", Allow},
		{"cd / & rm -rf .", Allow},
		{"cd / | rm -rf .", Allow},
		{"cd /; ls | rm -rf .", Deny},
		{"cd / || exit; rm -rf .", Deny},
		{"cd / || a; rm -rf ..", Deny},
		{"cd a || exit; rm -rf .", Allow},
		{"a && { cd /; rm -rf .; }", Deny},
		{"a && { cd /; }; rm -rf .", Allow},
		{"a || (cd / && rm -rf .)", Deny},
		{"cd /; (cd a; ls); rm -rf .", Deny},
		{"cd /; { cd a; }; rm -rf .", Allow},
		{"cd /; cd -; rm -rf .", Allow},
		{"cd /; pushd a; rm -rf .", Allow},
		{"pushd /; popd; rm -rf .", Allow},
		{"cd $x; rm -rf .", Allow},
		{"cd /; cd $x; rm -rf .", Allow},
		{"cd ~; rm -rf .", Deny},
		{"cd ~; cd ..; rm -rf a", Allow},
		{"cd; rm -rf .", Deny},
		{"cd ''; rm -rf .", Allow},
		{"cd /a/b/c; rm -rf ../../../", Deny},
		{"cd /a/b/c; rm -rf ../../d", Allow},
		{"builtin cd /; rm -rf .", Deny},
		{"command cd /; rm -rf .", Deny},
		{"env cd /; rm -rf .", Deny}, // env's cd changes nothing; the walker does not tell
		{"cd -- /; rm -rf .", Deny},
		{"cd -L /; rm -rf .", Deny},

		// Traps.
		{"trap 'rm -rf /' EXIT", Deny},
		{"trap 'rm -rf a' EXIT", Allow},
		{"trap 'rm -rf $x' EXIT; x=/", Deny},
		{"trap 'rm -rf $x' EXIT; x=a", Allow},
		{"trap 'rm -rf $x' EXIT; (x=/)", Allow},
		{"trap 'rm -rf .' EXIT; cd /", Deny},
		{"trap 'rm -rf .' EXIT; cd /; cd a", Allow},
		{"cd /; trap 'rm -rf .' EXIT; cd a", Deny}, // it may run before cd a does
		{"trap \"rm -rf $x\" EXIT; x=/", Opaque},   // expanded where it is set
		{"x=/; trap \"rm -rf $x\" EXIT", Deny},
		{"trap f EXIT; f() { rm -rf $x; }; x=/", Deny},
		{"f() { rm -rf $x; }; trap f EXIT; x=/", Deny},
		{"trap - EXIT; rm -rf a", Allow},
		{"trap -p 'rm -rf /'", Allow},
		{"trap -l 'rm -rf /' EXIT", Allow},
		{"trap 'rm -rf /'", Allow}, // one word resets a signal of that name
		{"trap -- 'rm -rf /' INT TERM", Deny},
		{"trap '' EXIT; rm -rf a", Allow},
		{"builtin trap 'rm -rf /' EXIT", Deny},

		// Here-documents.
		{"sh <<A\nrm -rf /\nA", Deny},
		{"sh <<A\nrm -rf a\nA", Allow},
		{"x=/; sh <<A\nrm -rf $x\nA", Deny},
		{"x=/; sh <<'A'\nrm -rf $x\nA", Allow}, // sh does not know x
		{"sh <<A\nrm -rf \\$x\nA", Allow},
		{"cat <<A\nrm -rf /\nA", Allow},
		{"cat <<A\n$(rm -rf /)\nA", Deny},
		{"cat <<'A'\n$(rm -rf /)\nA", Allow},
		{"cat <<\"A\"\n$(rm -rf /)\nA", Allow},
		{"cat <<\\A\n`rm -rf /`\nA", Allow},
		{"cat <<A\n\\$(rm -rf /)\nA", Allow},
		{"cat <<A\n${x:-$(rm -rf /)}\nA", Deny},
		{"cat <<A\n$((1+$(rm -rf /)))\nA", Deny},
		{"cat <<-A\n\t$(rm -rf /)\n\tA", Deny},
		{"sh <<-A\n\trm -rf /\n\tA", Deny},
		{"cat <<A | sh\nrm -rf /\nA", Deny},
		{"cat <<A | grep x\nrm -rf /\nA", Allow},
		{"cat <<A | tee f | sh\nrm -rf /\nA", Deny},
		{"cat <<A <<B | sh\nls\nA\nrm -rf /\nB", Deny}, // the last one is read
		{"cat <<A <<B | sh\nrm -rf /\nA\nls\nB", Allow},
		{"sh <<A; rm -rf a\nls\nA", Allow},
		{"sh <<A; rm -rf /\nls\nA", Deny},
		{"while read x; do rm -rf $x; done <<A\n/\nA", Allow}, // what read reads is not known
		{"sh 3<<A\nrm -rf /\nA", Allow},
		{"sh <<A\nsh <<B\nrm -rf /\nB\nA", Deny},
		{"xargs rm -rf <<A\n/\nA", Deny},
		{"xargs rm -rf <<A\na b\nA", Allow},

		// Arrays. Their elements are not followed.
		{"a=(/); rm -rf ${a[0]}", Allow},
		{"a=(rm -rf /); \"${a[@]}\"", Opaque},
		{"a=(ls); \"${a[@]}\"", Opaque},
		{"a[0]=rm; ${a[0]} -rf /", Opaque},
		{"a=([0]=$(rm -rf /))", Deny},
		{"a=($(rm -rf /))", Deny},
		{"a+=($(rm -rf /))", Deny},
		{"a[$(rm -rf /)]=1", Deny},
		{"declare -a a=($(rm -rf /))", Deny},
		{"declare -A a=([$(rm -rf /)]=1)", Deny},
		{"echo ${a[$(rm -rf /)]}", Deny},
		{"echo ${#a[$(rm -rf /)]}", Deny},
		{"echo ${a[@]:$(rm -rf /)}", Deny},
		{"a='(rm -rf /)'; echo $a", Allow},
		{"unset 'a[$(rm -rf /)]'", Deny},
		{"unset 'a[1]'", Allow},

		// Arithmetic.
		{"((x = $(rm -rf /)))", Deny},
		{"echo $((a[$(rm -rf /)]))", Deny},
		{"x='a[$(rm -rf /)]'; ((x))", Deny},
		{"x='a[$(rm -rf /)]'; echo $x", Allow},
		{"x='a[$(rm -rf /)]'; let y=x", Deny},
		{"x='a[$(rm -rf /)]'; [[ x -eq 1 ]]", Deny},
		{"x='a[$(rm -rf /)]'; [[ x = 1 ]]", Allow},
		{"x='a[$(rm -rf /)]'; for ((i=x;;)); do a; done", Deny},
		{"x='a[$(rm -rf /)]'; echo ${y:x}", Deny},
		{"declare -i x='a[$(rm -rf /)]'", Deny},
		{"declare x='a[$(rm -rf /)]'", Deny}, // declare -i may have come before
		{"for ((i=0; i<1; i++)); do rm -rf /; done", Deny},
		{"x=/; ((x++)); rm -rf $x", Allow}, // changed
		{"x=/; ((y++)); rm -rf $x", Deny},
		{"x=/; ((x == 1)); rm -rf $x", Deny},
		{"x=/; let x=1; rm -rf $x", Allow},
		{"x=/; : $((x += 1)); rm -rf $x", Allow},

		// Coprocesses.
		{"coproc rm -rf /", Deny},
		{"coproc x { rm -rf /; }", Deny},
		{"coproc { x=/; }; rm -rf $x", Allow},
		{"coproc { cd /; }; rm -rf .", Allow},
		{"x=/; coproc { rm -rf $x; }", Deny},
		{"cd /; coproc { rm -rf .; }", Deny},
		{"x=/; coproc x { a; }; rm -rf $x", Allow}, // it names the array of its descriptors

		// Branches of case.
		{"case a in a) rm -rf /;; esac", Deny},
		{"case a in a) x=/;; b) rm -rf $x;; esac", Allow},
		{"case a in a) x=/;& b) rm -rf $x;; esac", Deny},
		{"case a in a) x=/;;& b) rm -rf $x;; esac", Deny},
		{"case a in a) x=/;& b) c;; d) rm -rf $x;; esac", Allow},
		{"case a in a) x=/;& b) c;& d) rm -rf $x;; esac", Deny},
		{"case a in a) c;& b) x=/;& d) rm -rf $x;; esac", Deny},
		{"case a in a) x=/;& b) c;; esac; rm -rf $x", Allow},
		{"case a in a) cd /;& b) rm -rf .;; esac", Deny},
		{"case a in a) cd /;; b) rm -rf .;; esac", Allow},
		{"cd /; case a in a) cd b;& b) rm -rf .;; esac", Deny}, // entered at b
		{"cd /; case a in a) cd b;; esac; rm -rf .", Allow},
		{"cd /; case a in a) cd b;; c) rm -rf .;; esac", Deny},
		{"cd /; if a; then cd b; else rm -rf .; fi", Deny},
		{"cd /; if a; then cd b; elif c; then rm -rf .; fi", Deny},
		{"cd /; if a; then cd b; else c; fi; rm -rf .", Allow},
		{"cd /; if a; then b; else cd c; fi; rm -rf .", Allow},
		{"cd /; if a; then b; else c; fi; rm -rf .", Deny},
		{"set -- /; if a; then set -- b; else rm -rf $1; fi", Allow}, // set twice
		{"set -- /; if a; then shift; else rm -rf $1; fi", Allow},
		{"cd / && a && cd b || rm -rf .", Deny},
		{"cd / && a && cd b || c; rm -rf .", Allow},
		{"cd / && a || cd b || rm -rf .", Deny},
		{"case $(rm -rf /) in a) ;; esac", Deny},
		{"case a in $(rm -rf /)) ;; esac", Deny},
		{"case a in (a) f() { rm -rf $1; };& b) f /;; esac", Deny},

		// References to names.
		{"declare -n r=x; x=/; rm -rf $r", Allow},
		{"x=ls; declare -n r=x; r=rm; $x -rf /", Opaque},
		{"x=rm; declare -n r=y; $x -rf /", Deny},
		{"x=rm; $x -rf /", Deny},
		{"x=rm; export \"$y\"; $x a", Opaque},
		{"nameref r=x; r -rf /", Allow},
		{"x=y; echo ${!x}", Allow},
		{"x=y; ${!x} -rf /", Opaque},

		// Variables in general.
		{"x=/ y=$x; rm -rf $y", Deny},
		{"x=/; y=$x; rm -rf $y", Deny},
		{"x=/; y=$x/a; rm -rf $y", Allow},
		{"x=/; y=\"$x\"; z=\"$y\"; rm -rf \"$z\"", Deny},
		{"x=~; rm -rf $x", Deny},
		{"x=~/a/b; rm -rf $x", Allow},
		{"x='~'; rm -rf $x", Allow}, // no tilde in a value
		{"x=$HOME; rm -rf $x", Deny},
		{"x='$HOME'; rm -rf $x", Allow},
		{"x='a *'; rm -rf $x", Deny},
		{"x='*'; rm -rf $x", Deny},
		{"x='*'; rm -rf \"$x\"", Allow},
		{"x={a,/}; rm -rf $x", Allow},
		{"x=/; rm -rf '$x'", Allow},
		{"x=/; rm -rf \\$x", Allow},
		{"x=/; rm -rf ${x}", Deny},
		{"x=/; rm -rf ${x:-a}", Allow},
		{"x=/; readonly x; rm -rf $x", Allow},
		{"readonly x=/; rm -rf $x", Deny},
		{"export x=/; rm -rf $x", Deny},
		{"x=/; for x in a; do b; done; rm -rf $x", Allow},
		{"x=/; read x; rm -rf $x", Allow},
		{"x=/; mapfile x <f; rm -rf $x", Allow},
		{"x=/; getopts ab x; rm -rf $x", Allow},
		{"x=/; printf -v x a; rm -rf $x", Allow},
		{"x=/; : ${x:=a}; rm -rf $x", Allow},
		{"x=/; : ${y:=a}; rm -rf $x", Deny},
		{"x=/; exec {x}<f; rm -rf $x", Allow},
		{"x=/; select x in a; do rm -rf $x; done", Allow},
		{"x=/; eval \"$y\"; rm -rf $x", Deny},
		{"IFS=,; x=a,/; rm -rf $x", Allow},
		{"IFS=,; x=/; rm -rf \"$x\"", Deny},
		{"set -- /; rm -rf $1", Deny},
		{"set -- a; rm -rf $1", Allow},
		{"set -e; rm -rf $1", Allow},
		{"set -o pipefail; f() { rm -rf $1; }; f /", Deny},
	} {
		if d := p.Check(Input{Script: tt.script}); d.Verdict != tt.want {
			t.Errorf("Check(%q) = %s by %s (%s); want %s", tt.script, d.Verdict, d.Rule, d.Reason, tt.want)
		}
	}
}

// TestManyCalls looks at functions whose calls follow assignments: each call is looked at in
// the state of that place, and many of them stay within the budget.
func TestManyCalls(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, Options{Checks: []string{checkRm}})
	var b strings.Builder
	b.WriteString("f() { rm -rf \"$last\"; }\n")
	for i := range 500 {
		b.WriteString("v" + number(i+1) + "=a; f\n")
	}
	if d := p.Check(Input{Script: b.String()}); d.Verdict != Allow {
		t.Errorf("500 calls: Check = %+v; want allow", d)
	}
	b.WriteString("last=/; f\n")
	if d := p.Check(Input{Script: b.String()}); d.Verdict != Deny {
		t.Errorf("500 calls, and one that removes the root: Check = %+v; want deny", d)
	}
}
