// Package corpus runs the rows of the contracts' corpus as tests. Rows are the lines
// of JSON files under testdata of packages tool, sink and policy.
package corpus

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Row is what every row of a corpus has.
type Row struct {
	ID       string `json:"id"`
	Tier     string `json:"tier"`
	Contract string `json:"contract"` // "A", "B" or "C"; "" is A
	Kind     string `json:"kind"`
	Name     string `json:"name"`

	Raw json.RawMessage `json:"-"`
}

// Into decodes the whole row into v, and fails the test where it cannot.
func (r Row) Into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal(r.Raw, v); err != nil {
		t.Fatalf("%v in %s", err, r.Raw)
	}
}

// Letter is the contract's letter in the specification.
func (r Row) Letter() string {
	if r.Contract == "" {
		return "A"
	}
	return r.Contract
}

// File is one file of rows, and how much of it runs.
type File struct {
	// Path is relative to the repository's root. The test's package is one level
	// below it.
	Path string
	// Elsewhere says why rows are not executed by this test, by their ids.
	Elsewhere map[string]string
	// Leave reports further rows that are not executed; nil leaves those of tier
	// "version", which say how versions of the original differ.
	Leave func(Row) bool
	// Ran is how many rows are executed: a corpus that shrinks fails the test.
	Ran int
}

// Run executes each row as a parallel subtest of its id.
func (f File) Run(t *testing.T, check func(*testing.T, Row)) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(f.Path)))
	if err != nil {
		t.Fatal(err)
	}
	if f.Leave == nil {
		f.Leave = func(r Row) bool { return r.Tier == "version" }
	}
	ran := 0
	var known []string
	for line := range bytes.Lines(data) {
		row := Row{Raw: line}
		row.Into(t, &row)
		known = append(known, row.ID)
		if f.Leave(row) || f.Elsewhere[row.ID] != "" {
			continue
		}
		ran++
		t.Run(row.ID, func(t *testing.T) {
			t.Parallel()
			check(t, row)
		})
	}
	for id := range f.Elsewhere {
		if !slices.Contains(known, id) {
			t.Errorf("%s: there is no row %s", f.Path, id)
		}
	}
	if ran != f.Ran {
		t.Errorf("%s: %d rows ran, and %d did not; want %d to run", f.Path, ran, len(known)-ran, f.Ran)
	}
}

// Arguments is the JSON of a call's fields.
func Arguments(t *testing.T, fields map[string]any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// Subset reports whether everything in want is in got, as JSON.
func Subset(t *testing.T, got any, want map[string]any) bool {
	t.Helper()
	raw, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var have map[string]any
	if err := json.Unmarshal(raw, &have); err != nil {
		t.Fatal(err)
	}
	return contains(have, want)
}

func contains(have, want any) bool {
	object, ok := want.(map[string]any)
	if !ok {
		a, _ := json.Marshal(have)
		b, _ := json.Marshal(want)
		return bytes.Equal(a, b)
	}
	in, ok := have.(map[string]any)
	for k, v := range object {
		ok = ok && contains(in[k], v)
	}
	return ok
}
