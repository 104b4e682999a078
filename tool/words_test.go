package tool

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/internal/corpus"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// nonInteractive is NON_INTERACTIVE_ENV as the document of contract agent lists it.
const nonInteractive = `PAGER=cat GIT_PAGER=cat MANPAGER=cat SYSTEMD_PAGER=cat BAT_PAGER=cat DELTA_PAGER=cat GH_PAGER=cat GLAB_PAGER=cat
PSQL_PAGER=cat MYSQL_PAGER=cat AWS_PAGER= HOMEBREW_PAGER=cat LESS=FRX
TERM=dumb GPG_TTY=not_a_tty NO_COLOR=1 PYTHONUNBUFFERED=1
GIT_EDITOR=true VISUAL=true EDITOR=true GIT_TERMINAL_PROMPT=0 SSH_ASKPASS=/usr/bin/false CI=1
npm_config_yes=true npm_config_update_notifier=false npm_config_fund=false npm_config_audit=false npm_config_progress=false
PNPM_DISABLE_SELF_UPDATE_CHECK=true PNPM_UPDATE_NOTIFIER=false YARN_ENABLE_TELEMETRY=0 YARN_ENABLE_PROGRESS_BARS=0
CARGO_TERM_PROGRESS_WHEN=never DEBIAN_FRONTEND=noninteractive PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 TF_INPUT=0
TF_IN_AUTOMATION=1 GH_PROMPT_DISABLED=1 COMPOSER_NO_INTERACTION=1 CLOUDSDK_CORE_DISABLE_PROMPTS=1`

// TestNonInteractive: the variables of a command are the document's, the agent's win, and those that
// are the shell's own are not the agent's to set.
func TestNonInteractive(t *testing.T) {
	t.Parallel()
	want := strings.Fields(nonInteractive)
	slices.Sort(want)
	got := NonInteractive().List()
	for i := range got {
		got[i] = strings.ReplaceAll(got[i], " ", "_")
	}
	if diff := cmp.Diff(want, got); diff != "" || len(want) != 41 {
		t.Errorf("%d variables (-want +got):\n%s", len(want), diff)
	}
	env := map[string]string{"PAGER": "less", "OWN": "x", "AWS_PAGER": "less", "EMPTY": ""}
	ignored := []string{"BASH_ENV", "ENV", "PS4", "PWD", "OLDPWD", "SHLVL", "SHELL", "IFS", "UID", "RANDOM", "HOSTNAME", "BASH_VERSION", "LINENO", "BASH_FUNC_x"}
	for _, name := range ignored {
		env[name] = "x"
	}
	p := agentContract{}.Plan(corpus.Arguments(t, map[string]any{"command": "true", "env": env}), defaultHost())
	for name, value := range map[string]string{"PAGER": "less", "OWN": "x", "AWS_PAGER": "less", "EMPTY": "", "TERM": "dumb"} {
		if got, ok := p.Env[name]; !ok || got != value {
			t.Errorf("%s is %q, %t; want %q", name, got, ok, value)
		}
	}
	for _, name := range ignored {
		if value, ok := p.Env[name]; ok {
			t.Errorf("the agent has set %s=%s", name, value)
		}
	}
	for _, contract := range []string{"plain", "modes"} {
		if p := contractOf(t, contract).Plan(corpus.Arguments(t, map[string]any{"command": "true"}), defaultHost()); len(p.Env) > 0 {
			t.Errorf("%s sets %v; want nothing", contract, p.Env)
		}
	}
	for name, want := range map[string]bool{
		"ANTHROPIC_API_KEY": true, "OPENAI_X": true, "GEMINI_": true, "AWS_SECRET_ACCESS_KEY": true, "AWS_SECRETS": true, "PHOENIX_PORT": true,
		"AWS_ACCESS_KEY_ID": false, "anthropic_api_key": false, "MY_OPENAI_KEY": false, "ANTHROPIC": false, "": false,
	} {
		if WithheldByModes(name) != want {
			t.Errorf("WithheldByModes(%q) = %t; want %t", name, !want, want)
		}
	}
}

// TestJobSettings: numbers of the job manager come into their range, and a duration is one of five.
func TestJobSettings(t *testing.T) {
	t.Parallel()
	for n, want := range map[float64]int{-5: 1, 0: 1, 0.9: 1, 1: 1, 1.9: 1, 2: 2, 99.99: 99, 100: 100, 101: 100, math.Inf(1): 100, math.Inf(-1): 1, math.NaN(): 100} {
		if got := clampMaxJobs(n); got != want {
			t.Errorf("clampMaxJobs(%v) = %d; want %d", n, got, want)
		}
	}
	for text, want := range map[string]time.Duration{
		"5s": 5 * time.Second, "10s": 10 * time.Second, "30s": 30 * time.Second, "1m": time.Minute, "5m": 5 * time.Minute,
		"": 30 * time.Second, "2m": 30 * time.Second, "60s": 30 * time.Second, "5S": 30 * time.Second, "-5s": 30 * time.Second,
	} {
		if got := PollWait(text); got != want {
			t.Errorf("PollWait(%q) = %v; want %v", text, got, want)
		}
	}
	for setting, want := range map[string]string{
		`{"async.maxJobs":"x"}`:                                                 "async.maxJobs: expected a number, got a string",
		`{"async.pollWaitDuration":5}`:                                          "async.pollWaitDuration: expected a string, got the number 5",
		`{"bashInterceptor.match":"all"}`:                                       `expected "whole" or "segments"`,
		`{"bashInterceptor.match":1}`:                                           "expected a string, got the number 1",
		`{"bashInterceptor.patterns":[1]}`:                                      "rule 1: expected an object, got the number 1",
		`{"bashInterceptor.patterns":[{"x":"y"}]}`:                              `rule 1: there is no field "x"`,
		`{"bashInterceptor.patterns":[{"pattern":"a","tool":1,"message":"m"}]}`: "rule 1: tool: expected a string",
		`{"bashInterceptor.patterns":[{"pattern":"a","tool":"b"}]}`:             "rule 1: message is required",
		`{"tools.outputMaxColumns":768}`:                                        "expected 0, because lines are never cut",
		`{"tools.artifactSpillThreshold":65537}`:                                "expected at most 65536 KiB",
		`{"tools.artifactHeadBytes":1.5}`:                                       "expected a whole number",
	} {
		if _, err := parseSettings(json.RawMessage(setting)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parseSettings(%s) = %v; want %q", setting, err, want)
		}
	}
	if s, err := parseSettings(json.RawMessage(`{"async.maxJobs":null,"tools.artifactSpillThreshold":65536}`)); err != nil || s.MaxJobs != 100 || s.WindowBytes != 64<<20 {
		t.Errorf("parseSettings() = %+v, %v; want the default and the limit", s, err)
	}
}

// TestJobReport: what the job tool says of any jobs is the document's: a section for each state that
// there is, in order, with every job once, and details of the same jobs.
func TestJobReport(t *testing.T) {
	t.Parallel()
	jobs := []Job{
		{ID: "bg_1", Label: "make", Status: sandbox.JobRunning, Elapsed: 1500 * time.Millisecond},
		{ID: "bg_2", Label: "ls", Status: sandbox.JobCompleted, Result: "out"},
		{ID: "bg_3", Label: "false", Status: sandbox.JobFailed, Error: "no"},
		{ID: "bg_4", Label: "sleep", Status: sandbox.JobCancelled},
	}
	const (
		running   = "## Still Running (1)\n\n- `bg_1` [bash] — make"
		completed = "### bg_2 [bash] — completed\nLabel: ls\n```\nout\n```\n"
		failed    = "### bg_3 [bash] — failed\nLabel: false\nError: no\n"
		cancelled = "### bg_4 [bash] — cancelled\nLabel: sleep"
	)
	for call, want := range map[string]string{
		`{}`:                         running,
		`{"poll":["bg_1"]}`:          running,
		`{"poll":["bg_2"]}`:          "## Completed (1)\n\n" + strings.TrimSuffix(completed, "\n"),
		`{"poll":["bg_3","bg_2"]}`:   "## Completed (2)\n\n" + failed + "\n" + strings.TrimSuffix(completed, "\n"),
		`{"list":true}`:              "## Completed (3)\n\n" + completed + "\n" + failed + "\n" + cancelled + "\n\n" + running,
		`{"poll":["a","b","a"]}`:     "No matching jobs found for IDs: a, b",
		`{"poll":[]}`:                running,
		`{"poll":["bg_1","bg_1"]}`:   running,
		`{"poll":["bg_4","nobg"]}`:   "## Completed (1)\n\n" + cancelled,
		`{"list":true,"poll":[]}`:    "## Completed (3)\n\n" + completed + "\n" + failed + "\n" + cancelled + "\n\n" + running,
		`{"list":false,"cancel":[]}`: running,
	} {
		c, err := JobTool{}.Parse(json.RawMessage(call))
		if err != nil {
			t.Errorf("Parse(%s) = %v", call, err)
			continue
		}
		shown := c.Shown(jobs)
		text, d := c.Report(shown, nil)
		if text != want {
			t.Errorf("%s: %q; want %q", call, text, want)
		}
		for i, j := range d.Jobs {
			if j.ID != shown[i].ID || j.Status != shown[i].Status || j.Type != "bash" || j.ResultText != shown[i].Result || j.ErrorText != shown[i].Error || j.DurationMs != shown[i].Elapsed.Milliseconds() {
				t.Errorf("%s: details %+v of %+v", call, j, shown[i])
			}
		}
		if len(d.Jobs) != len(shown) || d.Cancelled != nil || c.Watch == c.List {
			t.Errorf("%s: %d details of %d jobs, cancelled %v, it waits: %t", call, len(d.Jobs), len(shown), d.Cancelled, c.Watch)
		}
	}
	if text, d := (JobCall{All: true}).Report(nil, nil); text != "No running background jobs to wait for." || d.Jobs == nil {
		t.Errorf("without jobs: %q, %+v", text, d)
	}
	c, err := JobTool{}.Parse(json.RawMessage(`{"cancel":["bg_1","none","bg_3"]}`))
	if err != nil || c.Watch {
		t.Fatalf("Parse(cancel) = %+v, %v; want a call that does not wait", c, err)
	}
	cancels := []Cancellation{Cancelled("bg_1", jobs[0], true), Cancelled("none", Job{}, false), Cancelled("bg_3", jobs[2], true)}
	text, d := c.Report(nil, cancels)
	want := "## Cancelled (3)\n\n- Cancelled background job bg_1.\n- Background job not found: none\n- Background job bg_3 is already failed."
	if text != want || d.Cancelled[0].Status+" "+d.Cancelled[1].Status+" "+d.Cancelled[2].Status != "cancelled not_found already_completed" {
		t.Errorf("%q, %+v; want %q", text, d, want)
	}
	for call, want := range map[string]string{
		`{"list":true,"poll":["x"]}`:   "`list` cannot be combined with `poll` or `cancel`.",
		`{"list":true,"cancel":["x"]}`: "`list` cannot be combined with `poll` or `cancel`.",
		`{"poll":["x",1]}`:             "Invalid job arguments: poll: expected an array of strings, got an array",
		`{"list":"yes"}`:               "Invalid job arguments: list: expected a boolean, got a string",
		`{"wait":true}`:                `Invalid job arguments: there is no field "wait"`,
		`[]`:                           "Invalid job arguments: expected an object, got an array",
	} {
		if c, err := (JobTool{}).Parse(json.RawMessage(call)); err == nil || err.Error() != want {
			t.Errorf("Parse(%s) = %+v, %v; want %q", call, c, err, want)
		}
	}
}

// TestUnits: a text is measured in UTF-16 units, as the document's program does, and never split in
// the middle of a character.
func TestUnits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text   string
		length int
		n      int
		head   string
	}{
		{"", 0, 3, ""}, {"abc", 3, 3, "abc"}, {"abc", 3, 2, "ab"}, {"äöü", 3, 2, "äö"}, {"a😀b", 4, 2, "a"}, {"a😀b", 4, 3, "a😀"}, {"\xff\xfe", 2, 1, "\xff"}, {"abc", 3, 0, ""},
	} {
		if got, head := utf16Length(tt.text), utf16Head(tt.text, tt.n); got != tt.length || head != tt.head {
			t.Errorf("%q: %d units, of which the first %d are %q; want %d, %q", tt.text, got, tt.n, head, tt.length, tt.head)
		}
	}
	for f, want := range map[float64]string{0: "0", 1.5: "1.5", 300: "300", 1e21: "1e+21", 1e-7: "1e-7", math.Inf(1): "+Inf"} {
		if got := jsNumber(f); got != want {
			t.Errorf("jsNumber(%v) = %q; want %q", f, got, want)
		}
	}
	ids := []string{"10", "9", "1", "01", "2", "99999999999999999999999"}
	slices.SortFunc(ids, byNumber)
	if got := strings.Join(ids, " "); got != "01 1 2 9 10 99999999999999999999999" {
		t.Errorf("by number they are %s", got)
	}
}
