package bashtest

import (
	"strings"
)

// word returns one word, without blanks outside quotes.
func (g *generator) word() string {
	var text strings.Builder
	text.WriteString(g.piece())
	for g.chance(25) && g.spend() {
		text.WriteString(g.piece())
	}
	return text.String()
}

func (g *generator) piece() string {
	if !g.spend() {
		return g.one("b", "c", "d")
	}
	switch g.r.IntN(15) {
	case 0, 1, 2:
		return g.one("b", "c-d", "e=f", "a#b", "~", "*", "-n", "[a]", "{", "}", "=", "%", "@", "^", "!", "b,c", ".", ",")
	case 3, 4:
		return "'" + g.one("", "b c", "$(m0)", "\"", "\\", "`m0`", "#", "\n", "; m0 ", "$x", "}") + "'"
	case 5, 6:
		return g.double()
	case 7:
		return "$'" + g.one("b", `\'`, `\x41`, `\n`, `"`, `\\`, `a\'; m0 \'`, `\101`, "$(m0)") + "'"
	case 8:
		return `\` + g.one(" ", "\\", "'", `"`, "$", "`", "#", ";", "n", "\n", "(", "&", "{")
	case 9:
		return "{b,c}"
	case 10:
		return g.one("{1..3}", "{a,b", "x{,y}", "{b,'c d'}", "{$x,b}", "$x{b,c}")
	case 11:
		return g.one("<", ">") + "(" + g.nested() + ")"
	}
	return g.expansion()
}

// double returns a text in double quotes.
func (g *generator) double() string {
	var b strings.Builder
	b.WriteString(g.one(`"`, `"`, `"`, `"`, `$"`))
	g.quoted++
	for range 1 + g.r.IntN(3) {
		if g.chance(50) && g.spend() {
			b.WriteString(g.expansion())
		} else {
			b.WriteString(g.one("b", " ", "'", "#", `\"`, `\$`, "\\`", `\\`, "\n", "\\\n", "; ", "(", ")", "}", "{", "$", "!", `\a`, "a b", "'$x'"))
		}
	}
	g.quoted--
	b.WriteString(`"`)
	return b.String()
}

// expansion returns something that starts with a dollar or a backquote.
func (g *generator) expansion() string {
	switch g.r.IntN(12) {
	case 0:
		return "$" + g.one("x", "y", "1", "@", "#", "?", "*", "-")
	case 1, 2, 3:
		return g.substitution()
	case 4:
		return "$((" + g.arithmetic() + "))"
	case 5:
		return g.one("$[1+1]", "$[x]", "$\\\n{x}", "$\\\n("+g.marker()+")", "${\\\nx:-$("+g.marker()+")}", "$(\\\n"+g.marker()+")", "${ "+g.marker()+"; }", "${x:-${y:-"+g.substitution()+"}}")
	}
	return g.parameter()
}

func (g *generator) substitution() string {
	switch g.r.IntN(6) {
	case 0:
		return g.backquoted()
	case 1:
		return "$( " + g.nested() + " )"
	case 2:
		return "$(case b in " + g.one("b)", "(b)", "b | c)") + " " + g.nestedLine() + ";; esac)"
	case 3:
		return "$(" + g.marker() + " " + g.word() + " # it's ) " + g.one("", "\\", "\"") + "\n" + g.marker() + ")"
	}
	return "$(" + g.nested() + ")"
}

// nestedLine returns a nested list that ;; may follow on the same line.
func (g *generator) nestedLine() string {
	return strings.TrimSuffix(g.nested(), "\n") + g.one("", "\n")
}

func (g *generator) backquoted() string {
	switch g.r.IntN(6) {
	case 0:
		return "`" + g.marker() + " \\`" + g.marker() + "\\``"
	case 1:
		return "`" + g.marker() + ` "b c"` + "`"
	case 2:
		return "`" + g.marker() + ` \$x` + "`"
	case 3:
		return "`" + g.marker() + " '\\\\'; " + g.marker() + "`"
	case 4:
		return "`" + g.marker() + " # c`"
	}
	return "`" + g.marker() + "`"
}

// parameter returns an expansion of a parameter in braces.
func (g *generator) parameter() string {
	n := g.one("x", "y", "z", "a[0]", "@", "1", "a[@]", "x[0]", "*")
	if !g.spend() {
		return "${" + n + "}"
	}
	switch g.r.IntN(14) {
	case 0:
		return "${#" + g.one("x", "a[@]", "", "@") + "}"
	case 1:
		return "${!" + g.one("x", "y", "x*", "a[@]") + "}"
	case 2:
		return "${" + n + "@" + g.one("Q", "P", "E", "U", "A", "a", "K") + "}"
	case 3:
		return "${" + n + ":" + g.arithmetic() + "}"
	case 4:
		return "${" + n + ": " + g.arithmetic() + ":" + g.arithmetic() + "}"
	case 5:
		return "${" + n + g.one("/", "//", "/#", "/%") + g.operand() + "/" + g.operand() + "}"
	case 6:
		return "${" + n + g.one("^", "^^", ",", ",,") + g.operand() + "}"
	case 7, 8:
		return "${" + n + g.one("#", "##", "%", "%%") + g.operand() + "}"
	case 9:
		return "${a[" + g.subscript() + "]}"
	}
	return "${" + n + g.one(":-", "-", ":=", "=", ":+", "+", ":-") + g.operand() + "}"
}

// operand returns the word in an expansion, with quotes whose meaning depends on what is
// around them.
func (g *generator) operand() string {
	var b strings.Builder
	for range 1 + g.r.IntN(2) {
		switch g.r.IntN(16) {
		case 0, 1:
			b.WriteString("'" + g.one("b", "", "$(m0)", "}", "`m0`", `"`, "$x", "/", "b c", "\\", "]") + "'")
		case 2, 3:
			b.WriteString(`"` + g.one("b", "", "$(m0)", "}", "`m0`", "'", "$x", "/", `\"`, "\\}") + `"`)
		case 4:
			b.WriteString(`\` + g.one("}", "'", `"`, "$", "/", "\\", "`"))
		case 5:
			b.WriteString("$'" + g.one("b", `\'`, "}", `\x7d`, "$(m0)") + "'")
		case 6:
			b.WriteString(g.one("'", "#", "(", ")", "<", ";", "&", "|", " ", "{", "\n", "*", "?", "=", "~"))
		case 7, 8:
			if g.spend() {
				b.WriteString(g.substitution())
			}
		case 9:
			if g.spend() {
				b.WriteString(g.expansion())
			}
		case 10:
			if g.spend() {
				b.WriteString(g.one("<", ">") + "(" + g.marker() + ")")
			}
		default:
			b.WriteString(g.one("b", "c", "*", "?", "b c"))
		}
	}
	return b.String()
}

// arithmetic returns an expression.
func (g *generator) arithmetic() string {
	if !g.spend() {
		return "1"
	}
	switch g.r.IntN(14) {
	case 0:
		return g.name()
	case 1:
		return "$" + g.name()
	case 2:
		return g.name() + "[" + g.subscript() + "]"
	case 3:
		return "$(" + g.marker() + ")"
	case 4:
		return "(" + g.arithmetic() + ")"
	case 5:
		return g.arithmetic() + g.one("+", " - ", "*", "<", " && ", ",", "==", "<<") + g.arithmetic()
	case 6:
		return g.name() + g.one("=", "+=") + g.arithmetic()
	case 7:
		return g.one("-", "!", "~", "+") + g.arithmetic()
	case 8:
		return g.one("'1'", `"1"`, `"$x"`, `\1`, `"`+g.name()+`"`, "'"+g.name()+"'")
	case 9:
		return "1 ? " + g.arithmetic() + " : " + g.arithmetic()
	case 10:
		return "${x:-" + g.one("1", "$(m0)", "'$(m0)'", "y") + "}"
	case 11:
		return g.one("16#ff", "x#1", "0x1f", "#x")
	}
	return g.one("0", "1", "2")
}

func (g *generator) subscript() string {
	return g.pick(
		func() string { return "$(" + g.marker() + ")" },
		func() string { return "'$(" + g.marker() + ")'" },
		func() string { return `\$(` + g.marker() + `)` },
		func() string { return `"$(` + g.marker() + `)"` },
		func() string { return "`" + g.marker() + "`" },
		func() string { return g.name() },
		func() string { return "$" + g.name() },
		func() string { return g.one("0", "1", "@", "0 + 1", "'0'", "x]") },
	)
}
