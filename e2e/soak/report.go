package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

// section is the result of a part.
type section struct {
	name   string // the part's
	title  string
	text   string // what was done, and how it was judged
	rows   []row
	tables []table
	date   time.Time
	took   time.Duration
	load   string   // of the machine at its end
	failed []string // what did not hold

	incomplete bool // it failed for another reason
}

// row is one figure. Want says what it must be. A row without it is reported and not judged.
type row struct{ what, got, want string }

// table is a table of other results than counts.
type table struct {
	head []string
	rows [][]string
}

// fail records a failed check.
func (s *section) fail(format string, args ...any) {
	s.failed = append(s.failed, fmt.Sprintf(format, args...))
}

// count adds a figure that must equal want.
func (s *section) count(what string, got, want int) {
	s.rows = append(s.rows, row{what, fmt.Sprint(got), fmt.Sprint(want)})
	if got != want {
		s.fail("%s: %d; want %d", what, got, want)
	}
}

// limit adds a figure that must not be above a bound.
func (s *section) limit(what string, got, most float64) {
	s.rows = append(s.rows, row{what, fmt.Sprintf("%.4g", got), fmt.Sprintf("≤ %.4g", most)})
	if !(got <= most) {
		s.fail("%s: %.4g; want at most %.4g", what, got, most)
	}
}

// tell adds a figure that is not judged.
func (s *section) tell(what, format string, args ...any) {
	s.rows = append(s.rows, row{what, fmt.Sprintf(format, args...), ""})
}

// err returns the failed checks as an error.
func (s *section) err() error {
	const most = 20
	var errs []error
	for i, f := range s.failed {
		if i == most {
			errs = append(errs, fmt.Errorf("and %d more", len(s.failed)-most))
			break
		}
		errs = append(errs, errors.New(f))
	}
	return errors.Join(errs...)
}

func (s *section) write(w io.Writer) {
	fmt.Fprintf(w, "## %s\n\n%s\n", s.title, strings.TrimSpace(s.text))
	if len(s.rows) > 0 {
		fmt.Fprint(w, "\n| | counted | wanted |\n|---|---:|---:|\n")
		for _, r := range s.rows {
			fmt.Fprintf(w, "| %s | %s | %s |\n", r.what, r.got, r.want)
		}
	}
	for _, t := range s.tables {
		fmt.Fprintf(w, "\n| %s |\n|%s\n", strings.Join(t.head, " | "), strings.Repeat("---|", len(t.head)))
		for _, r := range t.rows {
			fmt.Fprintf(w, "| %s |\n", strings.Join(r, " | "))
		}
	}
	for _, f := range s.failed {
		fmt.Fprintf(w, "\n**Did not hold:** %s\n", f)
	}
}

// report is the measured part of the page.
type report struct {
	seed    uint64
	line    string
	machine string
	quick   bool
}

// Each part is between lines of its own, so that a run of some parts leaves the others as
// they are.
const (
	beginLine = "<!-- measured: %s -->"
	endLine   = "<!-- /measured: %s -->"
)

func (r *report) text(s *section) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, beginLine+"\n", s.name)
	s.write(&b)
	if s.incomplete {
		fmt.Fprint(&b, "\n**It did not come to its end.**\n")
	}
	fmt.Fprintf(&b, "\nMeasured on %s in %s, seed %d: `%s`. Machine: %s; load average at the end: %s.\n",
		s.date.Format(time.DateOnly), s.took.Round(time.Second), r.seed, r.line, r.machine, s.load)
	if r.quick {
		fmt.Fprint(&b, "\n**A quick run: it shows that this works, and no more.**\n")
	}
	fmt.Fprintf(&b, endLine+"\n", s.name)
	return b.String()
}

// top is the start of a new page.
const top = "# Reliability\n\nWhat was counted by `make soak`, and where. Whatever stands between two lines `measured` is rewritten by it.\n"

// save writes a section into the page, over its previous version or at the end.
func (r *report) save(path string, s *section) error {
	old, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		old, err = []byte(top), nil
	}
	if err != nil {
		return err
	}
	page, err := replace(string(old), s.name, r.text(s))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(page), 0o644)
}

// replace replaces the text between the lines of the named part.
func replace(page, name, text string) (string, error) {
	begin, end := fmt.Sprintf(beginLine+"\n", name), fmt.Sprintf(endLine+"\n", name)
	before, rest, found := strings.Cut(page, begin)
	if !found {
		return strings.TrimRight(page, "\n") + "\n\n" + text, nil
	}
	_, after, found := strings.Cut(rest, end)
	if !found {
		return "", fmt.Errorf("it has %q without %q", begin, end)
	}
	return before + text + after, nil
}
