package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// decode replaces the JSON that a tool has printed by the values in it.
func (j JSON) decode(a answer) answer {
	var v any
	if err := json.Unmarshal(a.stdout, &v); err != nil {
		a.problem = fmt.Errorf("the tool has not printed one JSON value: %w: %s", err, a.seen())
		return a
	}
	a.reason = text(v, j.Reason)
	a.stdout, a.stderr = []byte(text(v, j.Stdout)), append(a.stderr, text(v, j.Stderr)...)
	a.size = int64(len(a.stdout))
	if code, err := strconv.Atoi(text(v, j.Code)); err == nil {
		a.code = code
	}
	return a
}

// text returns the value at a path, "" if there is none.
func text(v any, path string) string {
	for key := range strings.SplitSeq(strings.TrimPrefix(path, "."), ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return ""
		}
		v = m[key]
	}
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}
