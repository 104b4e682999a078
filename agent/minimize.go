package agent

import (
	"errors"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/sandboxbash/sandboxbash/sink"
	"github.com/sandboxbash/sandboxbash/tool"
)

// filters returns the filters that shorten the output of a command. There are none for
// anything but a single simple command, and for programs that the settings except.
func filters(m tool.Minimizer, command string) []sink.Filter {
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

// checkMinimizer refuses settings that this program does not support.
func checkMinimizer(m tool.Minimizer) error {
	if m.Enabled && m.SettingsPath != "" {
		return errors.New("shellMinimizer.settingsPath: filters are built in, and no file of them is read: leave it out")
	}
	return nil
}

// simpleCommand returns the name of the program that a command runs; ok is false if the
// command does anything else.
func simpleCommand(command string) (program string, ok bool) {
	if len(command) > tool.MaxFixup {
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
