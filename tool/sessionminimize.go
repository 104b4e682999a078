package tool

import (
	"errors"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/sandboxbash/sandboxbash/sink"
)

// minimizing are the filters of a minimizer, in their order.
var minimizing = []sink.Filter{sink.PassingTests, sink.ProgressBars, sink.RepeatedLines}

// filters are those that make the output of a command shorter: of one simple
// command only, and of no program that the settings except.
func (m Minimizer) filters(command string) []sink.Filter {
	if !m.Enabled {
		return nil
	}
	program, ok := simpleCommand(command)
	if !ok || len(m.Only) > 0 && !slices.Contains(m.Only, program) || slices.Contains(m.Except, program) {
		return nil
	}
	all := make([]sink.Filter, len(minimizing))
	for i, f := range minimizing {
		all[i] = func(text string) string {
			if int64(len(text)) > m.MaxBytes {
				return text
			}
			return f(text)
		}
	}
	return all
}

// check refuses settings that nothing here could follow.
func (m Minimizer) check() error {
	if m.Enabled && m.SettingsPath != "" {
		return errors.New("shellMinimizer.settingsPath: filters are built in, and no file of them is read: leave it out")
	}
	return nil
}

// simpleCommand is the name of the program that a command runs, if it does
// nothing else.
func simpleCommand(command string) (program string, ok bool) {
	if len(command) > maxFixup {
		return "", false
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(command), "")
	if err != nil || len(file.Stmts) != 1 || file.Stmts[0].Background || file.Stmts[0].Negated || file.Stmts[0].Coprocess {
		return "", false
	}
	call, ok := file.Stmts[0].Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 {
		return "", false
	}
	name := call.Args[0].Lit()
	return name[strings.LastIndexByte(name, '/')+1:], name != ""
}
