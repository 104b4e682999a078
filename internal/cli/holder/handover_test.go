package holder_test

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
)

// A handover is one line, and what the starter sends after it is left for the holder.
func TestReadHandover(t *testing.T) {
	t.Parallel()
	line, err := json.Marshal(holder.NetworkHandover{
		Handover: holder.Handover{Environ: []string{"A=1\n2"}, Flags: []string{"--engine=x"}}, Secrets: map[string]string{"TOKEN": "c4nary"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var h holder.NetworkHandover
	rest, err := holder.ReadHandover(strings.NewReader(string(line)+"\nmore"), 1<<10, &h, "session start")
	if err != nil {
		t.Fatal(err)
	}
	want := holder.NetworkHandover{
		Handover: holder.Handover{Environ: []string{"A=1\n2"}, Flags: []string{"--engine=x"}}, Secrets: map[string]string{"TOKEN": "c4nary"},
	}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("ReadHandover() (-want +got):\n%s", diff)
	}
	if text, err := io.ReadAll(rest); string(text) != "more" || err != nil {
		t.Errorf("after the handover there is %q, %v; want more", text, err)
	}
}

// What is not a handover is wrong use, whose error names the command to use.
func TestNoHandover(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"nothing": "", "no end": "{}", "no JSON": "hello\n", "another form": "[1]\n", "too long": `{"flags":["` + strings.Repeat("x", 200) + `"]}` + "\n",
	} {
		var h holder.Handover
		_, err := holder.ReadHandover(strings.NewReader(in), 100, &h, "pty start")
		v := exit.Judge(err)
		if err == nil || v.Status != exit.Usage || !strings.Contains(v.Todo, "`sandboxbash pty start`") || !strings.Contains(err.Error(), "no handover") {
			t.Errorf("%s: ReadHandover() = %v, %+v; want wrong use", name, err, v)
		}
	}
}

// A failure is for the starter what its error was for the holder, without its secrets.
func TestFailure(t *testing.T) {
	t.Parallel()
	scrub := func(text string) string { return strings.ReplaceAll(text, "c4nary", "[REDACTED:X]") }
	for name, err := range map[string]error{
		"wrong use": exit.Misuse("do another thing", "size %q", "c4nary"),
		"engine":    &exec.Error{Outcome: exec.Lost, Cause: exec.CauseRunnerLost, Err: errors.New("gone with c4nary")},
		"other":     errors.New("c4nary"),
	} {
		sent, jsonErr := json.Marshal(holder.Answer{Notes: []string{"a note"}, Error: holder.NewFailure(err, scrub)})
		if jsonErr != nil {
			t.Fatal(jsonErr)
		}
		var got holder.Answer
		if err := json.Unmarshal(sent, &got); err != nil {
			t.Fatal(err)
		}
		want := exit.Judge(err)
		if diff := cmp.Diff(want, exit.Judge(got.Error)); diff != "" {
			t.Errorf("%s: the starter's verdict (-want +got):\n%s", name, diff)
		}
		if !strings.Contains(got.Error.Error(), "[REDACTED:X]") || strings.Contains(string(sent), "c4nary") || len(got.Notes) != 1 || got.Terminal != nil {
			t.Errorf("%s: the answer is %s", name, sent)
		}
	}
}
