package tool

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/corpus"
)

func TestTimeoutCorpus(t *testing.T) {
	t.Parallel()
	type row struct {
		Requested json.RawMessage `json:"requested"`
		Given     bool            `json:"requested_given"`
		Effective float64         `json:"effective_seconds"`
		Ms        int64           `json:"timeout_ms"`
		Notice    *string         `json:"notice"`
		Details   map[string]any  `json:"details"`
		Message   *string         `json:"timed_out_message"`
		Error     string          `json:"error"`
		Threshold float64         `json:"threshold_ms"`
		Seconds   float64         `json:"timeout_seconds"`
		Wait      int64           `json:"wait_ms"`
		Mode      *string         `json:"mode"`
		Command   string          `json:"command"`
		Expect    struct {
			FirstLine string   `json:"first_line"`
			Contains  []string `json:"contains"`
		} `json:"expect"`
	}
	corpus.File{Path: "tool/testdata/timeout.jsonl", Ran: 32}.Run(t, func(t *testing.T, c corpus.Row) {
		t.Helper()
		var r row
		c.Into(t, &r)
		if c.Kind == "auto_background_wait" {
			got := autoBackgroundWait(r.Threshold, Timeout{Seconds: r.Seconds}.Duration())
			if got.Milliseconds() != r.Wait {
				t.Errorf("autoBackgroundWait(%v, %vs) = %v; want %d ms", r.Threshold, r.Seconds, got, r.Wait)
			}
			return
		}
		fields := map[string]any{"command": "true"}
		if r.Given {
			fields["timeout"] = r.Requested
		}
		if r.Mode != nil {
			fields["mode"] = *r.Mode
		}
		contract := contractOf(t, c.Letter())
		p := contract.Plan(corpus.Arguments(t, fields), defaultHost())
		if r.Error != "" {
			// The words are those of contract modes; for agent only that there are some.
			if got := errorOf(p); got == "" || c.Contract == "C" && got != r.Error {
				t.Errorf("error %q; want %q", got, r.Error)
			}
			return
		}
		if r.Effective == 0 { // a row that only names its mode
			r.Effective = modeTimeouts[*r.Mode]
		}
		if p.Err != nil || p.Timeout.Seconds != r.Effective || r.Ms > 0 && p.Timeout.Duration().Milliseconds() != r.Ms {
			t.Fatalf("timeout %v, error %q; want %v", p.Timeout, errorOf(p), r.Effective)
		}
		if r.Notice != nil && !slices.Equal(p.Notices, []string{*r.Notice}) || r.Notice == nil && len(p.Notices) > 0 {
			t.Errorf("notices %q; want %v", p.Notices, r.Notice)
		}
		if !corpus.Subset(t, p.details(), r.Details) {
			t.Errorf("details %+v; want %v", p.details(), r.Details)
		}
		res := contract.Result(p, ran(t, "partial\n", timeout))
		if r.Message != nil && !strings.Contains(res.Text, *r.Message) {
			t.Errorf("result %q; want %q in it", res.Text, *r.Message)
		}
		if r.Expect.FirstLine != "" {
			first, rest, _ := strings.Cut(res.Text, "\n")
			if first != r.Expect.FirstLine || rest != "partial\n" || !res.IsError {
				t.Errorf("result %q; want %q and the output", res.Text, r.Expect.FirstLine)
			}
		}
	})
}

func TestEnvCorpus(t *testing.T) {
	t.Parallel()
	type row struct {
		Key      string            `json:"key"`
		Value    string            `json:"value"`
		Valid    bool              `json:"valid"`
		Error    *string           `json:"error"`
		Env      map[string]string `json:"env"`
		Command  string            `json:"command"`
		Trim     *string           `json:"stdout_trim"`
		Exact    *string           `json:"stdout_exact"`
		Withheld bool              `json:"withheld"`
	}
	agent := contractOf(t, "A")
	checks := map[string]func(*testing.T, row){
		"key": func(t *testing.T, r row) {
			t.Helper()
			p := agent.Plan(corpus.Arguments(t, map[string]any{"command": "true", "env": map[string]string{r.Key: "v"}}), defaultHost())
			want := ""
			if r.Error != nil {
				want = *r.Error
			}
			if got := errorOf(p); got != want || (got == "") != r.Valid {
				t.Errorf("error %q; want %q", got, want)
			}
			if r.Valid && p.Env[r.Key] != "v" {
				t.Errorf("Env[%q] = %q; want it set", r.Key, p.Env[r.Key])
			}
		},
		"behaviour": func(t *testing.T, r row) {
			t.Helper()
			p := agent.Plan(corpus.Arguments(t, map[string]any{"command": r.Command, "env": r.Env}), defaultHost())
			out, _ := bash(t, p, t.TempDir())
			switch {
			case r.Exact != nil && out != *r.Exact, r.Trim != nil && strings.TrimSpace(out) != *r.Trim:
				t.Errorf("%s printed %q", r.Command, out)
			}
		},
		"order": func(t *testing.T, r row) {
			t.Helper()
			h := defaultHost()
			h.Settings.Interceptor, h.Tools = true, []string{"read"}
			p := agent.Plan(corpus.Arguments(t, map[string]any{"command": r.Command, "env": r.Env, "async": true}), h)
			if got := errorOf(p); got != *r.Error {
				t.Errorf("error %q; want %q", got, *r.Error)
			}
		},
		"non_interactive_default": func(t *testing.T, r row) {
			t.Helper()
			p := agent.Plan(corpus.Arguments(t, map[string]any{"command": "true"}), defaultHost())
			if got, ok := p.Env[r.Key]; !ok || got != r.Value {
				t.Errorf("Env[%q] = %q, %v; want %q", r.Key, got, ok, r.Value)
			}
		},
		"secret_withheld": func(t *testing.T, r row) {
			t.Helper()
			if got := WithheldByModes(r.Key); got != r.Withheld {
				t.Errorf("WithheldByModes(%q) = %v; want %v", r.Key, got, r.Withheld)
			}
		},
	}
	corpus.File{Path: "sink/testdata/env.jsonl", Ran: 67}.Run(t, func(t *testing.T, c corpus.Row) {
		t.Helper()
		var r row
		c.Into(t, &r)
		checks[c.Kind](t, r)
	})
}
