//go:build unix

package ptycmd_test

import (
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/internal/cli/ptycmd"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// A holder hears of it when its starter goes before it knows of the terminal.
func TestStarterGoes(t *testing.T) {
	t.Parallel()
	dir := clitest.SocketDir(t)
	asked := make(chan struct{}, 8)
	l, err := net.Listen("unix", filepath.Join(dir, "engine")) //nolint:noctx // it is closed below
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // of a test
	go func() {     // an engine that takes calls and answers none
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close() // until the test is over
			asked <- struct{}{}
		}
	}()
	line, err := json.Marshal(ptycmd.Handover{
		Handover: holder.Handover{Environ: []string{"HOME=" + dir, "DOCKER_HOST=unix://" + dir + "/engine"}}, Session: "0199", Script: "true",
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := clitest.Process(t, "pty", "hold", "pty_1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
	<-asked
	began := time.Now()
	_ = in.Close()
	_ = cmd.Wait()                                        // its status does not matter
	if took := time.Since(began); took > 20*time.Second { // the engine would be given up after 30 s
		t.Errorf("it took %v", took)
	}
}

// A holder says what is wrong in its answer, in the words and with the status that
// the starter then ends with; it takes nothing for granted.
func TestHandover(t *testing.T) {
	t.Parallel()
	dir := clitest.SocketDir(t)
	hand := func(h ptycmd.Handover) holder.Answer {
		t.Helper()
		line, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		cmd := clitest.Process(t, "pty", "hold", "pty_1")
		in, err := cmd.StdinPipe() // it stays open: the starter is there
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Write(append(line, '\n')); err != nil { // a pipe holds that much
			t.Fatal(err)
		}
		out, _ := cmd.Output() // the status is in the answer
		var answer holder.Answer
		if err := json.Unmarshal(out, &answer); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		return answer
	}
	environ := []string{"HOME=" + dir, "DOCKER_HOST=unix://" + dir + "/none.sock"}
	for name, test := range map[string]struct {
		h      ptycmd.Handover
		status int
		says   string
	}{
		"no script": {ptycmd.Handover{Handover: holder.Handover{Environ: environ}, Session: "0199", Script: " "}, exit.Usage, "the script is empty"},
		"a flag":    {ptycmd.Handover{Handover: holder.Handover{Environ: environ, Flags: []string{"--env=1A=x"}}, Script: "true"}, exit.Usage, "Invalid bash env name"},
		"no engine": {ptycmd.Handover{Handover: holder.Handover{Environ: environ}, Session: "0199", Script: "true"}, exit.Engine, "none.sock"},
	} {
		answer := hand(test.h)
		if e := answer.Error; e == nil || e.Status != test.status || !strings.Contains(e.Message, test.says) || answer.Terminal != nil {
			t.Errorf("%s: %+v; want status %d and %q", name, answer.Error, test.status, test.says)
		}
	}
	status, out, errs := clitest.Call(t, nil, "pty", "hold", "pty_1")
	if status != exit.Usage || out != "" || !strings.Contains(errs, "sandboxbash pty start") {
		t.Errorf("pty hold by hand = %d, %q, %q", status, out, errs)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*/*/*/*/*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// A shell has the prompt of the user's environment, or else ours.
func TestPrompt(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		env  []string
		want string
	}{
		{nil, `PS1='web:${PWD}$ '; export PS1; exec sh -i`},
		{[]string{"PS1=a", "PS1=it's> ", "X=PS1=b"}, `PS1='it'\''s> '; export PS1; exec sh -i`},
	} {
		if got := ptycmd.WithPrompt("exec sh -i", "web:${PWD}$ ", row.env); got != row.want {
			t.Errorf("withPrompt(%q) = %q; want %q", row.env, got, row.want)
		}
	}
}
