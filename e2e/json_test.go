package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 1 || len(args) > 3 || (neg && len(args) == 3) {
		ts.Fatalf("usage: [!] json KEY [[~|<|>] WANT]")
	}
	doc := document(ts)
	got, ok := at(doc, args[0])
	switch {
	case len(args) == 1:
		if ok == neg {
			ts.Fatalf("%s: there is it: %v; got %s", args[0], ok, got)
		}
	case !ok:
		ts.Fatalf("there is no %s", args[0])
	case len(args) == 2:
		if (got == args[1]) == neg {
			ts.Fatalf("%s = %q; want %q", args[0], got, args[1])
		}
	default:
		if !compare(ts, got, args[1], args[2]) {
			ts.Fatalf("%s = %q; want %s %q", args[0], got, args[1], args[2])
		}
	}
}

func cmdJSONSave(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "json-save NAME KEY")
	got, ok := at(document(ts), args[1])
	if !ok {
		ts.Fatalf("there is no %s", args[1])
	}
	ts.Setenv(args[0], got)
}

// document is the one JSON document of the standard output.
func document(ts *testscript.TestScript) any {
	dec := json.NewDecoder(bytes.NewBufferString(ts.ReadFile("stdout")))
	dec.UseNumber()
	var doc any
	if err := dec.Decode(&doc); err != nil {
		ts.Fatalf("standard output is not JSON: %v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		ts.Fatalf("standard output is more than one JSON document")
	}
	return doc
}

func compare(ts *testscript.TestScript, got, op, want string) bool {
	if op == "~" {
		pattern, err := regexp.Compile(want)
		ts.Check(err)
		return pattern.MatchString(got)
	}
	g, err := strconv.ParseFloat(got, 64)
	ts.Check(err)
	w, err := strconv.ParseFloat(want, 64)
	ts.Check(err)
	switch op {
	case "<":
		return g < w
	case ">":
		return g > w
	}
	ts.Fatalf("unknown comparison %s", op)
	return false
}

// at returns the value of a key as in bytes.stdout or notes.0: text as it is,
// all else as JSON. A key of "" is the whole, of # a list's length.
func at(doc any, key string) (string, bool) {
	for part := range strings.SplitSeq(key, ".") {
		switch v := doc.(type) {
		case map[string]any:
			next, ok := v[part]
			if !ok {
				return "", false
			}
			doc = next
		case []any:
			if part == "#" {
				doc = json.Number(strconv.Itoa(len(v)))
				continue
			}
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(v) {
				return "", false
			}
			doc = v[i]
		default:
			return "", false
		}
	}
	if s, ok := doc.(string); ok {
		return s, true
	}
	b, err := json.Marshal(doc)
	return string(b), err == nil
}
