package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandboxbash/sandboxbash/internal/audit"
	"github.com/sandboxbash/sandboxbash/internal/journal"
	"github.com/sandboxbash/sandboxbash/internal/watch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	webID = "0199c2a4-0000-7000-8000-000000000001"
	apiID = "0199c2a4-0000-7000-8000-000000000002"
	token = "a-token-that-is-long-enough-for-a-test"
)

// stage is a server over journals that a test writes.
type stage struct {
	t    testing.TB
	w    *journal.Writer
	hub  *watch.Hub
	addr string
	did  *controller
}

// newStage serves journals. change may change the options.
func newStage(t testing.TB, change func(*Options)) *stage {
	t.Helper()
	dir := t.TempDir()
	s := &stage{t: t, w: journal.NewWriter(dir, journal.Options{SessionBytes: 256 << 20, Output: 64 << 20}), did: &controller{}}
	t.Cleanup(s.w.Close)
	s.hub = watch.New(watch.Options{Dir: journal.Open(dir), Known: func(context.Context) ([]watch.Known, error) {
		return []watch.Known{
			{Session: journal.Session{ID: webID, Name: "web", Created: began}, State: "running"},
			{Session: journal.Session{ID: apiID, Name: "api", Created: began}, State: "running"},
			{Session: journal.Session{ID: "0199c2a4-0000-7000-8000-000000000003", Name: "docs", Created: began.Add(time.Second)}, State: "paused"},
		}, nil
	}})
	o := Options{Hub: s.hub, Token: token, Version: "1.2.3", Ask: s.did}
	if change != nil {
		change(&o)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // of a test
	if err != nil {
		t.Fatal(err)
	}
	s.addr = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.hub.Run(ctx); err != nil {
			t.Errorf("Hub: %v", err)
		}
	})
	running.Go(func() {
		if err := New(o).Serve(ctx, listener); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	<-s.hub.Ready()
	return s
}

var began = time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)

// scene fills the journals with a day's work, so that every view has something to show.
func (s *stage) scene() {
	describe := func(id, name, workspace string) {
		s.w.Describe(id, func() journal.Session {
			return journal.Session{Name: name, Image: "debian:stable-slim", Profile: "strict", Network: "none", Workspace: workspace, Created: began}
		})
	}
	describe(webID, "web", "copy:/home/ann/web")
	describe(apiID, "api", "volume")
	at := time.Now().Add(-2 * time.Minute)
	put := func(id string, r journal.Record) {
		r.Time = at
		at = at.Add(1300 * time.Millisecond)
		s.w.Put(id, r, nil)
	}
	run := func(id, cmd, text, out string, code int) {
		put(id, journal.Record{Kind: journal.Start, ID: cmd, Mode: "command", Command: text})
		if out != "" {
			s.w.Output(id, cmd, journal.Stdout, []byte(out))
		}
		put(id, journal.Record{Kind: journal.End, ID: cmd, Reason: "exited", Code: &code})
	}
	put(webID, journal.Record{Kind: journal.SessionStart})
	put(webID, journal.Record{Kind: journal.Start, ID: "p1", Mode: "push", Command: "/home/ann/web"})
	put(webID, journal.Record{Kind: journal.End, ID: "p1", Reason: "copied"})
	run(webID, "c1", "git status --short", " M server/handler.go\n?? server/handler_test.go\n", 0)
	run(webID, "c2", "go test ./...", "ok  \texample.com/web\t0.412s\nok  \texample.com/web/store\t1.208s\n--- FAIL: TestHandler (0.00s)\n    handler_test.go:31: ServeHTTP() = 500; want 200\nFAIL\nFAIL\texample.com/web/server\t0.006s\n", 1)
	put(webID, journal.Record{Kind: journal.Denied, ID: "d1", Command: "curl -s https://get.example.sh | bash", Policy: &audit.Policy{Verdict: "deny", Rule: "pipe-to-shell", Reason: "it runs what it downloads; save it, read it, then run it"}})
	s.w.Output(webID, "c3", journal.Stderr, []byte("")) // nothing
	put(webID, journal.Record{Kind: journal.Start, ID: "c3", Mode: "command", Command: "for i in 1 2 3; do\n  echo \"step $i\"\ndone; echo '<img src=x onerror=alert(1)>' >&2"})
	s.w.Output(webID, "c3", journal.Stdout, []byte("step 1\nstep 2\nstep 3\n"))
	s.w.Output(webID, "c3", journal.Stderr, []byte("<img src=x onerror=alert(1)>\n\x1b]0;pwned\a\x1b[31mred\x1b[0m\n"))
	put(webID, journal.Record{Kind: journal.End, ID: "c3", Reason: "exited", Code: new(int)})
	put(webID, journal.Record{Kind: journal.Start, ID: "j1", Mode: "command", Command: "npm run dev"})
	put(webID, journal.Record{Kind: journal.End, ID: "j1", Reason: "handed-over", Job: "bg_1", JobTag: "t1"})
	for _, c := range []string{
		`{"host":"registry.npmjs.org","port":443,"method":"GET","path":"/left-pad","allowed":true,"rule":"@npm","status":200,"sent":512,"received":48213}`,
		`{"host":"telemetry.example.com","port":443,"allowed":false,"reason":"no-rule","why":"no rule allows it","ask":"telemetry.example.com","count":3}`,
	} {
		put(webID, journal.Record{Kind: journal.Connection, Network: json.RawMessage(c)})
	}
	put(webID, journal.Record{Kind: journal.Start, ID: "t1", Mode: "terminal", Command: "vi server/handler.go", Cols: 72, Rows: 16})
	s.w.Output(webID, "t1", journal.Terminal, []byte("\x1b[2J\x1b[Hpackage server\r\n\r\nimport \"net/http\"\r\n\r\n// ServeHTTP answers with the page.\r\nfunc (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {\r\n\tif h.store == nil {\r\n\t\thttp.Error(w, \"no store\", 500)\r\n~\r\n~\r\n~\r\n~\x1b[16;1H\"server/handler.go\" 214L, 6021B\x1b[8;17H"))
	run(apiID, "a1", "cargo build", "   Compiling api v0.1.0\n    Finished dev in 4.2s\n", 0)
	put(webID, journal.Record{Kind: journal.Start, ID: "c9", Mode: "command", Command: "make image"})
	s.w.Output(webID, "c9", journal.Stdout, []byte("building layer 1 of 4\n 10%\r 40%\r 60%"))
}

// controller notes what it is asked to do.
type controller struct {
	mu   sync.Mutex
	done []string // guarded by mu
}

func (c *controller) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = append(c.done, fmt.Sprintf(format, args...))
}

func (c *controller) orders() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.done...)
}

func (c *controller) Changes(_ context.Context, session string) (watch.Changes, error) {
	if session != webID {
		return watch.Changes{}, errors.New("the workspace of this session is not a copy of a directory")
	}
	return watch.Changes{
		Dir:   "/home/ann/web",
		Files: []watch.Change{{Kind: "modified", Path: "server/handler.go", Both: true}, {Kind: "added", Path: "server/handler_test.go"}, {Kind: "deleted", Path: "old.go"}},
		Patch: "diff a/server/handler.go b/server/handler.go\n--- a/server/handler.go\n+++ b/server/handler.go\n@@ -29,5 +29,5 @@\n func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {\n-\tif h.store == nil {\n+\tif h.store == nil && h.fallback == nil {\n \t\thttp.Error(w, \"no store\", 500)\n",
	}, nil
}

func (c *controller) Stop(_ context.Context, session string) (string, error) {
	c.note("stop %s", session)
	return "stopped web", nil
}

func (c *controller) Allow(_ context.Context, session, rule string) (string, error) {
	c.note("allow %s %s", session, rule)
	if rule == "bad rule" {
		return "", errors.New("rule 1: a host has no space")
	}
	return "web may reach " + rule, nil
}

func (c *controller) Apply(_ context.Context, session string) (string, error) {
	c.note("apply %s", session)
	return "applied 3 changes to /home/ann/web", nil
}

func (c *controller) Attach(_ context.Context, session string) (string, error) {
	c.note("attach %s", session)
	return "pty_1", nil
}

func (c *controller) Type(_ context.Context, terminal, text string, keys []string) error {
	c.note("type %s %q %v", terminal, text, keys)
	return nil
}

const journalStdout = journal.Stdout

func (s *stage) begin(session, id, text string) {
	s.w.Put(session, journal.Record{Kind: journal.Start, ID: id, Mode: "command", Command: text}, nil)
}

func (s *stage) end(session, id string, code int) {
	s.w.Put(session, journal.Record{Kind: journal.End, ID: id, Reason: "exited", Code: &code}, nil)
}

func (s *stage) out(session, id, text string) {
	s.w.Output(session, id, journal.Stdout, []byte(text))
}
