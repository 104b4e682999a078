package core

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
)

// A holder goes on with the variables and flags of its starter, and gathers the notes from then on.
func TestTakeOver(t *testing.T) { //nolint:paralleltest // it leaves its directory
	t.Chdir(t.TempDir())
	p := New("", []string{"HOME=/nowhere", "SANDBOXBASH_TIMEOUT=1s"}, nil, io.Discard, io.Discard)
	cmd := &cobra.Command{Use: "hold"}
	flags.Add(cmd, "timeout", "session.id")
	home := t.TempDir()
	err := p.Cfg.TakeOver(cmd, holder.Handover{
		Environ: []string{"HOME=" + home, "SANDBOXBASH_TIMEOUT=5m", "SANDBOXBASH_TIMEOT=1"}, Flags: []string{"--session=0199"},
	})
	if err != nil || p.Cfg.Timeout.String() != "5m0s" || p.Cfg.Session.ID != "0199" || p.Env.Getenv("HOME") != home {
		t.Errorf("TakeOver() = %v, timeout %v, session %q, HOME %s", err, p.Cfg.Timeout, p.Cfg.Session.ID, p.Env.Getenv("HOME"))
	}
	if dir, err := os.Getwd(); err != nil || dir != "/" {
		t.Errorf("the working directory is %s, %v; want one that stays", dir, err)
	}
	if got := p.Notes.Gathered(); got != nil {
		t.Errorf("there are the notes %q; want none: the starter has shown them", got)
	}
	p.Notes.Add("a note")
	if got := p.Notes.Gathered(); !slices.Equal(got, []string{"a note"}) {
		t.Errorf("there are the notes %q; want those after it", got)
	}
}

// What the starter has said wrong is an error, for its answer.
func TestTakeOverFails(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]holder.Handover{
		"an unknown flag": {Environ: []string{"HOME=/nowhere"}, Flags: []string{"--frob"}},
		"a bad value":     {Environ: []string{"HOME=/nowhere"}, Flags: []string{"--timeout=never"}},
		"a bad variable":  {Environ: []string{"HOME=/nowhere", "SANDBOXBASH_TIMEOUT=never"}},
	} {
		var out, errs bytes.Buffer
		p := New("", nil, nil, &out, &errs)
		cmd := &cobra.Command{Use: "hold"}
		flags.Add(cmd, "timeout")
		if err := p.Cfg.TakeOver(cmd, h); err == nil {
			t.Errorf("%s: TakeOver() = nil; want an error", name)
		}
		_ = p.Streams.EndMasked()
		if out.Len()+errs.Len() > 0 {
			t.Errorf("%s: it prints %q, %q; want nothing: the starter shows the error", name, out.String(), errs.String())
		}
	}
}

// The answer has the terminal or the error, the notes, and no secret.
func TestAnswer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		terminal *holder.Row
		err      error
		status   int
	}{
		"a terminal": {&holder.Row{ID: "pty_1"}, nil, 0},
		"a network":  {nil, nil, 0},
		"wrong use":  {nil, exit.Misuse("do better", "bad c4nary-0123456789"), exit.Usage},
		"an error":   {nil, errors.New("c4nary-0123456789 has gone"), exit.Engine},
	} {
		var out bytes.Buffer
		p := New("", []string{"X_TOKEN=c4nary-0123456789"}, nil, &out, io.Discard)
		p.Notes.Restart()
		p.Notes.Add("with c4nary-0123456789")
		err := p.Notes.Answer(test.terminal, test.err)
		_ = p.Streams.EndMasked()
		var answer holder.Answer
		if err := json.Unmarshal(out.Bytes(), &answer); err != nil || strings.Count(out.String(), "\n") != 1 || strings.Contains(out.String(), "c4nary") {
			t.Errorf("%s: the answer is %q: %v", name, out.String(), err)
		}
		if len(answer.Notes) != 1 || (answer.Terminal != nil) != (test.terminal != nil) || (answer.Error != nil) != (test.err != nil) {
			t.Errorf("%s: the answer is %+v", name, answer)
		}
		if test.err == nil {
			if err != nil {
				t.Errorf("%s: Answer() = %v", name, err)
			}
			continue
		}
		if status, ok := errors.AsType[exit.StatusError](err); !ok || int(status) != test.status || answer.Error.Status != test.status {
			t.Errorf("%s: Answer() = %v, and the answer has the status %d; want %d", name, err, answer.Error.Status, test.status)
		}
	}
}

// A starter that has gone does not read the answer, which is an error.
func TestAnswerUnread(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	p := New("", nil, nil, w, io.Discard)
	if err := errors.Join(p.Notes.Answer(nil, nil), p.Streams.EndMasked()); err == nil {
		t.Error("Answer() = nil; want the error of the write")
	}
	_ = w.Close()
}
