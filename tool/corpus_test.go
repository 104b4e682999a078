package tool

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// corpusRow is what every row of a corpus has.
type corpusRow struct {
	ID       string `json:"id"`
	Tier     string `json:"tier"`
	Contract string `json:"contract"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	raw      json.RawMessage
}

// into reads the rest of a row.
func (r corpusRow) into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal(r.raw, v); err != nil {
		t.Fatalf("%v in %s", err, r.raw)
	}
}

// corpus is one file of rows and how much of it runs here.
type corpus struct {
	file string
	// elsewhere says of rows why they are not executed here, by their ids.
	elsewhere map[string]string
	// leave tells of further rows that are not; nil are those of tier version,
	// which say how versions of the original differ.
	leave func(corpusRow) bool
	ran   int // how many rows are executed
}

func ofVersions(r corpusRow) bool { return r.Tier == "version" }

// run executes the rows.
func (c corpus) run(t *testing.T, check func(*testing.T, corpusRow)) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(c.file)))
	if err != nil {
		t.Fatal(err)
	}
	if c.leave == nil {
		c.leave = ofVersions
	}
	ran := 0
	var known []string
	for line := range bytes.Lines(data) {
		row := corpusRow{raw: line}
		row.into(t, &row)
		known = append(known, row.ID)
		if c.leave(row) || c.elsewhere[row.ID] != "" {
			continue
		}
		ran++
		t.Run(row.ID, func(t *testing.T) {
			t.Parallel()
			check(t, row)
		})
	}
	for id := range c.elsewhere {
		if !slices.Contains(known, id) {
			t.Errorf("%s: there is no row %s", c.file, id)
		}
	}
	if ran != c.ran {
		t.Errorf("%s: %d rows ran, and %d did not; want %d to run", c.file, ran, len(known)-ran, c.ran)
	}
}

// theContract is the contract of a corpus's letter; A where there is none.
func theContract(t *testing.T, letter string) Contract {
	t.Helper()
	if letter == "" {
		letter = "A"
	}
	c, err := Parse(letter)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// arguments is the JSON of a call.
func arguments(t *testing.T, fields map[string]any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func defaultHost() Host { return Host{Settings: DefaultSettings()} }

// errorOf is the text of a plan's error, "" if it has none.
func errorOf(p Plan) string {
	if p.Err == nil {
		return ""
	}
	return p.Err.Text
}

// subset tells whether all that want has is in got, as JSON.
func subset(t *testing.T, got any, want map[string]any) bool {
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
