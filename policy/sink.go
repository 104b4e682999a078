package policy

import (
	"path"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// withoutSinks returns a segment without the redirections that write no file: those to a
// descriptor, and to a device that keeps nothing.
func (s segment) withoutSinks() segment {
	if !strings.Contains(s.text, ">") {
		return s
	}
	var b strings.Builder
	end := 0
	visit(parse(s.text).stmts, func(n syntax.Node, _ int) bool {
		r, ok := n.(*syntax.Redirect)
		if !ok || !writesNoFile(r) {
			return true
		}
		start, after := int(r.Pos().Offset()), int(r.Word.End().Offset())
		if start >= end && after <= len(s.text) {
			b.WriteString(s.text[end:start])
			end = after
		}
		return true
	})
	b.WriteString(s.text[end:])
	s.text = strings.TrimFunc(b.String(), isSpace)
	return s
}

// writesNoFile reports whether a redirection of output neither makes nor changes a file.
func writesNoFile(r *syntax.Redirect) bool {
	target := literalText(r.Word)
	switch r.Op {
	case syntax.DplOut:
		if strings.Trim(strings.TrimSuffix(target, "-"), "0123456789") == "" {
			return true
		}
	case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll:
	default:
		return false
	}
	target = path.Clean(target)
	if n, ok := strings.CutPrefix(strings.Replace(target, "/proc/self/", "/dev/", 1), "/dev/fd/"); ok {
		return n != "" && strings.Trim(n, "0123456789") == ""
	}
	return target == "/dev/null" || target == "/dev/stdout" || target == "/dev/stderr" || target == "/dev/tty"
}
