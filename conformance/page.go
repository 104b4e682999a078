package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Report is the results of all targets.
type Report struct {
	Begin   time.Time
	Groups  []Group
	Columns []Column
}

// Column is the results of one target.
type Column struct {
	Target   *Target           `json:"target"`
	Versions []string          `json:"versions"`
	Results  map[string]Result `json:"results"`
}

// sum counts the outcomes.
func (c Column) sum() string {
	n := make(map[Outcome]int)
	for _, r := range c.Results {
		n[r.Outcome]++
	}
	return fmt.Sprintf("%d pass, %d fail, %d not offered, %d cannot be asked, %d not run", n[Pass], n[Fail], n[NotOffered], n[CannotAsk], n[NotRun])
}

// wrong returns the scenarios that have failed and are not in Target.Known. If strict, it returns all that
// have not passed, except known ones and those left out because they are slow.
func (c Column) wrong(strict bool) []string {
	var ids []string
	for _, id := range sortedKeys(c.Results) {
		_, known := c.Target.Known[id]
		r := c.Results[id]
		left := r.Outcome == Pass || r.Outcome == NotRun && r.Detail == leftOut
		if !known && (r.Outcome == Fail || strict && !left) {
			ids = append(ids, id)
		}
	}
	return ids
}

// asked reports whether any scenario was run on the target.
func (c Column) asked() bool {
	for _, r := range c.Results {
		if r.Outcome != NotRun {
			return true
		}
	}
	return false
}

// versions returns the first lines that the commands Target.Versions print.
func (t *Target) versions(ctx context.Context) []string {
	var lines []string
	for _, template := range t.Versions {
		argv, err := t.expand(template, nil, nil)
		if err != nil {
			continue
		}
		a := do(ctx, call{argv: argv, environ: t.Environ, bound: housekeeping})
		if line, _, _ := strings.Cut(strings.TrimSpace(string(a.stdout)), "\n"); a.problem == nil && line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// cell returns an outcome for a table.
func (c Column) cell(id string) string {
	switch c.Results[id].Outcome {
	case Pass:
		return "yes"
	case Fail:
		return "**no**"
	case NotOffered:
		return "–"
	case CannotAsk:
		return "?"
	case NotRun:
	}
	return "not run"
}

// Page returns the report in Markdown.
func (r Report) Page(ctx context.Context) string {
	var b strings.Builder
	b.WriteString("# Conformance\n\nWritten by `make conformance`. One program tests what a bash tool should do, on this tool and on others:\n" +
		"[how to test another tool](../conformance/README.md).\n\n")
	fmt.Fprintf(&b, "- date: %s\n- machine: %s\n\n", r.Begin.UTC().Format(time.DateOnly), machine(ctx))
	b.WriteString("| target | what it is | versions | result |\n|---|---|---|---|\n")
	for _, c := range r.Columns {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", c.Target.Title, oneLine(c.Target.About), oneLine(strings.Join(c.Versions, "; ")), c.sum())
	}
	b.WriteString("\nA scenario passes or fails as a whole. **no**: the tool offers the feature, and it fails. `–`: the tool does not\n" +
		"offer it, which does not count as a failure. `?`: it cannot be tested here.\n")
	for _, g := range r.Groups {
		r.table(&b, g)
	}
	b.WriteString("\n## Observations\n")
	for _, c := range r.Columns {
		r.seen(&b, c)
	}
	return b.String()
}

func (r Report) table(b *strings.Builder, g Group) {
	fmt.Fprintf(b, "\n## %s\n\n|  | a good tool: |", g.Title)
	for _, c := range r.Columns {
		fmt.Fprintf(b, " %s |", c.Target.Title)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(r.Columns)) + "\n")
	for _, s := range g.Scenarios {
		fmt.Fprintf(b, "| %s | %s |", s.ID, oneLine(s.Title))
		for _, c := range r.Columns {
			fmt.Fprintf(b, " %s |", c.cell(s.ID))
		}
		b.WriteString("\n")
	}
	if len(g.NotAsked) > 0 {
		b.WriteString("\nNot asked of any:\n\n")
	}
	for _, n := range g.NotAsked {
		fmt.Fprintf(b, "- %s, %s: %s.\n", n.ID, n.Title, n.Reason)
	}
}

// seen lists the reasons of all outcomes but passes, with those of the same text together.
func (r Report) seen(b *strings.Builder, c Column) {
	fmt.Fprintf(b, "\n### %s\n\n", c.Target.Title)
	details := make(map[string][]string) // ids by what is said of them
	var order []string
	add := func(text, id string) {
		if details[text] == nil {
			order = append(order, text)
		}
		details[text] = append(details[text], id)
	}
	for _, o := range []Outcome{Fail, NotOffered, CannotAsk, NotRun} {
		for _, g := range r.Groups {
			for _, s := range g.Scenarios {
				if res := c.Results[s.ID]; res.Outcome == o {
					add(c.told(res), s.ID)
				}
			}
		}
	}
	if len(order) == 0 {
		b.WriteString("All scenarios pass.\n")
	}
	for _, text := range order {
		fmt.Fprintf(b, "- %s %s\n", strings.Join(details[text], ", "), text)
	}
}

func (c Column) told(r Result) string {
	text := string(r.Outcome) + ": " + code(r.Detail)
	if r.Outcome != Fail {
		text = string(r.Outcome) + ": " + oneLine(r.Detail)
	}
	if seen, ok := strings.CutPrefix(r.Detail, c.Target.Unclaimed[r.ID]+askedAnyway); ok && r.Outcome == NotOffered {
		text = string(r.Outcome) + ": " + c.Target.Unclaimed[r.ID] + askedAnyway + code(seen)
	}
	if why := c.Target.Known[r.ID]; why != "" {
		text += " – " + why
	}
	return text
}

// code quotes output of a tool so that Markdown does not change it.
func code(s string) string {
	return "`" + strings.ReplaceAll(strings.TrimSpace(oneLine(s)), "`", "'") + "`"
}

func oneLine(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}

// machine describes in one line where the scenarios were run.
func machine(ctx context.Context) string {
	parts := []string{fmt.Sprintf("%d CPUs", runtime.NumCPU()), runtime.GOOS + "/" + runtime.GOARCH}
	if out, err := exec.CommandContext(ctx, "uname", "-r").Output(); err == nil {
		parts = append(parts, "kernel "+strings.TrimSpace(string(out)))
	}
	if text, err := os.ReadFile("/etc/os-release"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
				parts = append(parts, strings.Trim(strings.TrimSpace(name), `"`))
			}
		}
	}
	return strings.Join(slices.Compact(parts), ", ")
}
