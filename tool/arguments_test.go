package tool

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/corpus"
)

// What a strict schema refuses, in the words of each contract.
func TestArguments(t *testing.T) {
	t.Parallel()
	deep := `{"command":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`
	for _, test := range []struct {
		name, arguments, agent, plain, modes string
	}{
		{"nothing", ``, "Invalid bash arguments: command is required", "Invalid input: command is required", "Invalid input: missing field `command`"},
		{"no object", `[1]`, "Invalid bash arguments: expected an object, got an array", "Invalid input: expected an object, got an array", "Invalid input: invalid type: sequence, expected struct BashInput"},
		{"null", `null`, "Invalid bash arguments: expected an object, got null", "Invalid input: expected an object, got null", "Invalid input: invalid type: null, expected struct BashInput"},
		{"no JSON", `{"command":`, "Invalid bash arguments: they are not JSON", "Invalid input: they are not JSON", "Invalid input: they are not JSON"},
		{"two values", `{"command":"a"} {}`, "Invalid bash arguments: they are not JSON", "Invalid input: they are not JSON", "Invalid input: they are not JSON"},
		{"NaN", `{"command":NaN}`, "Invalid bash arguments: they are not JSON", "Invalid input: they are not JSON", "Invalid input: they are not JSON"},
		{"too deep", deep, "Invalid bash arguments: they are not JSON", "Invalid input: they are not JSON", "Invalid input: they are not JSON"},
		{"no UTF-8", "{\"command\":\"\xff\"}", "Invalid bash arguments: they are not UTF-8", "Invalid input: they are not UTF-8", "Invalid input: they are not UTF-8"},
		{"half a character", `{"command":"\ud83d"}`, "Invalid bash arguments: they have half of a surrogate pair", "Invalid input: they have half of a surrogate pair", "Invalid input: they have half of a surrogate pair"},
		{"twice", `{"command":"a","command":"b"}`, `Invalid bash arguments: "command" is given twice`, `Invalid input: "command" is given twice`, "Invalid input: duplicate field `command`"},
		{"null command", `{"command":null}`, "Invalid bash arguments: command: expected a string, got null", "Invalid input: command: expected a string, got null", "Invalid input: invalid type: null, expected a string"},
		{"number", `{"command":5}`, "Invalid bash arguments: command: expected a string, got the number 5", "Invalid input: command: expected a string, got the number 5", "Invalid input: invalid type: integer `5`, expected a string"},
		{"boolean", `{"command":true}`, "Invalid bash arguments: command: expected a string, got a boolean", "Invalid input: command: expected a string, got a boolean", "Invalid input: invalid type: boolean `true`, expected a string"},
		{"object", `{"command":{}}`, "Invalid bash arguments: command: expected a string, got an object", "Invalid input: command: expected a string, got an object", "Invalid input: invalid type: map, expected a string"},
		{"unknown", `{"command":"a","Command":"b"}`, `Invalid bash arguments: there is no field "Command"`, "", "Invalid input: unknown field `Command`, expected `command` or `mode`"},
		{"NUL", `{"command":"a\u0000b"}`, "Invalid bash arguments: command: it has a NUL character at offset 1", "Invalid input: command has a NUL character at offset 1", "Failed to spawn process: nul byte found in provided data"},
		{"empty", `{"command":""}`, "", "Command cannot be empty", "Command cannot be empty"},
		{"pair", `{"command":"\ud83d\ude00 \\ud83d \u00e9"}`, "", "", ""},
		{"mode", `{"command":"a","mode":"fast"}`, `Invalid bash arguments: there is no field "mode"`, "", "Invalid input: unknown variant `fast`, expected one of `default`, `slow`, `background`"},
		{"mode's case", `{"command":"a","mode":"Slow"}`, `Invalid bash arguments: there is no field "mode"`, "", "Invalid input: unknown variant `Slow`, expected one of `default`, `slow`, `background`"},
		{"null mode", `{"command":"a","mode":null}`, `Invalid bash arguments: there is no field "mode"`, "", "Invalid input: invalid type: null, expected string or map"},
		{"number mode", `{"command":"a","mode":1.5}`, `Invalid bash arguments: there is no field "mode"`, "", "Invalid input: invalid type: floating point `1.5`, expected string or map"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for letter, want := range map[string]string{"A": test.agent, "B": test.plain, "C": test.modes} {
				p := contractOf(t, letter).Plan(json.RawMessage(test.arguments), defaultHost())
				if got := errorOf(p); got != want {
					t.Errorf("contract %s: error %q; want %q", letter, got, want)
				}
			}
		})
	}
}

func TestAgentArguments(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ arguments, want string }{
		{`"timeout":null`, "Invalid bash arguments: timeout: expected a number, got null"},
		{`"timeout":"5"`, "Invalid bash arguments: timeout: expected a number, got a string"},
		{`"timeout":1e400`, "Invalid bash arguments: timeout: expected a number that a double can hold, got the number 1e400"},
		{`"timeout":1e300`, ""},
		{`"timeout":-0`, ""},
		{`"cwd":null`, "Invalid bash arguments: cwd: expected a string, got null"},
		{`"cwd":""`, ""},
		{`"cwd":"a\u0000"`, "Invalid bash arguments: cwd: it has a NUL character at offset 1"},
		{`"pty":"yes"`, "Invalid bash arguments: pty: expected a boolean, got a string"},
		{`"async":1`, "Invalid bash arguments: async: expected a boolean, got the number 1"},
		{`"async":false`, ""},
		{`"env":null`, "Invalid bash arguments: env: expected an object, got null"},
		{`"env":[]`, "Invalid bash arguments: env: expected an object, got an array"},
		{`"env":{}`, ""},
		{`"env":{"A":null}`, "Invalid bash arguments: env.A: expected a string, got null"},
		{`"env":{"A":1}`, "Invalid bash arguments: env.A: expected a string, got the number 1"},
		{`"env":{"A":"x","A":"y"}`, `Invalid bash arguments: "env.A" is given twice`},
		{`"env":{"A":"x\u0000"}`, "Invalid bash arguments: A: it has a NUL character at offset 1"},
		{`"env":{"OK":"x","A\n":"y","1":"z"}`, "Invalid bash env name: A\n"},
		{`"head":-1`, "Invalid bash arguments: head: expected a whole number from 0 on, got the number -1"},
		{`"head":2.5`, "Invalid bash arguments: head: expected a whole number from 0 on, got the number 2.5"},
		{`"tail":1e30,"head":2.0`, ""},
	} {
		p := agentContract{}.Plan(json.RawMessage(`{"command":"true",`+test.arguments+`}`), defaultHost())
		if got := errorOf(p); got != test.want {
			t.Errorf("%s: error %q; want %q", test.arguments, got, test.want)
		}
	}
}

// The schema says what the parser takes.
func TestSchemas(t *testing.T) {
	t.Parallel()
	for _, name := range []Name{Agent, Plain, Modes} {
		c := contractOf(t, string(name))
		for _, async := range []bool{false, true} {
			d := c.Definition(Host{Settings: Settings{Async: async}, Dir: "/workspace"})
			var schema struct {
				Properties map[string]any
				Required   []string
				Additional *bool `json:"additionalProperties"`
			}
			if err := json.Unmarshal(d.InputSchema, &schema); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if schema.Additional == nil || *schema.Additional || len(schema.Required) != 1 || !d.Strict || d.Description == "" {
				t.Errorf("%s: %+v; want a strict one that requires command", name, d)
			}
			if _, there := schema.Properties["async"]; there != (async && name == Agent) {
				t.Errorf("%s: async is there: %v; want %v", name, there, async)
			}
			values := map[string]any{"command": "true", "env": map[string]string{}, "timeout": 1, "cwd": "x", "pty": false, "head": 1, "tail": 1, "async": false, "mode": "slow"}
			for property := range schema.Properties {
				p := c.Plan(corpus.Arguments(t, map[string]any{"command": "true", property: values[property]}), Host{Settings: Settings{Async: async}})
				if p.Err != nil {
					t.Errorf("%s refuses %s: %s", name, property, errorOf(p))
				}
			}
		}
		if d := c.Definition(Host{}); d.Exclusive != (name == Agent) {
			t.Errorf("%s: Exclusive = %v", name, d.Exclusive)
		}
	}
	if d, ok := (JobTool{}).Definition(Settings{Async: true}); !ok || !json.Valid(d.InputSchema) || d.Name != "job" {
		t.Errorf("the job tool is %+v, there: %v", d, ok)
	}
	if !json.Valid(plainContract{}.Definition(Host{}).OutputSchema) {
		t.Error("the output schema of plain is not JSON")
	}
	if _, err := Parse("bash"); err == nil {
		t.Error("Parse(bash) knows a contract")
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	s, err := parseSettings(json.RawMessage(`{
		"async.enabled": true, "async.maxJobs": 500, "async.pollWaitDuration": "1m",
		"bash.autoBackground.enabled": true, "bash.autoBackground.thresholdMs": 10.5,
		"bash.stripTrailingHeadTail": true, "bash.extractHeadTail": true, "bash.virtualTerminal": "on",
		"bashInterceptor.enabled": true, "bashInterceptor.match": "segments",
		"bashInterceptor.patterns": [{"pattern": "^x", "tool": "t", "message": "m", "flags": "i"}],
		"shellMinimizer.enabled": true, "shellMinimizer.only": ["git"], "shellMinimizer.except": [],
		"shellMinimizer.settingsPath": "/x", "shellMinimizer.maxCaptureBytes": 7,
		"tools.artifactSpillThreshold": 1, "tools.artifactHeadBytes": 2, "tools.maxTimeout": 60,
		"tools.artifactTailBytes": 20, "tools.artifactTailLines": 500, "tools.outputMaxColumns": 0
	}`))
	if err != nil {
		t.Fatal(err)
	}
	if s.MaxJobs != 100 || s.PollWait.Minutes() != 1 || s.WindowBytes != 1024 || s.HeadBytes != 2048 || s.Rules[0].Flags != "i" || s.Minimizer.MaxBytes != 7 {
		t.Errorf("parseSettings() = %+v", s)
	}
	for raw, want := range map[string]string{
		`{"async.Enabled":true}`:                         `settings: there is no field "async.Enabled"`,
		`{"async.enabled":1}`:                            `settings: async.enabled: expected a boolean, got the number 1`,
		`{"bashInterceptor.patterns":{}}`:                `settings: bashInterceptor.patterns: expected an array of rules, got an object`,
		`{"bashInterceptor.patterns":[{"pattern":"x"}]}`: `settings: bashInterceptor.patterns: rule 1: tool is required`,
		`{"bashInterceptor.patterns":[{"patern":"x"}]}`:  `settings: bashInterceptor.patterns: rule 1: there is no field "patern"`,
		`{"bashInterceptor.match":"all"}`:                `settings: bashInterceptor.match: expected "whole" or "segments", got a string`,
		`{"tools.outputMaxColumns":768}`:                 `settings: tools.outputMaxColumns: expected 0, because lines are never cut, got the number 768`,
		`{"tools.artifactSpillThreshold":100000000}`:     `settings: tools.artifactSpillThreshold: expected at most 65536 KiB, got the number 100000000`,
		`[]`: `settings: expected an object, got an array`,
	} {
		if _, err := parseSettings(json.RawMessage(raw)); err == nil || err.Error() != want {
			t.Errorf("parseSettings(%s) = %v; want %s", raw, err, want)
		}
	}
	if s, err := parseSettings(json.RawMessage(`{"bashInterceptor.patterns":[]}`)); err != nil || s.Rules == nil {
		t.Errorf("an empty list of rules is %v, %v; want one that is not nil", s.Rules, err)
	}
}

func FuzzArguments(f *testing.F) {
	for _, seed := range []string{
		`{"command":"cd /tmp && cat skill://x/y","env":{"A":"local://b"},"timeout":7200,"cwd":"~/x","pty":true,"head":3,"tail":0}`,
		`{"command":"git add -A","mode":"background"}`, `{"command":1e999}`, `{"env":{"":""}}`, `{"command":"\ud800"}`, `[]`, ``, `{"a":{"a":{}}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		for _, name := range []Name{Agent, Plain, Modes} {
			c := contractOf(t, string(name))
			p := c.Plan(json.RawMessage(raw), defaultHost())
			if p.Err == nil && !json.Valid([]byte(raw)) {
				t.Errorf("%s takes %q", name, raw)
			}
			if res, refused := p.Refused(); refused && (!res.IsError || len(res.Text) > 4*len(raw)+1000) {
				t.Errorf("%s refuses %q with %+v", name, raw, res)
			}
			if row, err := json.Marshal(p.Row()); err != nil || !json.Valid(row) {
				t.Errorf("%s: row of %q: %v", name, raw, err)
			}
		}
	})
}
