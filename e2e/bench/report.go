package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"
)

// row is one figure of the page.
type row struct {
	figure   string
	ours     string // our value with its unit
	baseline string // what it is compared with, and the value of that
	ratio    float64
	goal     goal
	unit     string // of the ratio, where it is a difference
}

// goal bounds a row's ratio. A row with the zero goal is reported and not judged.
type goal struct {
	sense sense
	limit float64
	text  string // the goal on the page; empty: made from sense and limit
}

type sense int

const (
	none    sense = iota
	atMost        // the ratio is ours ÷ baseline
	atLeast       // the ratio is ours ÷ baseline, or how many times faster ours is
)

func (g goal) met(ratio float64) bool {
	switch g.sense {
	case none:
		return true
	case atMost:
		return ratio <= g.limit
	case atLeast:
		return ratio >= g.limit
	}
	return true
}

func (g goal) String() string {
	switch {
	case g.sense == none:
		return "–"
	case g.text != "":
		return g.text
	case g.sense == atMost:
		return fmt.Sprintf("≤ %g", g.limit)
	}
	return fmt.Sprintf("≥ %g", g.limit)
}

func (g goal) verdict(ratio float64) string {
	switch {
	case g.sense == none:
		return "–"
	case g.met(ratio):
		return "yes"
	}
	return "**no**"
}

// slower compares two times: the ratio is ours ÷ baseline.
func slower(figure string, ours, base time.Duration, against string, g goal) row {
	return row{figure, millis(ours), against + " " + millis(base), over(ours, base), g, ""}
}

// faster compares two times: the ratio is baseline ÷ ours.
func faster(figure string, ours, base time.Duration, against string, g goal) row {
	return row{figure, millis(ours), against + " " + millis(base), over(base, ours), g, ""}
}

// rate compares two times in which the same amount was done, as rates.
func rate(figure string, amount work, ours, base time.Duration, against string, g goal) row {
	return row{figure, amount.per(ours), against + " " + amount.per(base), over(base, ours), g, ""}
}

// bounded returns the row of a figure that has a bound and no baseline.
func bounded(figure, ours string, value, limit float64, bound string) row {
	return row{figure: figure, ours: ours, baseline: "–", ratio: value, goal: goal{atMost, limit, bound}}
}

// work is an amount of something that takes time.
type work struct {
	amount float64
	unit   string
}

func (w work) per(d time.Duration) string {
	return fmt.Sprintf("%.0f %s/s", w.amount/d.Seconds(), w.unit)
}

func over(a, b time.Duration) float64 {
	if a == 0 || b == 0 {
		return math.NaN() // it was not measured, and meets no goal
	}
	return float64(a) / float64(b)
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

type section struct {
	title string
	rows  []row
}

// page is the whole report.
type page struct {
	machine  [][2]string
	line     string
	date     time.Time
	quick    bool
	sections []section
}

// peers quotes the figures of other tools, which are not measured here.
const peers = `## Others

These figures were published alongside the goals, and measured the same way on such a machine. They
are quoted, not measured in this run. "× local" is the p50 of ` + "`echo hi`" + ` as a multiple of local bash, "ops/s"
are those of 16 workers, where local bash does 2,300; "start" is the start of a new session.

| | × local | ops/s | start |
|---|---:|---:|---:|
| E2B envd | 2.7 | 828 | 155 ms |
| go-judge | 2.8 | 583 | |
| OpenSandbox execd | 2.7 | 643 | 148 ms |
| SWE-ReX | 2.3 | 677 | 683 ms |
| raw exec API | 32 | 30 | 183 ms |
| docker CLI | 56 | 31 | |

Of output, the best of them keeps 0.33 of the raw exec stream's MB/s through a pipeline
that scrubs and stores.
`

func (p *page) write(w io.Writer) {
	fmt.Fprint(w, "# Benchmarks\n\nWritten by `make bench`. Every figure stands next to its baselines, which were measured in the\n"+
		"same run, in turns with it. Times are medians unless the table says otherwise.\n\n")
	fmt.Fprintf(w, "- date: %s\n- command: `%s`\n", p.date.Format(time.DateOnly), p.line)
	for _, kv := range p.machine {
		fmt.Fprintf(w, "- %s: %s\n", kv[0], kv[1])
	}
	if p.quick {
		fmt.Fprint(w, "\n**A quick run with few samples: it shows that measuring works, not how fast anything is.**\n")
	}
	for _, s := range p.sections {
		fmt.Fprintf(w, "\n## %s\n\n| figure | ours | baseline | ratio | goal | met |\n|---|---:|---|---:|---:|---|\n", s.title)
		for _, r := range s.rows {
			fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n",
				r.figure, r.ours, r.baseline, r.ratioText(), r.goal, r.goal.verdict(r.ratio))
		}
	}
	fmt.Fprint(w, "\n", peers)
}

// ratioText returns the ratio as text, or "" if there is none or it repeats the figure.
func (r row) ratioText() string {
	if r.baseline == "–" || math.IsNaN(r.ratio) {
		return "–"
	}
	text := fmt.Sprintf("%.2f", r.ratio)
	return strings.TrimSuffix(text, ".00") + r.unit
}

func (p *page) save(path string) error {
	var b bytes.Buffer
	p.write(&b)
	return os.WriteFile(path, b.Bytes(), 0o644)
}
