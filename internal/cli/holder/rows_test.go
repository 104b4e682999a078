//go:build unix

package holder_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
)

// A terminal is one row, whose end is a code, a signal or a reason.
func TestRows(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, held string
		exit       string
		status     exec.Status
	}{
		{"running", `{"state":"running"}`, "-", exec.Status{}},
		{"exited", `{"state":"ended","reason":"exited","exitCode":0}`, "0", exec.Status{Reason: exec.Exited}},
		{"exited badly", `{"state":"ended","reason":"exited","exitCode":3}`, "3", exec.Status{Reason: exec.Exited, Code: 3}},
		{"killed", `{"state":"ended","reason":"signalled","signal":9}`, "SIGKILL", exec.Status{Reason: exec.Signalled, Signal: 9}},
		{"timed out", `{"state":"ended","reason":"timed-out"}`, "timed-out", exec.Status{Reason: exec.TimedOut}},
		{"lost", `{"state":"lost","error":{"code":1,"message":"gone"}}`, "-", exec.Status{}},
	} {
		var held holder.Held
		if err := json.Unmarshal([]byte(test.held), &held); err != nil {
			t.Fatal(err)
		}
		row := held.AsRow("pty_1")
		if row.ID != "pty_1" || row.State != held.State || row.Exit() != test.exit || !cmp.Equal(row.Status(), test.status) || (row.Error != nil) != (held.Error != nil) {
			t.Errorf("%s: %+v ends with %q, %+v; want %q, %+v", test.name, row, row.Exit(), row.Status(), test.exit, test.status)
		}
	}
}

// The list has every terminal whose holder answers, in the order of their starts, and says
// of one that does not that it is silent. Those that have died or ended are not in it.
func TestList(t *testing.T) {
	t.Parallel()
	dir := clitest.SocketDir(t)
	terminal := func(started string) func(string) string {
		return func(method string) string {
			if method == "initialize" {
				return `"result":{}`
			}
			return `"result":{"terminals":[{"session":"s","state":"running","command":"top","started":"` + started + `","cols":80,"rows":24}]}`
		}
	}
	listen(t, dir, "pty_b", terminal("2026-01-02T00:00:00Z"))
	listen(t, dir, "pty_a", terminal("2026-01-03T00:00:00Z"))
	listen(t, dir, "pty_silent", func(string) string { return "" })
	listen(t, dir, "pty_ended", func(method string) string {
		if method == "initialize" {
			return `"result":{}`
		}
		return `"result":{"terminals":[]}`
	})
	_ = listen(t, dir, "pty_dead", nil).Close()
	awaitRefusal(t, filepath.Join(dir, "pty_dead"+holder.SocketSuffix))
	rows, err := holder.List(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rows {
		got = append(got, r.ID+" "+r.State)
	}
	if want := []string{"pty_silent silent", "pty_b running", "pty_a running"}; !slices.Equal(got, want) {
		t.Errorf("List() = %q; want %q", got, want)
	}
	if rows, err := holder.List(t.Context(), filepath.Join(dir, "none")); len(rows) > 0 || err != nil {
		t.Errorf("List() without a directory = %v, %v; want none", rows, err)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := holder.List(stopped, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("List() that is cancelled = %v; want %v", err, context.Canceled)
	}
}

// Prune tells of each holder that has died, once.
func TestPruneTells(t *testing.T) {
	t.Parallel()
	dir := clitest.SocketDir(t)
	for _, id := range []string{"pty_1", "pty_2"} {
		_ = listen(t, dir, id, nil).Close()
		awaitRefusal(t, filepath.Join(dir, id+holder.SocketSuffix))
	}
	var notes []string
	for range 2 {
		if err := holder.Prune(t.Context(), dir, func(text string) { notes = append(notes, text) }); err != nil {
			t.Fatal(err)
		}
	}
	if len(notes) != 2 || !strings.Contains(notes[0], "pty_1 is lost") || !strings.Contains(notes[1], "pty_2 is lost") {
		t.Errorf("Prune() tells %q; want one note for each", notes)
	}
}

// End returns how the program has ended. If a terminal's holder has died, End removes the
// socket, and says so.
func TestEnd(t *testing.T) {
	t.Parallel()
	dir := clitest.SocketDir(t)
	listen(t, dir, "pty_1", func(method string) string {
		if method == "initialize" {
			return `"result":{}`
		}
		return `"result":{"id":"pty_1","reason":"exited","exitCode":7,"text":"bye"}`
	})
	if e, err := holder.End(t.Context(), dir, "pty_1"); err != nil || e.ExitCode == nil || *e.ExitCode != 7 || e.Text != "bye" {
		t.Errorf("End() = %+v, %v; want the code 7 and its text", e, err)
	}
	_ = listen(t, dir, "pty_2", nil).Close()
	awaitRefusal(t, filepath.Join(dir, "pty_2"+holder.SocketSuffix))
	_, err := holder.End(t.Context(), dir, "pty_2")
	if exit.Judge(err).Cause != string(holder.CauseHolder) {
		t.Errorf("End() of one whose holder has died = %v; want the cause %s", err, holder.CauseHolder)
	}
	if _, err := os.Lstat(filepath.Join(dir, "pty_2"+holder.SocketSuffix)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its socket: %v; want it removed", err)
	}
	if _, err := holder.End(t.Context(), dir, "pty_3"); !errors.Is(err, holder.ErrUnknown) {
		t.Errorf("End() of no terminal = %v; want %v", err, holder.ErrUnknown)
	}
}

// A client takes the answer to its own call: it skips notifications, and a line that is not
// JSON is an error.
func TestAnswersAreTheirOwn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer string // behind the id of the call
		want   string
		fails  bool
	}{
		"a notification first": {`"x":1,"id":0,"method":"pty/output"}` + "\n" + `{"id":2,"result":{"text":"hi"}`, "hi", false},
		"an old answer first":  {`"id":1,"result":{"text":"old"}}` + "\n" + `{"id":2,"result":{"text":"hi"}`, "hi", false},
		"no JSON":              {`"id":0}` + "\n" + `hello`, "", true},
		"null":                 {`"result":null`, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := clitest.SocketDir(t)
			listen(t, dir, "pty_1", func(method string) string {
				if method == "initialize" {
					return `"result":{}`
				}
				return test.answer
			})
			c, err := holder.Dial(t.Context(), dir, "pty_1")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close() //nolint:errcheck // of a test
			var read struct{ Text string }
			if err := c.Call(t.Context(), time.Minute, "pty/read", nil, &read); read.Text != test.want || (err != nil) != test.fails {
				t.Errorf("Call() = %q, %v; want %q, failure %v", read.Text, err, test.want, test.fails)
			}
		})
	}
}

// Ids are random, and fit into the name of a socket.
func TestNewID(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 100 {
		id := holder.NewID()
		if !regexp.MustCompile(`^pty_[0-9a-f]{8}$`).MatchString(id) || seen[id] {
			t.Errorf("NewID() = %s; want a new one of eight digits", id)
		}
		seen[id] = true
	}
}

// The other side of a socket of ours is this user.
func TestCheckPeer(t *testing.T) {
	t.Parallel()
	dir := clitest.SocketDir(t)
	listen(t, dir, "pty_1", nil)
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(dir, "pty_1"+holder.SocketSuffix), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.CheckPeer(conn); err != nil {
		t.Errorf("CheckPeer() = %v; want nil for this user", err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := holder.CheckPeer(conn); err == nil {
		t.Error("CheckPeer() of a closed connection = nil; want an error")
	}
}
