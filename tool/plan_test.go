package tool

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/internal/corpus"
	"github.com/sandboxbash/sandboxbash/policy"
)

// What the interceptor refuses is refused by contract agent with its own words.
// The rules themselves are package policy's, and tested there.
func TestInterceptorCorpus(t *testing.T) {
	t.Parallel()
	type row struct {
		Command  string          `json:"command"`
		Tools    []string        `json:"tools_available"`
		Rules    json.RawMessage `json:"rules"`
		Enabled  *bool           `json:"interceptor_enabled"`
		Blocked  bool            `json:"blocked"`
		Tool     *string         `json:"suggested_tool"`
		Contains []string        `json:"message_contains"`
	}
	corpus.File{Path: "policy/testdata/interceptor.jsonl", Ran: 112}.Run(t, func(t *testing.T, c corpus.Row) {
		t.Helper()
		var r row
		c.Into(t, &r)
		settings := map[string]any{"bashInterceptor.enabled": r.Enabled == nil || *r.Enabled}
		if string(r.Rules) != `"default"` && len(r.Rules) > 0 {
			settings["bashInterceptor.patterns"] = r.Rules
		}
		s, err := parseSettings(corpus.Arguments(t, settings))
		if err != nil {
			t.Fatal(err)
		}
		h := Host{Settings: s, Tools: r.Tools, URLs: URLs{Skills: []Skill{{Name: "x", Dir: "/x"}}}}
		p := agentContract{}.Plan(corpus.Arguments(t, map[string]any{"command": r.Command}), h)
		if (p.Denial != nil) != r.Blocked {
			t.Fatalf("denial %+v, error %q; want blocked %v", p.Denial, errorOf(p), r.Blocked)
		}
		if p.Denial == nil {
			return
		}
		if r.Tool != nil && p.Denial.Tool != *r.Tool {
			t.Errorf("tool %q; want %q", p.Denial.Tool, *r.Tool)
		}
		for _, part := range r.Contains {
			if !strings.Contains(p.Denial.Message, part) {
				t.Errorf("message %q; want %q in it", p.Denial.Message, part)
			}
		}
		if !strings.HasSuffix(p.Denial.Message, "\n\nOriginal command: "+r.Command) {
			t.Errorf("message %q; want the original command at its end", p.Denial.Message)
		}
	})
}

// What the safety checks refuse is refused by contract modes, and by no other.
func TestSafetyCorpus(t *testing.T) {
	t.Parallel()
	type row struct {
		Command string  `json:"command"`
		Blocked bool    `json:"blocked"`
		Message *string `json:"message"`
	}
	// Rows of tier may are a choice of package policy, and an empty command is
	// refused before it is looked at.
	leave := func(c corpus.Row) bool { return c.Tier == "may" || strings.Contains(string(c.Raw), `"command":""`) }
	corpus.File{Path: "policy/testdata/safety.jsonl", Leave: leave, Ran: 196}.Run(t, func(t *testing.T, c corpus.Row) {
		t.Helper()
		var r row
		c.Into(t, &r)
		fields := corpus.Arguments(t, map[string]any{"command": r.Command})
		p := modesContract{}.Plan(fields, defaultHost())
		if (p.Denial != nil) != r.Blocked {
			t.Fatalf("denial %+v, error %q; want blocked %v", p.Denial, errorOf(p), r.Blocked)
		}
		if r.Message != nil && p.Denial != nil {
			if res, refused := p.Refused(); !refused || res.Text != *r.Message || !res.IsError {
				t.Errorf("result %+v; want %q", res, *r.Message)
			}
		}
		if p := (agentContract{}).Plan(fields, defaultHost()); p.Denial != nil {
			t.Errorf("agent refuses it: %+v", p.Denial)
		}
		if p := (plainContract{}).Plan(fields, defaultHost()); p.Denial != nil {
			t.Errorf("plain refuses it: %+v", p.Denial)
		}
	})
}

// denyAll refuses everything, and remembers what it was asked.
type denyAll struct{ asked []policy.Input }

func (d *denyAll) Check(in policy.Input) policy.Decision {
	d.asked = append(d.asked, in)
	return policy.Decision{Verdict: policy.Deny, Blocked: true, Rule: "r", Tool: "read", Message: "no"}
}

// Each step comes before the next: if two steps fail, the error is the first
// one's.
func TestAgentOrder(t *testing.T) {
	t.Parallel()
	all := map[string]any{
		"command": "cd /x && cat artifact://1", "env": map[string]string{"A-B": "x"}, "async": true, "timeout": 9000, "cwd": "",
	}
	d := &denyAll{}
	h := Host{Settings: DefaultSettings(), Policy: d, NoJobs: true, Dir: "/workspace"}
	step := func(want string) Plan {
		t.Helper()
		p := agentContract{}.Plan(corpus.Arguments(t, all), h)
		if res, _ := p.Refused(); res.Text != want {
			t.Errorf("refused with %q; want %q", res.Text, want)
		}
		return p
	}
	all["timeout"] = "x"
	step("Invalid bash arguments: timeout: expected a number, got a string")
	all["timeout"] = 9000
	step("Invalid bash env name: A-B")
	delete(all, "env")
	step("Async bash execution is disabled. Enable async.enabled to use async mode.")
	h.Settings.Async = true
	step("no")
	if diff := cmp.Diff([]policy.Input{{Script: "cat artifact://1", Original: "cd /x && cat artifact://1"}}, d.asked); diff != "" {
		t.Errorf("the policy was asked of (-want +got):\n%s", diff)
	}
	h.Policy = nil
	step("Cannot resolve artifact:// URL in bash command: artifact://1\nInternal URL router is unavailable for this protocol in the current session.")
	h.URLs.Resolver = router{"artifact://1": {Path: "/host/1.bash.log"}}
	step("Async job manager unavailable for this session.")
	h.NoJobs = false
	p := step("")
	if p.Route != Background || p.Dir != "/x" || p.Command != "cat '/host/1.bash.log'" || p.Timeout.Seconds != 3600 {
		t.Errorf("plan %+v", p)
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		set   func(*Host)
		pty   bool
		route Route
		wait  time.Duration
	}{
		{"plain", func(*Host) {}, false, Foreground, 0},
		{"client", func(h *Host) { h.Terminal = true }, false, InClient, 0},
		{"terminal before client", func(h *Host) { h.Terminal, h.UI = true, true }, true, Terminal, 0},
		{"no user interface for a terminal", func(h *Host) { h.Terminal = true }, true, Foreground, 0},
		{"PI_NO_PTY", func(h *Host) { h.UI, h.NoPTY = true, true }, true, Foreground, 0},
		{"managed", func(h *Host) { h.Settings.AutoBackground, h.Terminal = true, true }, false, Managed, time.Minute},
		{"at once", func(h *Host) { h.Settings.AutoBackground, h.Settings.ThresholdMs = true, -5 }, false, Managed, 0},
		{"no manager", func(h *Host) { h.Settings.AutoBackground, h.NoJobs = true, true }, false, Foreground, 0},
	} {
		h := defaultHost()
		test.set(&h)
		p := agentContract{}.Plan(corpus.Arguments(t, map[string]any{"command": "x", "pty": test.pty}), h)
		if p.Route != test.route || p.Wait != test.wait {
			t.Errorf("%s: route %s, wait %v; want %s, %v", test.name, p.Route, p.Wait, test.route, test.wait)
		}
	}
}

// The session's answer to where a URL is to be seen is what the command gets.
func TestPlace(t *testing.T) {
	t.Parallel()
	var asked []string
	h := defaultHost()
	h.URLs.Skills = []Skill{{Name: "s", Dir: "/skills/s"}}
	h.Place = func(e Expansion) (string, error) {
		asked = append(asked, e.Field+" "+e.Name+" "+e.Path)
		if strings.HasSuffix(e.Path, "big") {
			return "", Refusef("%s is larger than 256 MiB", e.URL)
		}
		return "/in" + e.Path, nil
	}
	fields := map[string]any{"command": "é skill://s/a 'skill://s/b'", "env": map[string]string{"V": "skill://s/c"}, "cwd": "skill://s/d"}
	p := agentContract{}.Plan(corpus.Arguments(t, fields), h)
	if p.Command != "é '/in/skills/s/a' '/in/skills/s/b'" || p.Env["V"] != "/in/skills/s/c" || p.Dir != "/in/skills/s/d" {
		t.Errorf("plan %q, %q, %q", p.Command, p.Env["V"], p.Dir)
	}
	want := []string{"command  /skills/s/b", "command  /skills/s/a", "env V /skills/s/c", "cwd  /skills/s/d"}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("places asked for (-want +got):\n%s", diff)
	}
	first := Expansion{URL: "skill://s/a", Kind: "skill", Path: "/skills/s/a", Field: "command", Offset: 3, Length: 11, Placed: "/in/skills/s/a"}
	if diff := cmp.Diff(first, p.Expansions[0]); diff != "" || p.Expansions[1].Offset != 15 || p.Expansions[1].Length != 13 {
		t.Errorf("expansions %+v (-want +got):\n%s", p.Expansions, diff)
	}
	fields["command"] = "cat skill://s/big"
	if p := (agentContract{}).Plan(corpus.Arguments(t, fields), h); errorOf(p) != "skill://s/big is larger than 256 MiB" {
		t.Errorf("error %q", errorOf(p))
	}
	h.Place = func(Expansion) (string, error) { return "", errors.New("no session") }
	if p := (agentContract{}).Plan(corpus.Arguments(t, fields), h); errorOf(p) != "no session" {
		t.Errorf("error %q", errorOf(p))
	}
	// A refused command has nothing copied for it.
	h.Policy, asked = &denyAll{}, nil
	agentContract{}.Plan(corpus.Arguments(t, fields), h)
	if asked != nil {
		t.Errorf("places asked for: %q; want none", asked)
	}
}

func TestRow(t *testing.T) {
	t.Parallel()
	h := defaultHost()
	h.Settings.StripHeadTail = true
	p := agentContract{}.Plan(json.RawMessage(`{"command":"make 2>&1 | tail -3 && ls","timeout":0.5,"head":2,"env":{"PAGER":"less","PWD":"/"}}`), h)
	p.Env = Env{"PAGER": p.Env["PAGER"], "PWD": p.Env["PWD"], "CI": p.Env["CI"]}
	row, err := json.Marshal(p.Row())
	want := `{"command":"make \u0026\u0026 ls","cwd":null,"head":2,"tail":null,"env":{"CI":"1","PAGER":"less","PWD":""},"timeoutSeconds":1,` +
		`"notices":["Ran without | tail -3 and 2\u003e\u00261: the output is limited anyway, and stderr is part of it.",` +
		`"Timeout clamped to 1s (requested 0.5s; allowed range 1-3600s)."],"denial":null,"error":null}`
	if err != nil || string(row) != want {
		t.Errorf("Row() = %s, %v; want %s", row, err, want)
	}
	row, err = json.Marshal(plainContract{}.Plan(nil, h).Row())
	want = `{"command":null,"cwd":null,"head":null,"tail":null,"env":{},"timeoutSeconds":null,"notices":[],"denial":null,"error":"Invalid input: command is required"}`
	if err != nil || string(row) != want {
		t.Errorf("Row() = %s, %v; want %s", row, err, want)
	}
}

func TestClampTimeout(t *testing.T) {
	t.Parallel()
	number := func(f float64) *float64 { return &f }
	for _, test := range []struct {
		requested *float64
		ceiling   float64
		want      float64
		notice    string
	}{
		{nil, 60, 60, ""},
		{number(30), 60, 30, ""},
		{number(90), 60, 60, "Timeout clamped to 60s (requested 90s; allowed range 1-60s)."},
		{number(90), 0.2, 1, "Timeout clamped to 1s (requested 90s; allowed range 1-1s)."},
		{number(0), 0, 1, "Timeout clamped to 1s (requested 0s; allowed range 1-3600s)."},
		{number(1e21), 0, 3600, "Timeout clamped to 3600s (requested 1e+21s; allowed range 1-3600s)."},
		{number(1e-7), 0, 1, "Timeout clamped to 1s (requested 1e-7s; allowed range 1-3600s)."},
		{number(3600), 9999, 3600, ""},
	} {
		if got := clampTimeout(test.requested, test.ceiling); got.Seconds != test.want || got.notice() != test.notice {
			t.Errorf("clampTimeout(%v, %v) = %v, %q; want %v, %q", test.requested, test.ceiling, got.Seconds, got.notice(), test.want, test.notice)
		}
	}
	if got := (Timeout{Seconds: 2.5}).Message(); got != "Command timed out after 3 seconds" {
		t.Errorf("Message() = %q; want the half rounded up", got)
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	if n := len(NonInteractive()); n != 41 {
		t.Errorf("NonInteractive() has %d variables; want 41", n)
	}
	for name, want := range map[string]bool{
		"BASH_ENV": false, "ENV": false, "IFS": false, "SHELLOPTS": false, "BASH_VERSINFO": false, "PS1": false, "_": false,
		"PATH": true, "HOME": true, "PS3": true, "BASHFUL": true, "LANG": true,
	} {
		if heeded(name) != want {
			t.Errorf("heeded(%s) = %v; want %v", name, !want, want)
		}
	}
	if got := (Env{"B": "2", "A": "x=y"}).List(); len(got) != 2 || got[0] != "A=x=y" || got[1] != "B=2" {
		t.Errorf("List() = %q", got)
	}
}

func TestScript(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ command, prefix, want string }{
		{"ls", "", "ls"}, {"ls", "nice", "nice ls"}, {"", "", ":"}, {" \n", "", ":"}, {"", "time", "time "},
	} {
		if got := (Plan{Command: test.command}).Script(test.prefix); got != test.want {
			t.Errorf("Script(%q) of %q = %q; want %q", test.prefix, test.command, got, test.want)
		}
	}
	p := UserPlan("cd /x && cat skill://s")
	if _, refused := p.Refused(); refused || p.Command != "cd /x && cat skill://s" || p.Dir != "" || p.Timeout.Duration() != 0 || p.Env["CI"] != "1" {
		t.Errorf("UserPlan() = %+v; want it as it is", p)
	}
}

func TestResolveDir(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want string }{
		{"", "/s"},
		{"/", "/s"},
		{"//", "/s"},
		{"///", "/s"},
		{".", "/s"},
		{"a/../b", "/s/b"},
		{"../x", "/x"},
		{"/a/./b/", "/a/b"},
		{"~", "/home/u"},
		{"~/x", "/home/u/x"},
		{"~x", "/s/~x"},
		{"@/a", "/a"},
		{"@~/a", "/home/u/a"},
		{"@a", "/s/@a"},
		{"file:///a%20b", "/a b"},
		{"file://localhost/a", "/a"},
		{"a\u3000b", "/s/a b"},
		{"-", "/s/-"},
		{"*dir", "/s/*dir"},
		{"file://host/a", "error: Working directory is not a local file URL: file://host/a"},
		{"file:///%zz", "error: Working directory is not a local file URL: file:///%zz"},
		{"agent://x", "error: Working directory is an internal URL that was not resolved: agent://x"},
	} {
		got, err := resolveDir(test.text, "/s", "/home/u")
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != test.want {
			t.Errorf("resolveDir(%q) = %q; want %q", test.text, got, test.want)
		}
	}
}
