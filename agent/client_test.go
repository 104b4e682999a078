package agent

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/internal/corpus"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
)

// fakeClient is a client with a terminal. The zero value's command goes on until
// it is killed.
type fakeClient struct {
	id        string
	output    string
	truncated bool
	exit      *TerminalExit
	life      time.Duration // until exit
	failing   string        // of Create, Output, WaitForExit or Release
	fail      error
	stuck     bool // it answers nothing before the context ends

	record  fakeRecord
	asked   CreateTerminal
	created time.Time
	looks   []time.Duration // since the start
	calls   []string
	killed  chan struct{}
}

// fakeRecord remembers where commands ran, and how they ended.
type fakeRecord struct {
	refuse error
	where  []sandbox.Where
	ends   []sandbox.Result
	errs   []error
}

func (*fakeRecord) Denied(sandbox.Command, policy.Decision) {}

func (r *fakeRecord) Observe(_ context.Context, _ sandbox.Command, _ sandbox.Mode, where sandbox.Where) (func(sandbox.Result, error), error) {
	if r.refuse != nil {
		return nil, r.refuse
	}
	r.where = append(r.where, where)
	return func(res sandbox.Result, err error) {
		r.ends, r.errs = append(r.ends, res), append(r.errs, err)
	}, nil
}

// What runs in the client's terminal is on record as that, or does not run.
func TestClientOnRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &fakeClient{id: "t1", exit: code(3), life: time.Second}
		s := withClient(t, c)
		call := json.RawMessage(`{"command":"make"}`)
		if r := s.Call(t.Context(), "bash", call, Events{}); r.Receipt != nil {
			t.Errorf("Call() = %+v; want no receipt of what did not run in the session", r)
		}
		rec := &c.record
		if len(rec.where) != 1 || rec.where[0] != sandbox.InClient || len(rec.ends) != 1 || rec.ends[0].Code != 3 || rec.errs[0] != nil {
			t.Errorf("on record: %+v; want one command in the client's terminal that exited with 3", rec)
		}
		rec.refuse = errors.New("no space")
		asked := len(c.calls)
		if r := s.Call(t.Context(), "bash", call, Events{}); !r.IsError || len(c.calls) != asked {
			t.Errorf("Call() = %+v, the client was asked for %q; want nothing run", r, c.calls[asked:])
		}
	})
}

func (c *fakeClient) call(ctx context.Context, name string) error {
	c.calls = append(c.calls, name)
	if c.stuck && name != "Create" {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if c.failing == name {
		return c.fail
	}
	return nil
}

func (c *fakeClient) Create(ctx context.Context, asked CreateTerminal) (string, error) {
	c.asked, c.created, c.killed = asked, time.Now(), make(chan struct{})
	return c.id, c.call(ctx, "Create")
}

func (c *fakeClient) Kill(ctx context.Context, _ string) error {
	close(c.killed) // a second one panics
	return c.call(ctx, "Kill")
}

func (c *fakeClient) Release(ctx context.Context, _ string) error { return c.call(ctx, "Release") }

func (c *fakeClient) Output(ctx context.Context, _ string) (TerminalOutput, error) {
	c.looks = append(c.looks, time.Since(c.created))
	return TerminalOutput{Output: c.output, Truncated: c.truncated}, c.call(ctx, "Output")
}

func (c *fakeClient) WaitForExit(ctx context.Context, _ string) (TerminalExit, error) {
	if c.exit == nil && c.failing != "WaitForExit" {
		<-ctx.Done()
		return TerminalExit{}, context.Cause(ctx)
	}
	time.Sleep(c.life)
	if c.failing == "WaitForExit" {
		return TerminalExit{}, c.fail
	}
	return *c.exit, nil
}

func (c *fakeClient) count(name string) int {
	n := 0
	for _, called := range c.calls {
		if called == name {
			n++
		}
	}
	return n
}

// recordOnly is a sandbox session that puts on record what runs elsewhere, and does
// nothing else: its other methods panic.
type recordOnly struct {
	sandboxSession

	record *fakeRecord
}

func (r recordOnly) Denied(c sandbox.Command, d policy.Decision) { r.record.Denied(c, d) }

func (r recordOnly) Observe(ctx context.Context, c sandbox.Command, mode sandbox.Mode, where sandbox.Where) (func(sandbox.Result, error), error) {
	return r.record.Observe(ctx, c, mode, where)
}

// withClient is a Session that has a client's terminal, and nothing else.
func withClient(t *testing.T, c *fakeClient) *Session {
	t.Helper()
	at := directories{dir: "/workspace", home: "/home/agent", host: "/src"}
	s, err := open(recordOnly{record: &c.record}, at, SessionOptions{Settings: tool.DefaultSettings(), Client: c, Prefix: "nice", Env: []string{"HOST=1"}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func code(n int) *TerminalExit { return &TerminalExit{Code: &n} }

// The rows on the client's terminal, as a whole.
func TestClientCorpus(t *testing.T) {
	t.Parallel()
	type row struct {
		Terminal *struct {
			ID     string        `json:"terminalId"`
			Exit   *TerminalExit `json:"exit"`
			Never  bool          `json:"never_exits"`
			Output string        `json:"output"`
			Cut    bool          `json:"truncated"`
			Throws string        `json:"output_throws"`
			Limit  *float64      `json:"timeout"`
			Abort  int           `json:"abort_after_ms"`
		} `json:"terminal"`
		Expect struct {
			corpus.Expect
			Command  *string        `json:"create_command"`
			First    map[string]any `json:"first_update_details"`
			Contains *string        `json:"error_contains"`
			Kills    *int           `json:"kill_count"`
			Releases *int           `json:"release_count"`
			Poll     int64          `json:"poll_ms"`
		} `json:"expect"`
	}
	leave := func(c corpus.Row) bool {
		return c.Tier == "version" || !strings.Contains(string(c.Raw), `"terminal":`)
	}
	corpus.File{Path: "tool/testdata/results.jsonl", Leave: leave, Ran: 7}.Run(t, func(t *testing.T, c corpus.Row) {
		t.Helper()
		var r row
		c.Into(t, &r)
		synctest.Test(t, func(t *testing.T) {
			term := r.Terminal
			client := &fakeClient{id: term.ID, output: term.Output, truncated: term.Cut, exit: term.Exit, life: 2600 * time.Millisecond}
			if term.Throws != "" {
				client.failing, client.fail = "Output", errors.New(term.Throws)
			}
			if client.exit == nil && !term.Never {
				client.exit = code(0)
			}
			s := withClient(t, client)
			s.opts.Prefix = ""
			ctx := t.Context()
			if term.Abort > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Duration(term.Abort)*time.Millisecond)
				defer cancel()
			}
			fields := map[string]any{"command": "echo hi"}
			if term.Limit != nil {
				fields["timeout"] = *term.Limit
			}
			var updates heard
			res := s.Call(ctx, tool.BashName, corpus.Arguments(t, fields), Events{Update: updates.update})
			want := r.Expect
			checkText(t, res, want.Expect)
			checkDetails(t, res, want.Expect)
			if want.Command != nil && client.asked.Command != *want.Command || client.asked.OutputByteLimit != 51200 {
				t.Errorf("asked for %+v; want %v", client.asked, want.Command)
			}
			if want.First != nil && (!corpus.Subset(t, updates.all[0].Details, want.First) || updates.all[0].Text != "") {
				t.Errorf("first update %+v; want %v", updates.all[0], want.First)
			}
			if want.Contains != nil && !strings.Contains(res.Text, *want.Contains) {
				t.Errorf("text %q; want %q in it", res.Text, *want.Contains)
			}
			if want.Kills != nil && client.count("Kill") != *want.Kills || client.count("Release") != 1 || want.Releases != nil && *want.Releases != 1 {
				t.Errorf("calls %q; want one release and %v kills", client.calls, want.Kills)
			}
			if want.Poll > 0 {
				var polls []time.Duration
				for n := range 10 {
					polls = append(polls, time.Duration(n+1)*time.Duration(want.Poll)*time.Millisecond)
				}
				if polls = append(polls, client.life); !slices.Equal(client.looks, polls) {
					t.Errorf("looked after %v; want %v", client.looks, polls)
				}
			}
		})
	})
}

func TestClientTerminal(t *testing.T) {
	t.Parallel()
	broken := errors.New("the client is broken")
	for _, test := range []struct {
		name    string
		client  fakeClient
		want    string // of the text
		isError bool
		calls   []string
		took    time.Duration
	}{
		{"ends at once", fakeClient{exit: code(0), output: "\x1b[1mhi\x1b[0m\r\n"}, "hi\n\n\nWall time: 0.00 seconds", false, []string{"Create", "Output", "Release"}, 0},
		{"fails", fakeClient{exit: code(3), output: "no"}, "no\n\nWall time: 0.00 seconds\n\nCommand exited with code 3", true, []string{"Create", "Output", "Release"}, 0},
		{"says nothing of its end", fakeClient{exit: &TerminalExit{}}, "(no output)\n\nWall time: 0.00 seconds\n\nCommand failed: missing exit status", true, []string{"Create", "Output", "Release"}, 0},
		{"cannot be created", fakeClient{failing: "Create", fail: broken}, broken.Error(), true, []string{"Create"}, 0},
		{"cannot be waited for", fakeClient{failing: "WaitForExit", fail: broken, life: time.Second}, broken.Error(), true, []string{"Create", "Output", "Output", "Output", "Output", "Release"}, time.Second},
		{"cannot be released", fakeClient{exit: code(0), failing: "Release", fail: broken, output: "x"}, "x\n\nWall time: 0.00 seconds", false, []string{"Create", "Output", "Release"}, 0},
		{"is stuck", fakeClient{stuck: true}, "Command timed out after 2 seconds", true, []string{"Create", "Output", "Kill", "Output", "Release"}, 2*time.Second + 3*clientEnd},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := &test.client
				start := time.Now()
				r := withClient(t, client).Call(t.Context(), tool.BashName, raw(`{"command":"make","env":{"A":"1"},"cwd":"sub","timeout":2}`), Events{})
				if r.Text != test.want || r.IsError != test.isError {
					t.Errorf("%+v; want %q", r, test.want)
				}
				if diff := cmp.Diff(test.calls, client.calls); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
				if took := time.Since(start); took != test.took || took > 7*time.Second {
					t.Errorf("it took %v; want %v, 5s after the timeout at most", took, test.took)
				}
				asked := client.asked
				if asked.Command != "nice make" || asked.Cwd != "/src/sub" || !slices.Contains(asked.Env, TerminalVariable{"A", "1"}) || len(asked.Env) != 42 {
					t.Errorf("asked for %+v; want the contract's variables, and the host's directory", asked)
				}
			})
		})
	}
	raw, err := json.Marshal(CreateTerminal{Command: "x", Env: []TerminalVariable{{"A", "b"}}, OutputByteLimit: 5})
	if want := `{"command":"x","env":[{"name":"A","value":"b"}],"outputByteLimit":5}`; err != nil || string(raw) != want {
		t.Errorf("as JSON: %s, %v; want %s", raw, err, want)
	}
}

func TestOutside(t *testing.T) {
	t.Parallel()
	p := directories{dir: "/workspace", host: "/src"}
	for dir, want := range map[string]string{"": "/src", "/workspace": "/src", "/workspace/a/b": "/src/a/b", "/workspaces": "", "/etc": ""} {
		if got := p.outside(dir); got != want {
			t.Errorf("outside(%q) = %q; want %q", dir, got, want)
		}
	}
	if got := (directories{dir: "/workspace"}).outside(""); got != "" {
		t.Errorf("outside() of a volume = %q; want none", got)
	}
}
