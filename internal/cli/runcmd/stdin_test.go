package runcmd

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// A pipe and a file are the command's input, unless they are the script's, it is a job, or the
// user says otherwise.
func TestStdinFor(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	path := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	words := []string{"make", "test"}
	for _, row := range []struct {
		name  string
		stdin io.Reader
		run   config.Run
		words []string
		job   bool
		want  bool
	}{
		{"a pipe", r, config.Run{}, words, false, true},
		{"a file", file, config.Run{}, words, false, true},
		{"/dev/null", null, config.Run{}, words, false, false},
		{"not of this process", strings.NewReader("x"), config.Run{}, words, false, false},
		{"-n", r, config.Run{NoStdin: true}, words, false, false},
		{"--stdin", null, config.Run{Stdin: true}, words, false, true},
		{"the script", r, config.Run{}, []string{"-"}, false, false},
		{"the script with arguments", r, config.Run{}, []string{"-", "a"}, false, false},
		{"the script as a file", r, config.Run{File: "-"}, []string{"a"}, false, false},
		{"- as an argument", r, config.Run{File: "x.sh"}, []string{"-"}, false, true},
		{"a job", r, config.Run{}, words, true, false},
	} {
		p := core.New("", nil, row.stdin, io.Discard, io.Discard)
		p.Cfg.Config = &config.Config{Run: row.run}
		got, err := New(p).stdinFor(core.Words{List: row.words}, row.job)
		if err != nil || (got != nil) != row.want {
			t.Errorf("%s: stdinFor() = %v, %v; want one: %t", row.name, got, err, row.want)
		}
	}
}

// A command that has timed out may have waited for a pipe in which nothing came.
func TestStdinSilent(t *testing.T) {
	t.Parallel()
	late := sandbox.Result{Status: exec.Status{Reason: exec.TimedOut}}
	if (*given)(nil).silent(late) {
		t.Error("without an input: silent")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	g := &given{File: r}
	if !g.silent(late) || g.silent(sandbox.Result{Status: exec.Status{Reason: exec.Exited}}) {
		t.Error("nothing came, and it is not silent for a timeout alone")
	}
	_ = w.Close()
	if _, err := g.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // as it is
		t.Fatal(err)
	}
	if g.silent(late) {
		t.Error("the end of the input came, and it is silent")
	}
}
