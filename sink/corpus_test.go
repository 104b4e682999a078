package sink

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A row of the corpus of truncation. What a row holds depends on its kind.
type row struct {
	ID         string          `json:"id"`
	Tier       string          `json:"tier"`
	Kind       string          `json:"kind"`
	Text       string          `json:"text"`
	Appends    []corpusText    `json:"appends"`
	Chunks     json.RawMessage `json:"chunks"`
	MaxBytes   int             `json:"max_bytes"`
	Bytes      int64           `json:"bytes"`
	Elided     int64           `json:"elided_lines"`
	ElidedSize int64           `json:"elided_bytes"`
	Options    json.RawMessage `json:"options"`
	Expect     json.RawMessage `json:"expect"`
}

// corpusText is a text that is written out, described ("repeat" or "seq"), or
// known by its hash.
type corpusText struct {
	text   string
	known  bool // text is the text
	size   int
	sha256 string
}

func (t *corpusText) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &t.text) == nil {
		t.known = true
		return nil
	}
	var d struct {
		Text   *string
		Repeat string
		Count  int
		Seq    []int
		Bytes  int
		SHA256 string
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return err
	}
	t.known = d.SHA256 == ""
	t.size, t.sha256 = d.Bytes, d.SHA256
	switch {
	case d.Text != nil:
		t.text = *d.Text
	case d.Seq != nil:
		var b strings.Builder
		for i := d.Seq[0]; i <= d.Seq[1]; i++ {
			fmt.Fprintln(&b, i)
		}
		t.text = b.String()
	default:
		t.text = strings.Repeat(d.Repeat, d.Count)
	}
	return nil
}

func (t *corpusText) check(tb testing.TB, what, got string) {
	tb.Helper()
	if t.known {
		if got != t.text {
			tb.Errorf("%s = %.200q; want %.200q", what, got, t.text)
		}
		return
	}
	sum := sha256.Sum256([]byte(got))
	if len(got) != t.size || hex.EncodeToString(sum[:]) != t.sha256 {
		tb.Errorf("%s: %d bytes, %.40q…; want %d bytes with sha256 %s", what, len(got), got, t.size, t.sha256)
	}
}

func readRows[T any](tb testing.TB, name string) []T {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	var rows []T
	for line := range strings.Lines(string(data)) {
		var r T
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			tb.Fatalf("%v in %s", err, line)
		}
		rows = append(rows, r)
	}
	return rows
}

// ours are the rows of tier version that hold here too.
var ours = map[string]bool{
	"trn-045": true, "trn-046": true, "trn-043": true,
	"trn-076": true, "trn-078": true, // head bytes as an option
}

func TestTruncationCorpus(t *testing.T) {
	t.Parallel()
	ran := map[string]int{}
	for _, r := range readRows[row](t, "truncation.jsonl") {
		if r.Tier == "version" && !ours[r.ID] || slices.Contains(tools, r.Kind) {
			continue
		}
		ran[r.Kind]++
		t.Run(r.ID, func(t *testing.T) {
			t.Parallel()
			check, ok := checks[r.Kind]
			if !ok {
				t.Fatalf("row of unknown kind %s", r.Kind)
			}
			check(t, r)
		})
	}
	for kind := range checks {
		if ran[kind] == 0 {
			t.Errorf("no row of kind %s", kind)
		}
	}
}

var checks = map[string]func(*testing.T, row){
	"truncate_bytes_head": func(t *testing.T, r row) {
		t.Helper()
		checkBytes(t, r, HeadBytes)
	},
	"truncate_bytes_tail": func(t *testing.T, r row) {
		t.Helper()
		checkBytes(t, r, TailBytes)
	},
	"middle_marker": func(t *testing.T, r row) {
		t.Helper()
		checkText(t, r, fmt.Sprintf("middleMarker(%d, %d)", r.Elided, r.ElidedSize), middleMarker(r.Elided, r.ElidedSize))
	},
	"format_bytes": func(t *testing.T, r row) {
		t.Helper()
		checkText(t, r, fmt.Sprintf("FormatBytes(%d)", r.Bytes), FormatBytes(r.Bytes))
	},
	"tail_buffer": checkTailBuffer,
	"sink":        checkSink,
}

// tools are the kinds of rows about texts of the contracts, which package tool tests.
var tools = []string{"truncate_head", "truncate_tail", "truncate_middle", "truncate_line", "modes_middle", "simple_limit"}

func decodeExpect[T any](t *testing.T, raw json.RawMessage) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return v
}

func checkText(t *testing.T, r row, call, got string) {
	t.Helper()
	if want := decodeExpect[struct{ Text string }](t, r.Expect).Text; got != want {
		t.Errorf("%s = %q; want %q", call, got, want)
	}
}

func checkBytes(t *testing.T, r row, f func(string, int) string) {
	t.Helper()
	got := f(r.Text, r.MaxBytes)
	checkText(t, r, fmt.Sprintf("cut(%q, %d)", r.Text, r.MaxBytes), got)
}

func checkTailBuffer(t *testing.T, r row) {
	t.Helper()
	want := decodeExpect[struct {
		Output corpusText
		Bytes  int
	}](t, r.Expect)
	b := newWindow(Tail(r.MaxBytes))
	for _, a := range r.Appends {
		b.write([]byte(a.text))
	}
	head, tail, _ := b.view()
	want.Output.check(t, "tail", head+tail)
	if n := len(head + tail); n != want.Bytes {
		t.Errorf("kept %d bytes; want %d", n, want.Bytes)
	}
}

type sinkRow struct {
	Truncated   bool
	TotalLines  int64  `json:"total_lines"`
	TotalBytes  int64  `json:"total_bytes"`
	OutputLines int64  `json:"output_lines"`
	OutputBytes int64  `json:"output_bytes"`
	ElidedLines *int64 `json:"elided_lines"`
	ElidedBytes *int64 `json:"elided_bytes"`
	Output      corpusText
	Artifact    *corpusText
	Recommended *corpusText `json:"artifact_recommended"`
	ArtifactID  *string     `json:"artifact_id"`
}

func checkSink(t *testing.T, r row) {
	t.Helper()
	o := decodeExpect[struct {
		Spill    int     `json:"spill_threshold"`
		Head     int     `json:"head_bytes"`
		Artifact bool    `json:"artifact"`
		Notice   *string `json:"notice"`
	}](t, r.Options)
	want := decodeExpect[sinkRow](t, r.Expect)
	var session *Session
	if o.Artifact {
		session = newTestSession(t)
	}
	s, err := New(Options{Streams: Merged, Window: HeadTail(o.Head, o.Spill)}, session, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range decodeExpect[[]corpusText](t, r.Chunks) {
		writeAll(t, s.Stdout(), c.text)
	}
	out := s.Close()
	if o.Notice == nil { // else package tool puts that in front of the text
		want.Output.check(t, "output", out.Stdout.Text())
	}
	if out.Truncated() != want.Truncated || out.Stdout.Lines != want.TotalLines || out.Stdout.TextBytes != want.TotalBytes {
		t.Errorf("truncated %v, %d lines, %d bytes; want %s", out.Truncated(), out.Stdout.Lines, out.Stdout.TextBytes, r.Expect)
	}
	checkSinkArtifact(t, want, out.Artifact)
}

func checkSinkArtifact(t *testing.T, r sinkRow, a Artifact) {
	t.Helper()
	want := r.Artifact
	if r.Recommended != nil {
		want = r.Recommended
	}
	if want == nil {
		if a.Stored {
			t.Errorf("there is an artifact %+v; want none", a)
		}
		return
	}
	if !a.Complete || a.ID != *r.ArtifactID {
		t.Fatalf("artifact %+v; want a complete one with id %s", a, *r.ArtifactID)
	}
	data, err := os.ReadFile(a.Path)
	if err != nil {
		t.Fatal(err)
	}
	want.check(t, "artifact", string(data))
}
