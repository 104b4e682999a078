package policycmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/internal/strictjson"
	"github.com/sandboxbash/sandboxbash/policy"
)

func (a *commands) testCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test [flags] FILE",
		Short: "Test scripts against expected verdicts",
		Long: `Check scripts against expected verdicts. FILE is a YAML list or, if its name ends in
.jsonl, one JSON object per line. Each entry has a command and the wanted verdict,
and may have the rule, the tool, and each field that a line of check --jsonl may have:

  - {command: git status, want: allow}
  - {command: git push -f, want: deny, rule: push}
  - {command: git reset --hard, sets: [git-destructive], want: deny}
  - {command: cat f, layer: interceptor, want: deny, rule: read, tool: read}

The rules are those of the contract modes unless --contract names another.
Prints the differences: - is wanted, + is actual. Exit status 1 if there are any, 2 if
the file cannot be used.`,
		Args:    flags.Args(1, 1, "the name of a file"),
		Example: "  sandboxbash policy test cases.yaml\n  sandboxbash policy test --contract agent cases.jsonl",
	}
	flags.Add(cmd, ruleFlags...)
	cmd.RunE = a.cfg.Does(func(_ context.Context, args []string) error {
		a.notes.Print()
		return a.testCases(args[0])
	})
	return cmd
}

// scriptCase is a script and what is wanted of it.
type scriptCase struct {
	scriptRow `yaml:",inline"`

	Want policy.Verdict `json:"want" yaml:"want"`
	Rule *string        `json:"rule" yaml:"rule"` // nil: any
	Tool *string        `json:"tool" yaml:"tool"` // nil: any

	line int
}

func (l *rowRules) UnmarshalYAML(n *yaml.Node) error {
	return l.set(func(v any) error {
		text, err := yaml.Marshal(n) // so that fields must be known below it too
		if err != nil {
			return err
		}
		return strictYAML(text, v)
	})
}

func strictYAML(text []byte, v any) error {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	return dec.Decode(v)
}

// caseJSON is a case that has failed.
type caseJSON struct {
	Line    int               `json:"line"`
	Command string            `json:"command"`
	Want    map[string]string `json:"want"`
	Got     map[string]string `json:"got"`
}

func (a *commands) testCases(file string) error {
	cases, err := readCases(file)
	if err != nil {
		return exit.Misuse("see `sandboxbash policy test --help` for what it holds", "%s: %v", file, err)
	}
	p := NewRows(a.cfg.Policy, a.notes.Add)
	failed := []caseJSON{}
	for _, c := range cases {
		d, err := p.check(c.scriptRow)
		if err != nil {
			return exit.Misuse("", "%s: line %d: %v", file, c.line, err)
		}
		if f := c.compare(d); f != nil {
			failed = append(failed, *f)
		}
	}
	if a.cfg.JSON {
		err = stdio.PrintJSON(a.streams.Stdout, struct {
			Cases  int        `json:"cases"`
			Failed []caseJSON `json:"failed"`
		}{len(cases), failed})
	} else {
		err = a.printCases(file, len(cases), failed)
	}
	if err == nil && len(failed) > 0 {
		err = exit.StatusError(exit.Findings)
	}
	return err
}

// compare returns what differs, nil if nothing does.
func (c scriptCase) compare(d policy.Decision) *caseJSON {
	f := caseJSON{Line: c.line, Command: *c.Command, Want: map[string]string{}, Got: map[string]string{}}
	differ := func(what, want, got string) {
		if want != got {
			f.Want[what], f.Got[what] = want, got
		}
	}
	differ("verdict", string(c.Want), string(d.Verdict))
	if c.Rule != nil {
		differ("rule", *c.Rule, d.Rule)
	}
	if c.Tool != nil {
		differ("tool", *c.Tool, d.Tool)
	}
	if len(f.Want) == 0 {
		return nil
	}
	if _, said := f.Got["rule"]; !said && d.Rule != "" {
		f.Got["rule"] = d.Rule // helps to see why the verdict is another
	}
	return &f
}

func (a *commands) printCases(file string, total int, failed []caseJSON) error {
	var b strings.Builder
	for _, f := range failed {
		fmt.Fprintf(&b, "%s:%d: %s\n", file, f.Line, a.cell(clipped(f.Command)))
		for _, what := range []string{"verdict", "rule", "tool"} {
			if want, ok := f.Want[what]; ok {
				fmt.Fprintf(&b, "  - %s: %s\n", what, a.cell(want))
			}
			if got, ok := f.Got[what]; ok {
				fmt.Fprintf(&b, "  + %s: %s\n", what, a.cell(got))
			}
		}
	}
	if len(failed) > 0 {
		fmt.Fprintf(&b, "%d of %d cases failed\n", len(failed), total)
	} else {
		fmt.Fprintf(&b, "all %d cases are as wanted\n", total)
	}
	_, err := io.WriteString(a.streams.Stdout, b.String())
	return err
}

// maxCases bounds a file of cases.
const maxCases = 64 << 20 // bytes

func readCases(file string) ([]scriptCase, error) {
	f, err := os.Open(file)
	if err != nil {
		if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
			err = pathErr.Err
		}
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxCases+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxCases:
		return nil, fmt.Errorf("it is longer than %d bytes", maxCases)
	}
	var cases []scriptCase
	if filepath.Ext(file) == ".jsonl" {
		cases, err = parseLines(text)
	} else {
		cases, err = parseYAML(text)
	}
	if err != nil {
		return nil, err
	}
	if len(cases) == 0 {
		return nil, errors.New("it has no cases")
	}
	for _, c := range cases {
		switch {
		case c.Command == nil:
			return nil, fmt.Errorf("line %d: there is no command", c.line)
		case c.Want != policy.Allow && c.Want != policy.Deny && c.Want != policy.Opaque && c.Want != policy.TooComplex:
			return nil, fmt.Errorf("line %d: want is %q: it can be %s, %s, %s or %s", c.line, c.Want, policy.Allow, policy.Deny, policy.Opaque, policy.TooComplex)
		}
	}
	return cases, nil
}

func parseLines(text []byte) ([]scriptCase, error) {
	var cases []scriptCase
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		c := scriptCase{line: n}
		if err := strictjson.Decode(line, &c); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		cases = append(cases, c)
	}
	return cases, nil
}

func parseYAML(text []byte) ([]scriptCase, error) {
	var cases []scriptCase
	err := strictYAML(text, &cases)
	if e, ok := errors.AsType[*yaml.TypeError](err); ok {
		err = errors.New(strings.ReplaceAll(e.Errors[0], fmt.Sprintf(" in type %T", scriptCase{}), "")) // a person has no types
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("it is not a list of cases: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	var nodes []yaml.Node
	if err := yaml.Unmarshal(text, &nodes); err != nil {
		return nil, err
	}
	for i := range cases {
		cases[i].line = nodes[i].Line
	}
	return cases, nil
}
