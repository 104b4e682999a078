// Package bashtest compares what a policy expects a script to run with what bash runs. It
// makes random scripts from constructs that bash and a parser may read differently, has
// bash run them with commands that only record their calls, and shrinks a script on which
// the two differ.
//
// It is for tests only.
package bashtest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Generate makes a script. It makes the same script from the same random numbers.
//
// All commands in it are markers, which only record that they ran, builtins, or programs
// that run others. File names have no slash, so that a script writes only to its working
// directory.
func Generate(r *rand.Rand) string {
	g := &generator{r: r, fuel: 4 + r.IntN(14)}
	lines := 1 + r.IntN(4)
	var b strings.Builder
	for range lines {
		b.WriteString(g.line())
	}
	return b.String()
}

// generator makes one script.
type generator struct {
	r       *rand.Rand
	fuel    int      // how much the script may still grow
	markers int      // how many were made
	bodies  []string // of the here-documents whose bodies start at the next newline
	quoted  int      // levels of double quotes around the text
}

// pick calls one of the functions.
func (g *generator) pick(choices ...func() string) string {
	return choices[g.r.IntN(len(choices))]()
}

// one returns one of the texts.
func (g *generator) one(texts ...string) string { return texts[g.r.IntN(len(texts))] }

func (g *generator) chance(percent int) bool { return g.r.IntN(100) < percent }

// spend uses fuel, and reports whether there is any left.
func (g *generator) spend() bool {
	g.fuel--
	return g.fuel > 0
}

// name returns a variable's name. There are only a few, so that they are used again.
func (g *generator) name() string { return g.one("x", "y", "z", "a") }

// marker returns a new command that only records that it ran.
func (g *generator) marker() string {
	g.markers++
	return fmt.Sprintf("%s%d", g.one("m", "m", "m", "f"), g.markers)
}

// newline ends a line, and writes the bodies of its here-documents.
func (g *generator) newline() string {
	text := "\n" + strings.Join(g.bodies, "")
	g.bodies = nil
	return text
}

func (g *generator) line() string {
	text := g.list()
	switch {
	case g.chance(25):
		text += g.one(" ", ";", "; ", "\t") + g.comment()
	case g.chance(5):
		text = g.comment()
	}
	return text + g.newline()
}

// comment returns a comment that may end in a backslash, or hold the start of something.
func (g *generator) comment() string {
	return "#" + g.one("", " ", "c", "$(m0", "'", "\"", "`m0`", "\\", "}", ")") + g.one("", "", " \\", "\\", "\\\\", " \\ ", "<<E", "\\\\\\")
}

// list returns some commands in a row.
func (g *generator) list() string {
	text := g.command()
	for g.chance(25) && g.spend() {
		text += g.one("; ", " && ", " || ", " | ", ";", "&&", "||", "|", " |& ", " & ", " \\\n&& ", " && \\\n", " ||\n", " &\\\n& ", "\\\n;", " |\\\n& ") + g.command()
		// A newline in the list also starts the bodies of here-documents.
		if len(g.bodies) > 0 && strings.Contains(text, "||\n") {
			text = strings.Replace(text, "||\n", "|| ", 1)
		}
	}
	return text
}

func (g *generator) command() string {
	if !g.spend() {
		return g.marker()
	}
	switch g.r.IntN(10) {
	case 0, 1:
		return g.compound()
	case 2:
		return g.assignments()
	case 3:
		return g.within()
	case 4:
		return g.subscripted()
	}
	return g.simple()
}

// simple returns a marker with words and redirections, in any order.
func (g *generator) simple() string {
	text := ""
	if g.chance(10) {
		text = g.name() + "=" + g.word() + " "
	}
	if g.chance(8) {
		text += g.redirection() + " "
	}
	text += g.commandName()
	for g.chance(60) && g.spend() {
		text += g.one(" ", " ", "  ", "\t", " \\\n") + g.word()
	}
	if g.chance(20) {
		text += g.one(" ", "") + g.redirection()
	}
	return text
}

// commandName returns a marker's name, quoted in some way.
func (g *generator) commandName() string {
	name := g.marker()
	switch g.r.IntN(14) {
	case 0:
		return "'" + name + "'"
	case 1:
		return `"` + name + `"`
	case 2:
		return name[:1] + "''" + name[1:]
	case 3:
		return `\` + name
	case 4:
		return name[:1] + "\\\n" + name[1:]
	case 5:
		return "$'" + name + "'"
	case 6:
		return "command " + name
	case 7:
		return "! " + name
	}
	return name
}

func (g *generator) redirection() string {
	switch g.r.IntN(12) {
	case 0, 1, 2, 3:
		return g.hereDocument()
	case 4, 5:
		return "<<<" + g.one("", " ") + g.word()
	case 6:
		return "2>&1"
	case 7:
		return ">" + g.one("", " ") + "/dev/null"
	case 8:
		return ">" + g.one("", "|", ">") + " out" + g.one("", `"1"`, "'2'")
	case 9:
		return g.one("&>/dev/null", ">&2", "2>&-", "<>out", "{x}>out", "&>>out", ">\\\n> out", "<<\\\n< b", "2>| out")
	case 10:
		return "< <(" + g.nested() + ")"
	}
	return "> >(" + g.nested() + ")"
}

// hereDocument returns the start of a here-document, and keeps its body for newline.
func (g *generator) hereDocument() string {
	type delimiter struct{ written, read string }
	d := []delimiter{
		{"E", "E"},
		{"E", "E"},
		{"E", "E"},
		{"'E'", "E"},
		{`"E"`, "E"},
		{`\E`, "E"},
		{"E''", "E"},
		{`"E"F`, "EF"},
		{"E'F'", "EF"},
		{`E\F`, "EF"},
		{`'E F'`, "E F"},
		{`"E$x"`, "E$x"},
		{"E$x", "E$x"},
		{"$'E'", "E"},
		{`$"E"`, "E"},
		{"E\\\nF", "EF"},
		{"''", ""},
		{"E.F-1", "E.F-1"},
	}[g.r.IntN(18)]
	dash := g.chance(25)
	var b strings.Builder
	for range g.r.IntN(4) {
		if dash && g.chance(50) {
			b.WriteString("\t")
		}
		line := g.bodyLine(d.read)
		b.WriteString(line + "\n")
	}
	if dash && g.chance(50) {
		b.WriteString("\t")
	}
	b.WriteString(d.read + "\n")
	g.bodies = append(g.bodies, b.String())
	if dash {
		return "<<-" + g.one("", " ") + d.written
	}
	return "<<" + g.one("", " ") + d.written
}

func (g *generator) bodyLine(delimiter string) string {
	if !g.spend() {
		return "text"
	}
	switch g.r.IntN(14) {
	case 0:
		return delimiter + "x"
	case 1:
		return " " + delimiter
	case 2:
		return `text\`
	case 3:
		return `text\\`
	case 4:
		return "it's $(" + g.marker() + ")"
	case 5:
		return `"$(` + g.marker() + `)"`
	case 6:
		return "`" + g.marker() + "`"
	case 7:
		return `\$(` + g.marker() + ")"
	case 8:
		return `\\$(` + g.marker() + ")"
	case 9:
		return "'$(" + g.marker() + ")'"
	case 10:
		return "# " + g.marker()
	case 11:
		return g.marker()
	case 12:
		g.quoted++
		text := g.expansion()
		g.quoted--
		if strings.Contains(text, "\n") {
			return "text"
		}
		return text
	}
	return "$((" + g.arithmetic() + "))"
}

// nested returns a list with the bodies of its here-documents in it.
func (g *generator) nested() string {
	bodies, quoted := g.bodies, g.quoted
	g.bodies, g.quoted = nil, 0
	text := g.list()
	if g.chance(10) {
		text += " " + g.comment() + g.newline()
	}
	if len(g.bodies) > 0 {
		text += g.newline()
	}
	g.bodies, g.quoted = bodies, quoted
	return text
}

// block returns a nested list that ends with a separator.
func (g *generator) block() string {
	text := g.nested()
	if strings.HasSuffix(text, "\n") {
		return text
	}
	if strings.HasSuffix(text, "&") {
		return text + " "
	}
	return text + g.one("; ", "\n", ";\n")
}
