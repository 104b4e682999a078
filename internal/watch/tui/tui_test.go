package tui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"
	"go.uber.org/goleak"

	"github.com/sandboxbash/sandboxbash/internal/journal"
	"github.com/sandboxbash/sandboxbash/internal/watch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	webID = "0199c2a4-0000-7000-8000-000000000001"
	apiID = "0199c2a4-0000-7000-8000-000000000002"
)

// user sits at a terminal on which Run runs.
type user struct {
	t    *testing.T
	w    *journal.Writer
	scr  tcell.SimulationScreen
	did  *controller
	done chan error

	shown atomic.Value // a string
}

func sit(t *testing.T, width, height int, change func(*Options)) *user {
	t.Helper()
	dir := t.TempDir()
	u := &user{t: t, w: journal.NewWriter(dir, journal.Options{}), scr: tcell.NewSimulationScreen("UTF-8"), did: &controller{}, done: make(chan error, 1)}
	t.Cleanup(u.w.Close)
	hub := watch.New(watch.Options{Dir: journal.Open(dir)})
	o := Options{Hub: hub, Screen: &sized{SimulationScreen: u.scr, w: width, h: height, shown: &u.shown}, Ask: u.did, Words: error.Error}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := hub.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	<-hub.Ready()
	running.Go(func() { u.done <- Run(ctx, o) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return u
}

// sized is a screen that has its size from the start.
type sized struct {
	tcell.SimulationScreen

	w, h  int
	shown *atomic.Value // a string
}

func (s *sized) Init() error {
	err := s.SimulationScreen.Init()
	s.SetSize(s.w, s.h)
	return err
}

// Show notes what is on the screen: the screen's own account of it is not for other goroutines.
func (s *sized) Show() {
	s.SimulationScreen.Show()
	cells, width, height := s.GetContents()
	var b strings.Builder
	for y := range height {
		var row strings.Builder
		for x := range width {
			row.WriteString(string(cells[y*width+x].Runes))
		}
		b.WriteString(strings.TrimRight(row.String(), " ") + "\n")
	}
	s.shown.Store(b.String())
}

// text is what is on the screen.
func (u *user) text() string {
	text, _ := u.shown.Load().(string)
	return text
}

func (u *user) sees(texts ...string) {
	u.t.Helper()
	u.until(fmt.Sprintf("%q", texts), func(shown string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(shown, text) })
	})
}

func (u *user) seesNot(text string) {
	u.t.Helper()
	u.until("no "+text, func(shown string) bool { return !strings.Contains(shown, text) })
}

func (u *user) until(what string, is func(shown string) bool) {
	u.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		shown := u.text()
		if is(shown) {
			return
		}
		if time.Now().After(deadline) {
			u.t.Fatalf("not seen: %s; the screen:\n%s", what, shown)
		}
	}
}

func (u *user) types(text string) {
	for _, r := range text {
		u.scr.InjectKey(tcell.KeyRune, r, tcell.ModNone)
	}
}

func (u *user) presses(keys ...tcell.Key) {
	for _, k := range keys {
		u.scr.InjectKey(k, 0, tcell.ModNone)
	}
}

func (u *user) describe(id, name string) {
	u.w.Describe(id, func() journal.Session {
		return journal.Session{Name: name, Image: "debian:stable-slim", Profile: "strict", Network: "none", Workspace: "copy:/src", Created: time.Now()}
	})
}

func (u *user) start(session, id, text string) {
	u.w.Put(session, journal.Record{Kind: journal.Start, ID: id, Mode: "command", Command: text}, nil)
}

func (u *user) exit(session, id string, code int) {
	u.w.Put(session, journal.Record{Kind: journal.End, ID: id, Reason: "exited", Code: &code}, nil)
}

func (u *user) out(session, id string, s journal.Stream, text string) {
	u.w.Output(session, id, s, []byte(text))
}

func TestListAndSession(t *testing.T) {
	t.Parallel()
	u := sit(t, 80, 24, nil)
	u.sees("sandboxbash watch", "No session has a journal yet", "read-only", "q quit")
	u.describe(webID, "web")
	u.start(webID, "c1", "go test ./...")
	u.sees("▸web", "running", "go test ./...", "1 session, 1 running")
	u.out(webID, "c1", journal.Stdout, "ok one\n50%\r")
	u.presses(tcell.KeyEnter)
	u.sees("$ go test ./...", "ok one", "50%", "copy:/src · network none", "1 Output")
	u.out(webID, "c1", journal.Stdout, "100%\n")
	u.out(webID, "c1", journal.Stderr, "\x1b[31mbad\x1b[0m\x1b]0;x\a\tt\n")
	u.exit(webID, "c1", 3)
	u.sees("100%", "bad     t", "└ exit 3 after")
	u.seesNot("50%")
	u.types("?")
	u.sees("quit; sessions go on")
	u.types("x")
	u.presses(tcell.KeyEscape)
	u.sees("exit 3", "LAST COMMAND")
	u.types("q")
	if err := <-u.done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestViews(t *testing.T) {
	t.Parallel()
	u := sit(t, 80, 24, func(o *Options) { o.Session = webID })
	u.describe(webID, "web")
	u.w.Put(webID, journal.Record{Kind: journal.Start, ID: "t1", Mode: "terminal", Command: "top", Cols: 40, Rows: 6}, nil)
	u.out(webID, "t1", journal.Terminal, "\x1b[2J\x1b[3;5Hload 0.5\x1b[1;1H")
	u.start(webID, "c", "server")
	u.w.Put(webID, journal.Record{Kind: journal.End, ID: "c", Reason: "handed-over", Job: "bg_1", JobTag: "t"}, nil)
	u.w.Put(webID, journal.Record{Kind: journal.Connection, Network: json.RawMessage(`{"host":"pypi.org","port":443,"allowed":false,"why":"no rule allows it","ask":"pypi.org"}`)}, nil)
	u.sees("goes on as job bg_1", "2 Terminals 1", "3 Jobs 1", "4 Network 1")
	u.types("2")
	u.sees("1 of 1: top", "runs · 40x6", "    load 0.5")
	u.types("3")
	u.sees("bg_1", "runs", "server")
	u.types("4")
	u.sees("refused pypi.org:443", "no rule allows it", "would be allowed by pypi.org")
	u.types("5")
	u.sees("2 files changed since /src was copied", "modified  a.go (changed on this machine, too)", "+new")
	u.types("1")
	u.sees("$ server")
}

func TestFilterAndMany(t *testing.T) {
	t.Parallel()
	u := sit(t, 100, 20, nil)
	for i := range 100 {
		id := fmt.Sprintf("0199c2a4-0000-7000-8000-%012d", i)
		u.w.Describe(id, func() journal.Session {
			return journal.Session{Name: fmt.Sprintf("s%03d", i), Created: time.Unix(int64(1000+i), 0)}
		})
		u.start(id, "c", "true")
		u.exit(id, "c", 0)
	}
	u.sees("100 sessions, 0 running", "s099")
	u.presses(tcell.KeyEnd)
	u.sees("▸s000")
	u.seesNot("s099")
	u.types("/")
	u.types("s04")
	u.presses(tcell.KeyEnter)
	u.sees("10 sessions", "s049", "s040")
	u.presses(tcell.KeyEscape)
	u.sees("100 sessions")
}

func TestScrollingStays(t *testing.T) {
	t.Parallel()
	u := sit(t, 80, 12, func(o *Options) { o.Session = webID })
	u.start(webID, "c", "seq")
	for i := range 100 {
		u.out(webID, "c", journal.Stdout, fmt.Sprintf("line %d\n", i))
	}
	u.sees("line 99")
	u.presses(tcell.KeyPgUp, tcell.KeyPgUp)
	u.sees(" 12 more below")
	before := u.text()
	u.out(webID, "c", journal.Stdout, "one more\n")
	u.sees(" 13 more below")
	first := func(text string) string { return strings.Split(text, "\n")[3] }
	if got, want := first(u.text()), first(before); got != want {
		t.Errorf("the first line is %q; want %q as before", got, want)
	}
	u.types("f")
	u.sees("one more")
	u.presses(tcell.KeyHome)
	u.sees("$ seq")
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{80, 24}, {40, 10}, {20, 5}, {10, 3}, {200, 60}, {1, 1}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			u := sit(t, size[0], size[1], func(o *Options) { o.Session = webID })
			u.describe(webID, "web")
			u.start(webID, "c", strings.Repeat("very ", 60)+"long")
			u.out(webID, "c", journal.Stdout, strings.Repeat("日本語 and e\u0301 👩‍💻 ", 40)+"\n")
			want := "web"
			if size[0] < smallest || size[1] < 5 {
				want = map[bool]string{true: "…", false: "too"}[size[0] == 1]
			}
			u.sees(want)
			for _, key := range "12345" {
				u.types(string(key))
			}
			u.scr.SetSize(60, 15) // and another one
			u.sees("web", "5 Changes")
		})
	}
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	u := sit(t, 100, 24, nil)
	u.start(webID, "c", "true")
	u.sees("true")
	for _, key := range "asnp" {
		u.types(string(key))
		u.sees("this is read-only")
		u.presses(tcell.KeyEscape)
		u.seesNot("this is read-only")
	}
}

func TestControlAsksFirst(t *testing.T) {
	t.Parallel()
	did := &controller{}
	u := sit(t, 100, 24, func(o *Options) {
		o.Control = did
		o.Attach = func(session, terminal string) error { did.note("attach %s %q", session, terminal); return nil }
	})
	u.describe(webID, "web")
	u.start(webID, "c", "sleep 9")
	u.sees("sleep 9", "can control")
	u.types("s")
	u.sees("Stop web? 1 running", "[y/N]")
	u.types("n")
	u.seesNot("[y/N]")
	if got := did.orders(); len(got) != 0 {
		t.Fatalf("done without a yes: %q", got)
	}
	u.types("n")
	u.sees("allow web to reach")
	u.types("bad")
	u.presses(tcell.KeyEnter)
	u.sees("Allow web to reach bad?")
	u.types("y")
	u.sees("rule 1 is wrong")
	u.types("p")
	u.sees("Apply 2 changes to /src? [y/N]", "a.go")
	u.types("y")
	u.sees("applied")
	u.types("a")
	u.sees("Open a shell in web?")
	u.types("y")
	u.until("the shell", func(string) bool { return slices.Contains(did.orders(), "attach "+webID+` ""`) })
	u.types("s")
	u.sees("Stop web?")
	u.types("y")
	u.sees("stopped web")
	want := []string{"allow " + webID + " bad", "apply " + webID, "attach " + webID + ` ""`, "stop " + webID}
	if got := did.orders(); !slices.Equal(got, want) {
		t.Errorf("orders %q; want %q", got, want)
	}
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
	return slices.Clone(c.done)
}

func (c *controller) Changes(context.Context, string) (watch.Changes, error) {
	return watch.Changes{Dir: "/src", Files: []watch.Change{{Kind: "modified", Path: "a.go", Both: true}, {Kind: "added", Path: "b.go"}}, Patch: "@@ -1 +1 @@\n-old\n+new\n"}, nil
}

func (c *controller) Stop(_ context.Context, session string) (string, error) {
	c.note("stop %s", session)
	return "stopped web", nil
}

func (c *controller) Allow(_ context.Context, session, rule string) (string, error) {
	c.note("allow %s %s", session, rule)
	return "", errors.New("rule 1 is wrong")
}

func (c *controller) Apply(_ context.Context, session string) (string, error) {
	c.note("apply %s", session)
	return "applied", nil
}

func (c *controller) Attach(context.Context, string) (string, error) { return "", nil }

func (c *controller) Type(context.Context, string, string, []string) error { return nil }
