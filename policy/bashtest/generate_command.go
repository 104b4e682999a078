package bashtest

import (
	"strings"
)

// compound returns a command that holds others.
func (g *generator) compound() string {
	name := g.name()
	switch g.r.IntN(16) {
	case 0:
		return "{ " + g.block() + "}"
	case 1:
		return "( " + g.nested() + " )"
	case 2:
		return "(" + g.nested() + ")" + g.one("", " > out", " <<<b")
	case 3:
		return "if " + g.block() + "then " + g.block() + g.one("", "elif "+g.block()+"then "+g.block()) + g.one("", "else "+g.block()) + "fi"
	case 4:
		return g.one("while ", "until ") + g.block() + "do " + g.block() + "break; done"
	case 5:
		return "for " + name + g.one(" in "+g.word()+" "+g.word(), "", " in b", "\nin b") + g.one("; do ", "\ndo ", "; { ") + g.block()
	case 6:
		return "for " + name + " in b c; do " + g.block() + "done"
	case 7:
		return "for ((" + g.arithmetic() + "; 0; " + g.arithmetic() + ")); do " + g.block() + "done"
	case 8:
		return "case " + g.word() + " in " + g.one("", "\n") + g.one("b)", "(b)", "*)", "'$(m0)')", "b|$("+g.marker()+"))", `"b")`, "esac)", "@(b|c))") + " " + g.nestedLine() + g.one(";;", ";&", ";;&", "") +
			g.one("", " *) "+g.nestedLine()+";;") + " esac"
	case 9:
		return "[[ " + g.condition() + " ]]"
	case 10:
		return "(( " + g.arithmetic() + " ))"
	case 11:
		return "function fn1 " + g.one("() ", "", "\n") + "{ " + g.block() + "}; fn1 b " + g.word()
	case 12:
		return "fn2() " + g.one("{ ", "\n{ ") + g.block() + "}" + g.one("", " > out", " <<<b") + "; fn2 b"
	case 13:
		return "coproc " + g.one("", "NAME ") + "{ " + g.block() + "}; wait"
	case 14:
		return "select " + name + " in b c; do " + g.block() + "break; done <<<1"
	}
	return "time " + g.one("", "-p ") + g.simple()
}

func (g *generator) condition() string {
	return g.pick(
		func() string { return g.one("-n ", "-z ", "-f ", "! -n ", "") + g.word() },
		func() string { return g.word() + g.one(" == ", " != ", " = ", " < ") + g.word() },
		func() string {
			return "b =~ " + g.one("b", "(b|c)", "'$(m0)'", "$x", "$("+g.marker()+")", `\$`, "[#]", "^b#")
		},
		func() string { return g.quotedSubscript() + g.one(" -eq ", " -lt ", " -ne ") + g.arithmeticWord() },
		func() string { return "-v " + g.quotedSubscript() },
		func() string {
			return "( " + g.word() + " == b ) " + g.one("&&", "||") + " -n $(" + g.marker() + ")"
		},
	)
}

func (g *generator) arithmeticWord() string {
	return g.one("0", "x", "$x", "1+1", "'x'", "a[0]")
}

// quotedSubscript returns an element of an array in quotes: a text until a builtin reads it.
func (g *generator) quotedSubscript() string {
	inner := g.one("$("+g.marker()+")", "`"+g.marker()+"`", "0", "x", "$x")
	return g.pick(
		func() string { return "'a[" + inner + "]'" },
		func() string { return `a\[\$\(` + g.marker() + `\)\]` },
		func() string { return "'a['" + `"\$(` + g.marker() + `)]"` },
		func() string { return "'" + g.name() + "'" },
		func() string { return "$" + g.name() },
		func() string { return `"$` + g.name() + `"` },
		func() string { return "a[" + inner + "]" },
	)
}

// assignments returns assignments, with values that bash may evaluate later.
func (g *generator) assignments() string {
	n := g.name()
	switch g.r.IntN(10) {
	case 0, 1:
		return n + "=" + g.quotedSubscript() + g.one("; ", "\n") + g.evaluated(n)
	case 2:
		return n + "=" + g.one("", "+") + g.word()
	case 3:
		return n + "+=" + g.word()
	case 4:
		return "a[" + g.subscript() + "]=" + g.word()
	case 5:
		return "a=(" + g.word() + " [" + g.one("0", "x", "$("+g.marker()+")", "1") + "]=" + g.word() + g.one("", "\n", " # c \\\n") + ")"
	case 6:
		return g.one("declare", "typeset", "export", "readonly", "declare -i", "declare -a", "declare -A", "declare -n") + " z" + g.one("", "1") + "=" + g.pick(g.word, g.quotedSubscript) +
			g.one("", "; "+g.evaluated("z1"))
	case 7:
		return n + "='$(" + g.marker() + ")'; : " + g.one("$", `"$`) + "{" + n + "@P}" + g.one("", "")
	case 8:
		return n + "=" + g.one(g.marker(), "'"+g.marker()+" b'") + "; " + g.one("$"+n, `"$`+n+`"`, "${"+n+"}") + " " + g.word()
	}
	return n + "=" + g.marker() + "; " + g.one("PS4", "PROMPT_COMMAND", "BASH_ENV") + "=" + g.quotedSubscript()
}

// evaluated returns a use of a variable where bash evaluates its value.
func (g *generator) evaluated(n string) string {
	return g.one(
		"(("+n+"))", "((y = "+n+" + 1))", ": $(("+n+"))", ": ${y:"+n+"}", ": ${a["+n+"]}", "[[ "+n+" -eq 0 ]]", "[[ $"+n+" -eq 0 ]]",
		"let "+n, "let y="+n, "declare -i y="+n, "a["+n+"]=1", ": ${!"+n+"}", "declare -n r=$"+n+"; : $r", "unset \"$"+n+"\"", "printf -v \"$"+n+"\" b",
		"read \"$"+n+"\" <<<b", "[ -v \"$"+n+"\" ]", "for ((i="+n+"; i<0; i++)); do :; done", ": $["+n+"]", "a=(["+n+"]=1)", "((a[0] = "+n+"))", "test -v $"+n,
		"y=$"+n+"; ((y))", "RANDOM=$"+n, "local "+n, "((y[$"+n+"]))", "typeset -i w; w=$"+n, "export \"$"+n+"=1\"",
	)
}

// subscripted returns a call of a builtin that evaluates a quoted element.
func (g *generator) subscripted() string {
	s := g.quotedSubscript()
	return g.one("[ -v "+s+" ]", "test -v "+s, "printf -v "+s+" b", "read "+s+" <<<b", "read -a "+s+" <<<b", "declare "+s+"=1", "typeset "+s, "let "+s, "let "+s+"=1",
		"unset "+s, "unset -v "+s, "readonly "+s, "export "+s, "mapfile "+s+" <<<b", "wait -p "+s, "getopts b "+s+" -b", "exec {x}>/dev/null", "[ "+s+" -eq 0 ]", "printf %d "+s,
		"[ -R "+s+" ]", "[ ! -v "+s+" ]", "[ b -a -v "+s+" ]", "builtin printf -v "+s+" b", "command read "+s+" <<<b", "compgen -W "+g.one("'$("+g.marker()+")'", "b"), "shift "+s+" 2>/dev/null", "let x=1"+g.one("|", "&", "<", ">", "&&")+g.marker(),
		"declare -A a=("+s+" b)", "for "+g.name()+" in "+s+"; do ((x)); done", "set -- "+s+"; (($1))", "read x <<<"+s+"; ((x))")
}

// within returns a command that runs a list that it gets as text.
func (g *generator) within() string {
	bodies := g.bodies
	g.bodies = nil
	inner := g.nested()
	g.bodies = bodies
	s := g.shim()
	text := g.quote(inner)
	switch g.r.IntN(32) {
	case 26:
		return "set -- " + g.marker() + " " + g.word() + `; "$@"` + g.one("", " b")
	case 27:
		return "fn3() { " + g.one(`"$@"`, `m0 "$1"`, `$1 b`, `m0 "$*" $#`) + "; }; fn3 " + g.marker() + " " + g.word()
	case 28:
		return "for i in " + g.marker() + " " + g.marker() + "; do $i " + g.word() + "; done"
	case 29:
		return "x=" + g.marker() + " && " + g.one(`"$x"`, "$x", "${x}", "$x$y") + " " + g.word()
	case 30:
		return g.one("IFS=- ; ", "IFS=; ", "set -f; ", "shopt -s extglob; ", "set -o posix; ", "shopt -s nullglob; ") + "x=b-c; " + g.marker() + " $x " + g.word()
	case 31:
		return "{" + g.marker() + "," + g.word() + "}" + g.one("", " b")
	case 0, 1, 2:
		return "eval " + text
	case 3, 4, 5:
		return "bash -c " + text
	case 6:
		return "trap " + text + " EXIT"
	case 7:
		return "bash <<<" + text
	case 8:
		return "printf '%s\\n' " + text + " | bash"
	case 9:
		return "shopt -s expand_aliases\nalias al=" + text + "\nal " + g.word()
	case 10:
		return "alias " + g.one("m1", "al") + "=" + g.one("':'", text) + "\n" + g.one("m1", "al") + " b"
	case 11:
		return ". /dev/stdin <<<" + text
	case 12:
		return "source <(echo " + text + ")"
	case 13:
		return "mapfile -C " + g.quote(g.marker()+" b") + " -c 1 <<<b"
	case 14:
		return "env " + g.one("", "-i ", "A=b ", "-u A ", "-- ") + s + " " + g.word()
	case 15:
		return "env " + g.one("-S ", "-S", "-iS ", "--split-string=", "-u A -S ", "-S -u -S A -S ") + g.quote(g.splitText(s)) + g.one("", " -b", " "+g.word())
	case 16:
		return g.one("echo b | ", "", "printf '%s ' b c | ", ": | ") + "xargs " + g.one("", "-n1 ", "-I{} ", "-r ", "-0 ") + s + " " + g.one("b", "{}")
	case 17:
		return "find " + g.one("", "-H ", "-O3 ", "-D tree ") + ". -maxdepth 0 " + g.one("-exec ", "-execdir ") + s + " b " + g.one("{} \\;", "\\;", "{} +")
	case 18:
		return g.one("timeout 9 ", "nice ", "nohup ", "timeout -s KILL 9 ", "nice -n 1 ", "setsid -w ", "stdbuf -o0 ") + s + " " + g.word()
	case 19:
		return "(exec " + g.one("", "-a b ", "-c ") + s + " b)"
	case 20:
		return "command " + g.one("", "-p ", "-- ") + s
	case 21:
		return "eval " + g.quote("eval "+g.quote(inner))
	case 22:
		return "bash -c " + g.quote(`"$@"; $0`) + " " + s + " " + s + " b"
	case 23:
		return "printf -v x %s " + g.quote(s) + "; $x b"
	case 24:
		return "hash -p ./b " + s + "; " + s
	}
	return "cat <<'E' | bash" + g.heldBody(inner)
}

// splitText returns a text for env -S that runs a program.
func (g *generator) splitText(program string) string {
	var text strings.Builder
	text.WriteString(g.one("", "", "", "-- ", "A=b ", "a/b=c ", `-u A\_`, "-S ", "- A=b ") + g.one(program, program, `"`+program+`"`, `\_`+program))
	for range g.r.IntN(5) {
		text.WriteString(g.one(" b", " -rf", ` "c\_d"`, ` 'c\_d'`, ` c\_d`, ` 'c\'d'`, ` "c'd"`, ` c\"d`, " ''", ` c\nd`, " c#d", " #", ` \#`, ` \c`, `c\c d`, " ${HOME}", ` "${nope}c"`, " ${nope}", ` \$c`, "\t\\t\v", " A=b"))
	}
	return text.String()
}

// heldBody keeps a text as the body of a here-document whose delimiter is E.
func (g *generator) heldBody(text string) string {
	if strings.Contains("\n"+text+"\n", "\nE\n") {
		text = "m0"
	}
	g.bodies = append(g.bodies, text+"\nE\n")
	return ""
}

// shim returns a marker that programs can run too.
func (g *generator) shim() string { return g.one("s1", "s2", "s3") }

// quote returns a text as one word.
func (g *generator) quote(text string) string {
	switch g.r.IntN(4) {
	case 0:
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(text) + `"`
	case 1:
		return "$'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
	case 2:
		if g.chance(30) { // expanded first
			return `"` + strings.NewReplacer(`"`, `\"`).Replace(text) + `"`
		}
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
