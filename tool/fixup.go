package tool

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/syntax"
)

// StripHeadTail removes a last `| head …` or `| tail …` from the commands of a list
// where it only shortens the output, and a `2>&1` that then has no effect. It returns
// what it removed. It leaves alone what it does not understand, and every command of
// several lines.
//
// It is an option that is off by default: without its head or tail a command may run
// longer, and may exit with another code.
func StripHeadTail(command string) (rest string, stripped []string) {
	if strings.Contains(command, "\n") || len(command) > MaxFixup {
		return command, nil
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(command), "")
	if err != nil {
		return command, nil
	}
	var cuts []cut
	for _, stmt := range file.Stmts {
		cuts = append(cuts, listCuts(stmt)...)
	}
	rest = command
	for _, c := range slices.Backward(cuts) {
		before := strings.TrimRight(rest[:c.start], blanks)
		rest = before + rest[c.end:]
	}
	for _, c := range cuts {
		stripped = append(stripped, command[c.start:c.end])
	}
	if len(cuts) == 0 {
		return command, nil
	}
	// In each command the part that was removed last comes first.
	return strings.Trim(rest, blanks), order(cuts, stripped)
}

// MaxFixup bounds what is parsed; a longer command is left alone.
const MaxFixup = 64 << 10 // bytes

// cut is a part of the text to be removed. The cuts of one command of the list have
// the same number.
type cut struct{ start, end, command int }

// order puts the cuts of each command in the order in which they were found: the
// pipe, and then the redirection that it left without use.
func order(cuts []cut, texts []string) []string {
	var out []string
	for i := 0; i < len(cuts); {
		n := i + 1
		for n < len(cuts) && cuts[n].command == cuts[i].command {
			n++
		}
		for k := n - 1; k >= i; k-- {
			out = append(out, texts[k])
		}
		i = n
	}
	return out
}

// listCuts finds the cuts in each command of a list, in order.
func listCuts(stmt *syntax.Stmt) []cut {
	if list, ok := stmt.Cmd.(*syntax.BinaryCmd); ok && (list.Op == syntax.AndStmt || list.Op == syntax.OrStmt) {
		return append(listCuts(list.X), listCuts(list.Y)...)
	}
	if stmt.Negated || stmt.Coprocess {
		return nil
	}
	number := int(stmt.Pos().Offset())
	var cuts []cut
	left := stmt
	if pipe, ok := stmt.Cmd.(*syntax.BinaryCmd); ok {
		if !simplePipeline(pipe.X) || !onlyLimits(pipe.Y) {
			return nil
		}
		cuts = append(cuts, cut{int(pipe.OpPos.Offset()), int(pipe.Y.End().Offset()), number})
		left = pipe.X
	}
	if r := lastMerge(left); r != nil {
		cuts = append([]cut{{int(r.Pos().Offset()), int(r.End().Offset()), number}}, cuts...)
	}
	return cuts
}

// simplePipeline reports whether a statement consists of simple commands only.
func simplePipeline(stmt *syntax.Stmt) bool {
	switch c := stmt.Cmd.(type) {
	case *syntax.CallExpr:
		return len(c.Args) > 0
	case *syntax.BinaryCmd:
		return (c.Op == syntax.Pipe || c.Op == syntax.PipeAll) && simplePipeline(c.X) && simplePipeline(c.Y)
	}
	return false
}

// limits are the options with which head and tail read standard input once and
// show its start or end.
var limits = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:-[0-9]+|-[nc]=?[0-9]+[bkKMG]?|--(?:lines|bytes)=[0-9]+[bkKMG]?|-[qv]|--(?:quiet|silent|verbose))$`)
})

// onlyLimits reports whether a statement is head or tail without a file.
func onlyLimits(stmt *syntax.Stmt) bool {
	call, ok := stmt.Cmd.(*syntax.CallExpr)
	if !ok || len(stmt.Redirs) > 0 || stmt.Negated || len(call.Assigns) > 0 || len(call.Args) == 0 {
		return false
	}
	var words []string
	for _, w := range call.Args {
		words = append(words, w.Lit()) // "" if it is more than plain text
	}
	if words[0] != "head" && words[0] != "tail" {
		return false
	}
	for i := 1; i < len(words); i++ {
		if slices.Contains([]string{"-n", "-c", "--lines", "--bytes"}, words[i]) && i+1 < len(words) {
			i++
			if !plainNumber().MatchString(words[i]) {
				return false
			}
			continue
		}
		if !limits().MatchString(words[i]) {
			return false
		}
	}
	return true
}

var plainNumber = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9]+[bkKMG]?$`)
})

// lastMerge is the 2>&1 that a simple command ends with, if it is its only
// redirection.
func lastMerge(stmt *syntax.Stmt) *syntax.Redirect {
	call, ok := stmt.Cmd.(*syntax.CallExpr)
	if !ok || len(stmt.Redirs) != 1 || len(call.Args) == 0 {
		return nil
	}
	r := stmt.Redirs[0]
	if r.Op != syntax.DplOut || r.N == nil || r.N.Value != "2" || r.Word.Lit() != "1" || r.Pos().Offset() < call.End().Offset() {
		return nil
	}
	return r
}
