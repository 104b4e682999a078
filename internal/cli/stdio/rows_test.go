package stdio_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sink"
)

const secret = "c4nary-0123456789"

// masks are the secrets of these tests.
func masks(t *testing.T) func() *sink.Secrets {
	t.Helper()
	secrets, _, err := sink.NewSecrets(sink.FromEnviron([]string{"X_TOKEN=" + secret}))
	if err != nil {
		t.Fatal(err)
	}
	return func() *sink.Secrets { return secrets }
}

// TestAnswerRows: each line that is not blank has one answer, in order, and one that is not ok makes the
// exit status that of wrong use at the end, and not before.
func TestAnswerRows(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken pipe")
	for _, tt := range []struct {
		name string
		in   io.Reader
		want string
		err  error
	}{
		{"none", strings.NewReader(""), "", nil},
		{"blank ones", strings.NewReader("\n \t\r\n\n"), "", nil},
		{"two, and no line end", strings.NewReader("a\n\nb"), "1:a 3:b", nil},
		{"line ends of Windows", strings.NewReader("a\r\nb\r\n"), "1:a 2:b", nil},
		{"a bad one does not end it", strings.NewReader("a\nbad\nb\n"), "1:a 2:bad 3:b", exit.StatusError(exit.Usage)},
		{"byte by byte", iotest.OneByteReader(strings.NewReader("a\nb\n")), "1:a 2:b", nil},
		{"longer than a buffer", strings.NewReader(strings.Repeat("x", 200<<10) + "\nb\n"), "1:" + strings.Repeat("x", 200<<10) + " 2:b", nil},
		{"an error behind a line", io.MultiReader(strings.NewReader("a\nhalf"), iotest.ErrReader(broken)), "1:a", broken},
	} {
		var out bytes.Buffer
		s := stdio.New(tt.in, &out, io.Discard, masks(t))
		err := s.AnswerRows(t.Context(), "rows", func(l stdio.InputLine) (any, bool) {
			number, _, _ := strings.Cut(strings.TrimPrefix(l.Fault(io.EOF), "line "), ":")
			text := strings.TrimSpace(string(l.Text))
			return number + ":" + text, text != "bad"
		})
		if !errors.Is(err, tt.err) {
			t.Errorf("%s: %v; want %v", tt.name, err, tt.err)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			var text string
			if err := json.Unmarshal([]byte(line), &text); err != nil {
				t.Errorf("%s: %q: %v", tt.name, line, err)
			}
			got = append(got, text)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %.200q; want %.200q", tt.name, got, tt.want)
		}
	}
}

// TestLongRow: a line that is too long is answered with its fault, and the next one is read.
func TestLongRow(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"\nnext\n", ""} {
		in := io.MultiReader(io.LimitReader(letters{}, stdio.MaxRow+1), strings.NewReader(end))
		var faults, texts []string
		err := stdio.New(in, io.Discard, io.Discard, masks(t)).AnswerRows(t.Context(), "rows", func(l stdio.InputLine) (any, bool) {
			if l.Err != nil {
				faults = append(faults, l.Fault(l.Err))
			} else {
				texts = append(texts, strings.TrimSpace(string(l.Text)))
			}
			return nil, true
		})
		if err != nil || len(faults) != 1 || !strings.HasPrefix(faults[0], "line 1: it is longer than") || strings.Join(texts, " ") != strings.TrimSpace(end) {
			t.Errorf("with %q behind it: faults %q, texts %.50q, %v", end, faults, texts, err)
		}
	}
}

type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// TestRowsEnd: an input that says nothing does not hold up the end of a call.
func TestRowsEnd(t *testing.T) {
	t.Parallel()
	in, w := io.Pipe()
	defer func() { _ = w.Close() }()
	ended := errors.New("Ctrl-C")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ended)
	s := stdio.New(in, io.Discard, io.Discard, masks(t))
	if err := s.AnswerRows(ctx, "rows", nil); !errors.Is(err, ended) {
		t.Errorf("AnswerRows = %v; want why it was ended", err)
	}
	if b, err := stdio.ReadAll(ctx, in, 10); !errors.Is(err, ended) || b != nil {
		t.Errorf("ReadAll = %q, %v; want why it was ended", b, err)
	}
	if b, err := stdio.ReadAll(t.Context(), strings.NewReader("0123456789abc"), 10); string(b) != "0123456789" || err != nil {
		t.Errorf("ReadAll = %q, %v; want the first ten bytes", b, err)
	}
}

// TestPrintJSON: a document masks secrets within its texts and stays JSON, on one line, behind what was written
// before it, and holds nothing that a CI runner takes for a command.
func TestPrintJSON(t *testing.T) {
	t.Parallel()
	for _, guarded := range []sink.Runners{0, sink.GitHub | sink.GitLab} {
		var out bytes.Buffer
		s := stdio.New(nil, &out, io.Discard, masks(t))
		s.Guard(guarded)
		for _, text := range []string{"<a&b>", "##[error]x", "###", "\n::set-env::", "say " + secret + "!", "\x1b[0Ksection_start:"} {
			out.Reset()
			_, _ = io.WriteString(s.Stdout, "before ")
			if err := stdio.PrintJSON(s.Stdout, map[string]string{"text": text}); err != nil {
				t.Fatal(err)
			}
			doc, ok := strings.CutPrefix(out.String(), "before ")
			var got map[string]string
			if err := json.Unmarshal([]byte(doc), &got); !ok || err != nil || strings.Count(doc, "\n") != 1 {
				t.Errorf("%q is printed as %q, %v", text, out.String(), err)
			}
			if want := strings.ReplaceAll(text, secret, "[REDACTED:X_TOKEN]"); got["text"] != want {
				t.Errorf("%q is read as %q; want %q", text, got["text"], want)
			}
			if strings.Contains(doc, "##") || strings.ContainsAny(doc, "\x1b") || strings.Contains(doc, secret) {
				t.Errorf("%q is printed as %q", text, doc)
			}
		}
	}
	if err := stdio.PrintJSON(io.Discard, func() {}); err == nil {
		t.Error("what cannot be JSON is printed")
	}
}

// TestMaskedAcrossWrites: a secret is masked wherever the writes are cut, and a stream that fails is an
// error at the end.
func TestMaskedAcrossWrites(t *testing.T) {
	t.Parallel()
	text := "token " + secret + " end\n"
	for cut := range text {
		var out bytes.Buffer
		s := stdio.New(nil, &out, io.Discard, masks(t))
		_, _ = io.WriteString(s.Stdout, text[:cut])
		_, _ = io.WriteString(s.Stdout, text[cut:])
		if err := s.EndMasked(); err != nil || out.String() != "token [REDACTED:X_TOKEN] end\n" {
			t.Errorf("cut at %d: %q, %v", cut, out.String(), err)
		}
		out.Reset()
		lines := s.Lines(&out)
		row := `{"id":"` + secret + `","text":"` + secret + `"}` + "\n"
		at := min(cut, len(row))
		_, _ = io.WriteString(lines, row[:at])
		_, _ = io.WriteString(lines, row[at:])
		if want := `{"id":"` + secret + `","text":"[REDACTED:X_TOKEN]"}` + "\n"; out.String() != want {
			t.Errorf("cut at %d: %q; want %q: the id is its client's own", cut, out.String(), want)
		}
	}
	broken := errors.New("no space left on device")
	s := stdio.New(nil, failing{broken}, failing{broken}, masks(t))
	_, _ = io.WriteString(s.Stdout, "x")
	if err := s.EndMasked(); !errors.Is(err, broken) {
		t.Errorf("EndMasked = %v; want the first error of standard output", err)
	}
	s = stdio.New(nil, io.Discard, failing{broken}, masks(t))
	_, _ = io.WriteString(s.Stderr, "x")
	if err := s.EndMasked(); err != nil {
		t.Errorf("with a standard error that fails EndMasked = %v; want none", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestGuard: what looks like a command to a CI runner is neutralised where a job's log may be, and that is said once.
func TestGuard(t *testing.T) {
	t.Parallel()
	const command = "::set-output name=x::y\n"
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for _, tt := range []struct {
		name  string
		kinds sink.Runners
		out   io.Writer // nil: a pipe, or what looks like one
		quiet bool
		plain bool // the command stays as it is
		note  bool
	}{
		{"no runner", 0, nil, false, true, false},
		{"a pipe", sink.GitHub, nil, false, false, true},
		{"quiet", sink.GitHub, nil, true, false, false},
		{"a file, which GitHub does not read", sink.GitHub, file, false, true, false},
	} {
		var pipe, errs bytes.Buffer
		out := tt.out
		if out == nil {
			out = &pipe
		}
		s := stdio.New(nil, out, &errs, masks(t))
		s.Guard(tt.kinds)
		_, _ = io.WriteString(s.Stdout, command)
		if err := s.EndMasked(); err != nil {
			t.Error(err)
		}
		s.Unguard(tt.quiet)
		got := pipe.String()
		if tt.out != nil {
			b, err := os.ReadFile(file.Name())
			if err != nil {
				t.Error(err)
			}
			got = string(b)
		}
		if (got == command) != tt.plain || !strings.Contains(got, "set-output name=x") {
			t.Errorf("%s: %q is written; want it as it is: %v", tt.name, got, tt.plain)
		}
		if strings.Contains(errs.String(), "1 places") != tt.note {
			t.Errorf("%s: standard error has %q; want a note: %v", tt.name, errs.String(), tt.note)
		}
	}
}

// TestTables: columns are aligned, what has no value is left out, and no name leaves its line.
func TestTables(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := stdio.New(nil, &out, io.Discard, masks(t))
	if err := s.Fields([][2]string{{"id", "1"}, {"nothing", ""}, {"name", "two\nlines \x1b[31m" + secret}}); err != nil {
		t.Error(err)
	}
	_ = s.EndMasked()
	if want := "id    1\nname  two\\nlines \\x1b[31m[REDACTED:X_TOKEN]\n"; out.String() != want {
		t.Errorf("%q; want %q", out.String(), want)
	}
	if got := s.Safe("two\nlines\x1b[31m"); strings.ContainsAny(got, "\n\x1b") {
		t.Errorf("a part of a line is %q", got)
	}
	if s.Listing(true) != nil || s.Listing(false) != s.Stdout {
		t.Error("--quiet leaves out the wrong listing")
	}
	restored := 0
	s.RestoreTerminal()
	s.AtExit(func() { restored++ })
	s.RestoreTerminal()
	if restored != 1 {
		t.Errorf("the terminal was put back %d times", restored)
	}
}
