package tool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/corpus"
	"github.com/sandboxbash/sandboxbash/sink"
)

// sinks are the kinds of rows that package sink tests.
var sinks = []string{"truncate_bytes_head", "truncate_bytes_tail", "middle_marker", "format_bytes", "tail_buffer"}

// headVersions are the rows of tier version that hold here too: they give the head's
// bytes as an option.
var headVersions = []string{"trn-076", "trn-078"}

// described is a text that is written out, described, or known by its hash.
type described struct {
	Text   *string
	Repeat string
	Count  int
	Seq    []int
	Bytes  int
	SHA256 string
}

func (d *described) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		d.Text = &text
		return nil
	}
	type plain described
	return json.Unmarshal(data, (*plain)(d))
}

func (d *described) String() string {
	var b strings.Builder
	switch {
	case d.Text != nil:
		return *d.Text
	case d.Seq != nil:
		for i := d.Seq[0]; i <= d.Seq[1]; i++ {
			fmt.Fprintln(&b, i)
		}
	default:
		return strings.Repeat(d.Repeat, d.Count)
	}
	return b.String()
}

// matches tells whether text is what is described.
func (d *described) matches(text string) bool {
	if d.SHA256 == "" {
		return text == d.String()
	}
	sum := sha256.Sum256([]byte(text))
	return len(text) == d.Bytes && hex.EncodeToString(sum[:]) == d.SHA256
}

// cutExpected is what a row wants of a text that is cut.
type cutExpected struct {
	Content     described
	TruncatedBy *sink.By `json:"truncated_by"`
	TotalLines  int64    `json:"total_lines"`
	TotalBytes  int64    `json:"total_bytes"`
	OutputLines *int64   `json:"output_lines"`
	OutputBytes *int64   `json:"output_bytes"`
	Partial     *bool    `json:"last_line_partial"`
	Exceeds     *bool    `json:"first_line_exceeds_limit"`
	ElidedLines *int64   `json:"elided_lines"`
	ElidedBytes *int64   `json:"elided_bytes"`
}

func (want cutExpected) check(t *testing.T, name string, got excerpt, truncated bool) {
	t.Helper()
	if !want.Content.matches(got.Text) || (got.Truncation != nil) != truncated {
		t.Fatalf("%s() = %.200q, %+v; want %.200q, truncated %v", name, got.Text, got.Truncation, want.Content.String(), truncated)
	}
	if !truncated {
		return
	}
	tr := got.Truncation
	same := tr.TotalLines == want.TotalLines && tr.TotalBytes == want.TotalBytes &&
		tr.OutputLines == *want.OutputLines && tr.OutputBytes == *want.OutputBytes &&
		tr.TruncatedBy == *want.TruncatedBy && got.LastLinePartial == *want.Partial &&
		got.FirstLineExceedsLimit == *want.Exceeds
	if want.ElidedLines != nil {
		same = same && tr.ElidedLines == *want.ElidedLines && tr.ElidedBytes == *want.ElidedBytes
	}
	if !same {
		t.Errorf("%s(): %+v, partial %v, exceeds %v; want %+v", name, *tr, got.LastLinePartial, got.FirstLineExceedsLimit, want)
	}
}

// The rows about what the contracts make of a cut output.
func TestTruncationCorpus(t *testing.T) {
	t.Parallel()
	type row struct {
		Stream  string      `json:"stream"`
		Input   described   `json:"input"`
		Command string      `json:"command"`
		Chunks  []described `json:"chunks"`
		Text    string      `json:"text"`
		Chars   int         `json:"max_chars"`
		Content described   `json:"content"`
		Options struct {
			MaxLines     int     `json:"maxLines"`
			MaxBytes     int     `json:"maxBytes"`
			MaxHeadBytes int     `json:"maxHeadBytes"`
			MaxHeadLines int     `json:"maxHeadLines"`
			Spill        int     `json:"spill_threshold"`
			Head         int     `json:"head_bytes"`
			Artifact     bool    `json:"artifact"`
			Notice       *string `json:"notice"`
		} `json:"options"`
		Expect struct {
			Output      described        `json:"output"`
			Notice      string           `json:"notice"`
			Meta        *sink.Truncation `json:"meta"`
			Truncated   bool             `json:"truncated"`
			Kept        int              `json:"kept_bytes"`
			Suffix      string           `json:"suffix"`
			First       string           `json:"first_line"`
			Second      string           `json:"second_line_prefix"`
			FirstBest   *string          `json:"first_line_recommended"`
			Head        int              `json:"head_bytes"`
			Tail        int              `json:"tail_bytes"`
			TotalAtMost int              `json:"max_total_bytes"`
			Text        string           `json:"text"`
			WasCut      bool             `json:"wasTruncated"`
			cutExpected
		} `json:"expect"`
	}
	cutting := func(name string, shorten func(string, cutLimits) excerpt) func(*testing.T, row) {
		return func(t *testing.T, r row) {
			t.Helper()
			o := r.Options
			got := shorten(r.Content.String(), cutLimits{o.MaxLines, o.MaxBytes, o.MaxHeadLines, o.MaxHeadBytes})
			r.Expect.check(t, name, got, r.Expect.Truncated)
		}
	}
	checks := map[string]func(*testing.T, row){
		"truncate_head":   cutting("cutHead", cutHead),
		"truncate_tail":   cutting("cutTail", cutTail),
		"truncate_middle": cutting("cutMiddle", cutMiddle),
		"truncate_line": func(t *testing.T, r row) {
			t.Helper()
			if got, cut := cutLine(r.Text, r.Chars); got != r.Expect.Text || cut != r.Expect.WasCut {
				t.Errorf("cutLine(%q, %d) = %q, %v; want %q, %v", r.Text, r.Chars, got, cut, r.Expect.Text, r.Expect.WasCut)
			}
		},
		"sink": func(t *testing.T, r row) {
			t.Helper()
			var text strings.Builder
			for _, c := range r.Chunks {
				text.WriteString(c.String())
			}
			s := DefaultSettings()
			s.WindowBytes, s.HeadBytes = r.Options.Spill, r.Options.Head
			var session *sink.Session
			if r.Options.Artifact {
				session = store(t)
			}
			o := kept(t, text.String(), success, AgentOutput(s, Foreground), session)
			if n := r.Options.Notice; n != nil { // of a command that was ended
				o.Reason = exec.Cancelled
				if strings.HasPrefix(*n, "Command timed out") {
					o.Reason = exec.TimedOut
				}
				got := agentContract{}.Result(Plan{Contract: Agent, Timeout: Timeout{Seconds: 1}}, o).Text
				if want := r.Expect.Output.String(); *n != "notice" && got != want {
					t.Errorf("text %q; want %q", got, want)
				}
				return
			}
			res := agentContract{}.Result(Plan{Contract: Agent}, o)
			shown, rest, _ := strings.Cut(res.Text, "\n\nWall time: 0.01 seconds")
			if shown == "(no output)" {
				shown = ""
			}
			if !r.Expect.Output.matches(shown) || rest != r.Expect.Notice {
				t.Errorf("output %.60q…, notice %q; want %q", shown, rest, r.Expect.Notice)
			}
			var got *sink.Truncation
			if res.Details.Meta != nil {
				got = res.Details.Meta.Truncation
			}
			if diff := cmp.Diff(r.Expect.Meta, got); diff != "" {
				t.Errorf("details.meta.truncation differs (-want +got):\n%s", diff)
			}
		},
		"modes_middle": func(t *testing.T, r row) {
			t.Helper()
			if r.Command != "" {
				p := modesContract{}.Plan(corpus.Arguments(t, map[string]any{"command": r.Command}), defaultHost())
				res := modesContract{}.Result(p, runLocal(t, p, t.TempDir(), nil))
				if lines := strings.SplitN(res.Text, "\n", 3); lines[0] != r.Expect.First || !strings.HasPrefix(lines[1], r.Expect.Second) {
					t.Errorf("lines %q and %q; want %q and %q", lines[0], lines[1], r.Expect.First, r.Expect.Second)
				}
				return
			}
			input := r.Input.String()
			res := modesContract{}.Result(Plan{Contract: Modes}, kept(t, input, success, ModesOutput(), nil))
			if !r.Expect.Truncated {
				if res.Text != input {
					t.Errorf("text has %d bytes; want the %d of the input", len(res.Text), len(input))
				}
				return
			}
			first, rest, _ := strings.Cut(res.Text, "\n")
			want := input[:r.Expect.Head] + "\n\n[snip]\n\n" + input[len(input)-r.Expect.Tail:]
			if rest != want || r.Expect.FirstBest != nil && first != *r.Expect.FirstBest {
				t.Errorf("first line %q, then %d bytes; want %v, then %d", first, len(rest), r.Expect.FirstBest, len(want))
			}
			if m := r.Expect.TotalAtMost; m > 0 && len(res.Text) > m {
				t.Errorf("text has %d bytes; want at most %d", len(res.Text), m)
			}
		},
		"simple_limit": func(t *testing.T, r row) {
			t.Helper()
			s := &PlainStreams{}
			to := s.Options().LiveStdout
			if r.Stream == "stderr" {
				to = s.Options().LiveStderr
			}
			if _, err := to.Write([]byte(r.Input.String())); err != nil {
				t.Fatal(err)
			}
			res := plainContract{}.Result(Plan{Contract: Plain}, Outcome{Reason: exec.Exited, Plain: s})
			got := *res.Plain.Stdout
			if r.Stream == "stderr" {
				got = *res.Plain.Stderr
			}
			if want := r.Input.String()[:r.Expect.Kept] + r.Expect.Suffix; got != want {
				t.Errorf("%s has %d bytes; want %d", r.Stream, len(got), len(want))
			}
		},
	}
	leave := func(c corpus.Row) bool {
		return c.Tier == "version" && !slices.Contains(headVersions, c.ID) || slices.Contains(sinks, c.Kind)
	}
	corpus.File{Path: "sink/testdata/truncation.jsonl", Leave: leave, Ran: 43}.Run(t, func(t *testing.T, c corpus.Row) {
		t.Helper()
		var r row
		c.Into(t, &r)
		checks[c.Kind](t, r)
	})
}
