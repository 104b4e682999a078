package tool_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/tool"
)

func TestParseRequest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, row string
		id        string // as JSON
		want      string // the error; "" if there is none
	}{
		{"least", `{"arguments":{"command":"true"}}`, "", ""},
		{"all", `{"contract":"agent","arguments":{},"settings":{"async.enabled":true},"toolNames":["read"],"context":{},"id":{"a":1}}`, `{"a":1}`, ""},
		{"null is absent", `{"contract":null,"arguments":{},"settings":null,"toolNames":null,"context":null,"id":null}`, `null`, ""},
		{"arguments of another type are the contract's", `{"arguments":[1]}`, "", ""},
		{"no arguments", `{"contract":"agent","id":7}`, `7`, "arguments is required"},
		{"nothing", ``, "", "arguments is required"},
		{"not an object", `[{"arguments":{}}]`, "", "a request is a JSON object: expected an object, got an array"},
		{"not JSON", `{"arguments":`, "", "a request is a JSON object: they are not JSON"},
		{"two rows", `{"arguments":{}}{"arguments":{}}`, "", "a request is a JSON object: they are not JSON"},
		{"a field that is not there", `{"argument":{},"id":"x"}`, `"x"`, `there is no field "argument"`},
		{"in other case", `{"Arguments":{},"id":"x"}`, `"x"`, `there is no field "Arguments"`},
		{"twice", `{"arguments":{},"arguments":{"command":"x"}}`, "", `"arguments" is given twice`},
		{"the contract is not a text", `{"id":1,"contract":1,"arguments":{}}`, `1`, "contract: expected a string, got the number 1"},
		{"tool names", `{"arguments":{},"toolNames":"read"}`, "", "toolNames: expected an array of strings, got a string"},
		{"some tool names", `{"arguments":{},"toolNames":["read",1]}`, "", "toolNames: expected an array of strings, got an array"},
		{"a setting", `{"arguments":{},"settings":{"async.enabled":"yes"},"id":2}`, `2`, "settings: async.enabled: expected a boolean, got a string"},
		{"a context of another type", `{"arguments":{},"context":1}`, "", "expected an object"},
		{"an id after the fault", `{"arguments":{},"contract":true,"id":9}`, `9`, "contract: expected a string, got a boolean"},
		{"not UTF-8", "{\"arguments\":{},\"contract\":\"\xff\"}", "", "they are not UTF-8"},
		{"a long name is cut", `{"arguments":{},"` + strings.Repeat("x", 5000) + `":1}`, "", `there is no field "` + strings.Repeat("x", 64) + `…"`},
	} {
		r, err := tool.ParseRequest(json.RawMessage(tt.row))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		}
		if string(r.ID) != tt.id {
			t.Errorf("%s: the id is %s; want %s", tt.name, r.ID, tt.id)
		}
		if err != nil && len(err.Error()) > 500 {
			t.Errorf("%s: the error has %d bytes", tt.name, len(err.Error()))
		}
	}
}

// TestRequestPlan: a row has its own contract, settings and tools, and else the caller's contract.
func TestRequestPlan(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, row, contract string
		want                tool.Name
		denied              string // the tool that it names instead
		err                 string
	}{
		{"the caller's", `{"arguments":{"command":"true"}}`, "plain", tool.Plain, "", ""},
		{"its own", `{"contract":"C","arguments":{"command":"true"}}`, "plain", tool.Modes, "", ""},
		{"unknown", `{"contract":"D","arguments":{}}`, "plain", "", "", `unknown contract "D": it can be agent, plain or modes`},
		{"none", `{"arguments":{}}`, "", "", "", "unknown contract"},
		{"the interceptor is off", `{"contract":"A","arguments":{"command":"cat x"},"toolNames":["read"]}`, "", tool.Agent, "", ""},
		{
			"on, with the tool", `{"contract":"A","arguments":{"command":"cat x"},"toolNames":["read"],"settings":{"bashInterceptor.enabled":true}}`,
			"", tool.Agent, "read", "",
		},
		{"on, without the tool", `{"contract":"A","arguments":{"command":"cat x"},"toolNames":["edit"],"settings":{"bashInterceptor.enabled":true}}`, "", tool.Agent, "", ""},
	} {
		r, err := tool.ParseRequest(json.RawMessage(tt.row))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		p, err := r.Plan(tt.contract)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v; want %q", tt.name, err, tt.err)
			}
			continue
		}
		got := ""
		if p.Denial != nil {
			got = p.Denial.Tool
		}
		if err != nil || p.Contract != tt.want || got != tt.denied || p.Err != nil {
			t.Errorf("%s: contract %s, denied for %q, %v, %v; want %s, %q", tt.name, p.Contract, got, p.Err, err, tt.want, tt.denied)
		}
	}
}

// TestModesFaults: the words of contract modes for arguments that it does not take.
func TestModesFaults(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("9", 100)
	for arguments, want := range map[string]string{
		``:                             "missing field `command`",
		`{}`:                           "missing field `command`",
		`{"mode":"slow"}`:              "missing field `command`",
		`{"command":null}`:             "invalid type: null, expected a string",
		`{"command":true}`:             "invalid type: boolean `true`, expected a string",
		`{"command":12}`:               "invalid type: integer `12`, expected a string",
		`{"command":-1.5e3}`:           "invalid type: floating point `-1.5e3`, expected a string",
		`{"command":["a"]}`:            "invalid type: sequence, expected a string",
		`{"command":{"a":1}}`:          "invalid type: map, expected a string",
		`{"command":` + long + `}`:     "invalid type: integer `" + long[:64] + "…`, expected a string",
		`{"command":"a","mode":1}`:     "invalid type: integer `1`, expected string or map",
		`{"command":"a","mode":""}`:    "unknown variant ``, expected one of `default`, `slow`, `background`",
		`{"command":"a","mode":"Slow"`: "they are not JSON",
		`{"command":"a","timeout":1}`:  "unknown field `timeout`, expected `command` or `mode`",
		`{"command":"a","command":""}`: "duplicate field `command`",
		`"true"`:                       `invalid type: string "true", expected struct BashInput`,
		`[]`:                           "invalid type: sequence, expected struct BashInput",
		`{"command":"\ud800"}`:         "they have half of a surrogate pair",
	} {
		c, err := tool.Parse("C")
		if err != nil {
			t.Fatal(err)
		}
		p := c.Plan(json.RawMessage(arguments), tool.Host{Settings: tool.DefaultSettings()})
		if p.Err == nil || p.Err.Error() != "Invalid input: "+want {
			t.Errorf("%.60s: %v; want %q", arguments, p.Err, "Invalid input: "+want)
		}
		if r, refused := p.Refused(); !refused || !r.IsError {
			t.Errorf("%.60s: the result is %+v", arguments, r)
		}
	}
}

// TestDefinitions: the tool job is the agent's alone, and only if its settings allow jobs; each schema is JSON.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	async, auto := tool.DefaultSettings(), tool.DefaultSettings()
	async.Async, auto.AutoBackground = true, true
	for _, tt := range []struct {
		contract tool.Name
		settings tool.Settings
		want     string
	}{
		{tool.Agent, tool.DefaultSettings(), "bash"},
		{tool.Agent, async, "bash job"},
		{tool.Agent, auto, "bash job"},
		{tool.Plain, async, "bash"},
		{tool.Modes, async, "bash"},
	} {
		all, err := tool.Definitions(tt.contract, tool.Host{Settings: tt.settings, Dir: "/w"})
		var names []string
		for _, d := range all {
			names = append(names, d.Name)
			if !json.Valid(d.InputSchema) || d.OutputSchema != nil && !json.Valid(d.OutputSchema) || d.Description == "" {
				t.Errorf("%s: the definition of %s is %+v", tt.contract, d.Name, d)
			}
		}
		if err != nil || strings.Join(names, " ") != tt.want {
			t.Errorf("Definitions(%s, %+v) = %q, %v; want %s", tt.contract, tt.settings, names, err, tt.want)
		}
	}
	if _, err := tool.Definitions("other", tool.Host{}); err == nil {
		t.Error("an unknown contract has tools")
	}
}

// FuzzParseRequest: a row, whatever it is, has an error or a plan, and its id if that can be read.
func FuzzParseRequest(f *testing.F) {
	for _, row := range []string{
		`{"arguments":{"command":"cat x | head -1","timeout":1e9},"contract":"agent","settings":{"bash.extractHeadTail":true},"id":1}`,
		`{"arguments":{"command":"artifact://0"},"contract":"A","context":{},"toolNames":["read"]}`,
		`{"arguments":{"command":"rm -rf /","mode":"slow"},"contract":"C","id":[]}`, `{"arguments":"","contract":"B"}`, `{"id":"`,
	} {
		f.Add([]byte(row))
	}
	f.Fuzz(func(t *testing.T, row []byte) {
		r, err := tool.ParseRequest(row)
		if err != nil {
			return
		}
		r.Host.Policy = anything{}
		p, err := r.Plan("agent")
		if err != nil {
			return
		}
		if line, err := json.Marshal(p.Row()); err != nil || !json.Valid(line) {
			t.Errorf("the plan of %q is not JSON: %v", row, err)
		}
		if _, refused := p.Refused(); refused == (p.Err == nil && p.Denial == nil) {
			t.Errorf("the plan of %q is refused: %v, with %v and %v", row, refused, p.Err, p.Denial)
		}
	})
}

// anything is a policy that lets every command run.
type anything struct{}

func (anything) Check(policy.Input) policy.Decision { return policy.Decision{} }
