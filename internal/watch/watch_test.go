package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandboxbash/sandboxbash/internal/audit"
	"github.com/sandboxbash/sandboxbash/internal/journal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ids of sessions.
const (
	web = "0199c2a4-0000-7000-8000-000000000001"
	api = "0199c2a4-0000-7000-8000-000000000002"
)

// stage is a directory of journals, and a Hub that follows them.
type stage struct {
	t   *testing.T
	w   *journal.Writer
	hub *Hub
	dir *journal.Dir
}

func newStage(t *testing.T, o Options) *stage {
	t.Helper()
	dir := t.TempDir()
	s := &stage{t: t, w: journal.NewWriter(dir, journal.Options{Writer: func() string { return "host/1/1" }}), dir: journal.Open(dir)}
	t.Cleanup(s.w.Close)
	o.Dir = s.dir
	s.hub = New(o)
	return s
}

// run has the Hub follow until the test ends.
func (s *stage) run() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.hub.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("Run: %v", err)
		}
	})
	select {
	case <-s.hub.Ready():
	case <-time.After(10 * time.Second):
		s.t.Fatal("the Hub is not ready")
	}
}

func (s *stage) describe(id, name string) {
	s.w.Describe(id, func() journal.Session {
		return journal.Session{Name: name, Image: "debian:stable-slim", Profile: "strict", Network: "none", Workspace: "copy:.", Created: time.Now()}
	})
}

func (s *stage) start(session, id, text string) {
	s.w.Put(session, journal.Record{Kind: journal.Start, ID: id, Mode: "command", Command: text, Writer: "host/1/1"}, nil)
}

func (s *stage) exit(session, id string, code int) {
	s.w.Put(session, journal.Record{Kind: journal.End, ID: id, Reason: "exited", Code: &code}, nil)
}

func (s *stage) out(session, id, text string) {
	s.w.Output(session, id, journal.Stdout, []byte(text))
}

// viewer puts together what a subscription says.
type viewer struct {
	t         *testing.T
	sub       *Subscription
	sessions  map[string]Summary
	items     []Item
	network   []Item
	terminals map[string]Terminal
	order     []string
	resets    int
	gap       bool
	problem   string
}

func (s *stage) view(ids ...string) *viewer {
	s.t.Helper()
	v := &viewer{t: s.t, sub: s.hub.Subscribe(), sessions: map[string]Summary{}, terminals: map[string]Terminal{}}
	s.t.Cleanup(v.sub.Close)
	v.sub.Focus(ids...)
	return v
}

func (v *viewer) take(u Update) {
	for _, one := range u.Sessions {
		v.sessions[one.ID] = one
	}
	v.problem = u.Problem
	for _, d := range u.Details {
		if d.Reset {
			v.items, v.network, v.resets = nil, nil, v.resets+1
		}
		v.gap = v.gap || d.Gap
		v.items = append(v.items, d.Items...)
		v.network = append(v.network, d.Network...)
		for _, t := range d.Terminals {
			v.terminals[t.ID] = t
		}
		if d.Order != nil {
			v.order = d.Order
		}
	}
}

// until takes what is new until is is true.
func (v *viewer) until(what string, is func() bool) {
	v.t.Helper()
	late := time.After(20 * time.Second)
	for !is() {
		select {
		case <-v.sub.Changed():
			v.take(v.sub.Next())
		case <-late:
			v.t.Fatalf("not seen: %s; sessions %+v, items:\n%s", what, v.sessions, v.text())
		}
	}
}

// text is what a person would read.
func (v *viewer) text() string {
	var b strings.Builder
	for _, i := range v.items {
		switch i.Kind {
		case ItemOutput:
			text := b.String()
			if i.Rewind {
				b.Reset()
				b.WriteString(text[:strings.LastIndexByte(text, '\n')+1])
			}
			b.WriteString(i.Text)
		default:
			fmt.Fprintf(&b, "[%s %s]\n", i.Kind, i.Text)
		}
	}
	return b.String()
}

func (v *viewer) reads(want string) {
	v.t.Helper()
	v.until("the text\n"+want, func() bool { return v.text() == want })
}

func TestSessionsAndWhatTheyDo(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	s.describe(web, "web")
	s.w.Put(web, journal.Record{Kind: journal.SessionStart}, nil)
	s.start(web, "c1", "make\ttest")
	s.out(web, "c1", "one\ntwo")
	s.run()
	v := s.view(web)
	v.reads("[note the session has started]\n[command make\ttest]\none\ntwo")
	v.until("the summary", func() bool { return v.sessions[web].Commands == 1 })
	if got := v.sessions[web]; got.Name != "web" || got.State != Running || got.Commands != 1 || len(got.Running) != 1 || got.Last != "make test" || got.LastEnd != "" {
		t.Errorf("summary %+v", got)
	}

	s.out(web, "c1", " and three\n")
	s.exit(web, "c1", 3)
	v.reads("[note the session has started]\n[command make\ttest]\none\ntwo and three\n[end exit 3]\n")
	v.until("its end", func() bool { return v.sessions[web].LastEnd == "exit 3" })
	if got := v.sessions[web]; got.State != Unknown || got.Failed != 1 || len(got.Running) != 0 || got.LastTone != Bad {
		t.Errorf("summary %+v", got)
	}

	s.describe(api, "api") // begins while there is a viewer
	s.start(api, "c2", "true")
	s.exit(api, "c2", 0)
	v.until("another session", func() bool { return v.sessions[api].LastEnd == "exit 0" })
	v.sub.Focus(api)
	v.until("what it did", func() bool { return v.resets == 2 && len(v.items) == 2 })
	if v.items[1].Tone != Good || v.items[0].ID != "c2" {
		t.Errorf("items %+v", v.items)
	}
	v.sub.Focus(web) // again from the start
	v.until("the first one again", func() bool { return v.resets == 3 && strings.Contains(v.text(), "and three") })
}

func TestOutputIsSafeAndLive(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		parts []string
		want  string
	}{
		{"a line that has not ended", []string{"Password: "}, "Password: "},
		{"escape sequences are removed", []string{"\x1b[31mred\x1b[0m\x1b]0;title\a\x1b[2J\n"}, "red\n"},
		{"a sequence in two parts", []string{"a\x1b[3", "1mb\n"}, "ab\n"},
		{"progress takes one line", []string{"10%\r", "20%\r", "100%\ndone\n"}, "100%\ndone\n"},
		{"progress in one part", []string{"x\n10%\r20%\r\nend"}, "x\n20%\nend"},
		{"line ends of Windows", []string{"a\r", "\nb\r\n"}, "a\nb\n"},
		{"bytes that are not text", []string{"a\xffb\n"}, "a\uFFFDb\n"},
		{"a character in two parts", []string{"\xc3", "\xa9\n"}, "é\n"},
		{"what reorders text is shown", []string{"a\u202eb\n"}, "a<U+202E>b\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, Options{})
			s.run()
			s.start(web, "c", "x")
			for _, p := range row.parts {
				s.out(web, "c", p)
				time.Sleep(30 * time.Millisecond) // each is a record of its own
			}
			s.view(web).reads("[command x]\n" + row.want)
		})
	}
}

func TestEverythingElseHasItsWords(t *testing.T) {
	t.Parallel()
	raw := func(text string) json.RawMessage { return json.RawMessage(text) }
	one := 1
	for _, row := range []struct {
		name string
		r    journal.Record
		want string
	}{
		{"a denial", journal.Record{Kind: journal.Denied, ID: "d", Command: "rm -rf /", Policy: &audit.Policy{Verdict: "deny", Rule: "rm-root", Reason: "it would\x1b[31m"}}, "[denied rm -rf /]\n[end denied by rm-root: it would]\n"},
		{"an error", journal.Record{Kind: journal.End, ID: "e", Error: &audit.Failure{Outcome: "session-lost", Cause: "oom", Message: "gone"}}, "[end session-lost (oom): gone]\n"},
		{"a job", journal.Record{Kind: journal.End, ID: "e", Reason: "handed-over", Job: "bg_1", JobTag: "t"}, "[end goes on as job bg_1]\n"},
		{"a job's end", journal.Record{Kind: journal.JobEnd, Job: "bg_1", JobTag: "t", Reason: "exited", Code: &one}, "[job job bg_1: exit 1]\n"},
		{"a signal", journal.Record{Kind: journal.End, ID: "e", Reason: "signalled", Signal: 9}, "[end signal 9]\n"},
		{"a timeout", journal.Record{Kind: journal.End, ID: "e", Reason: "timed-out"}, "[end timed-out]\n"},
		{"a transfer", journal.Record{Kind: journal.Start, ID: "p", Mode: "push", Command: "src"}, "[command push src]\n"},
		{"a checkpoint", journal.Record{Kind: journal.Checkpoint, Checkpoint: raw(`{"action":"made","name":"before"}`)}, "[note checkpoint before made]\n"},
		{"a stop", journal.Record{Kind: journal.SessionStop}, "[note the session was stopped]\n"},
		{"a failed start", journal.Record{Kind: journal.SessionStart, Error: &audit.Failure{Message: "no image"}}, "[note the session did not start: no image]\n"},
		{"a kind of another version", journal.Record{Kind: "dream"}, "[note the session was stopped]\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, Options{})
			s.w.Put(web, row.r, nil)
			if row.r.Kind == "dream" {
				s.w.Put(web, journal.Record{Kind: journal.SessionStop}, nil)
			}
			s.run()
			s.view(web).reads(row.want)
		})
	}
}

func TestNetworkAndJobs(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	s.run()
	v := s.view(web)
	s.start(web, "c", "server")
	s.w.Put(web, journal.Record{Kind: journal.End, ID: "c", Reason: "handed-over", Job: "bg_1", JobTag: "t1"}, nil)
	s.w.Put(web, journal.Record{Kind: journal.Connection, Network: json.RawMessage(`{"host":"pypi.org","port":443,"allowed":false,"why":"no rule\u001b[31m allows it","count":3}`)}, nil)
	s.w.Put(web, journal.Record{Kind: journal.Answer, Network: json.RawMessage(`{"host":"pypi.org","port":443,"rule":"pypi.org","answer":"session","by":"user"}`)}, nil)
	v.until("the job", func() bool { return len(v.sessions[web].Jobs) == 1 && v.sessions[web].Refused == 3 })
	v.until("the connections", func() bool { return len(v.network) == 2 })
	if got := v.sessions[web]; got.State != Running || got.Jobs[0].Text != "server" || got.Jobs[0].End != "" {
		t.Errorf("summary %+v", got)
	}
	if c := v.network[0].Connection; c.Host != "pypi.org" || c.Allowed || c.Why != "no rule allows it" {
		t.Errorf("connection %+v", c)
	}
	if i := v.network[1]; i.Text != "answer of user: session" || !i.Connection.Allowed {
		t.Errorf("answer %+v", i)
	}
	code := 0
	for range 2 { // two processes tell of it
		s.w.Put(web, journal.Record{Kind: journal.JobEnd, Job: "bg_1", JobTag: "t1", Reason: "exited", Code: &code}, nil)
	}
	v.until("the job's end", func() bool { return v.sessions[web].Jobs[0].End == "exit 0" })
	if got := v.sessions[web]; got.State == Running || got.Failed != 0 {
		t.Errorf("summary %+v", got)
	}
}

func TestTerminalsAsTheyLook(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	s.run()
	v := s.view(web)
	s.w.Put(web, journal.Record{Kind: journal.Start, ID: "t1", Mode: "terminal", Command: "vi", Cols: 20, Rows: 5}, nil)
	v.until("the terminal", func() bool { return len(v.terminals) == 1 })
	if got := v.terminals["t1"]; !got.Unseen || got.Cols != 20 || got.Rows != 5 {
		t.Errorf("terminal %+v", got)
	}
	s.w.Output(web, "t1", journal.Terminal, []byte("\x1b[2J\x1b[3;4Hhere\x1b[1;1H\x1b]0;ti\x1b[31mtle\a"))
	v.until("its screen", func() bool { t := v.terminals["t1"]; return len(t.Lines) == 5 && t.Lines[2] == "   here" })
	s.w.Put(web, journal.Record{Kind: journal.Resize, ID: "t1", Cols: 40, Rows: 6}, nil)
	s.w.Put(web, journal.Record{Kind: journal.End, ID: "t1", Reason: "exited", Code: new(int)}, nil)
	v.until("its end", func() bool { t := v.terminals["t1"]; return t.End == "exit 0" && t.Cols == 40 && len(t.Lines) == 6 })
	if strings.Contains(v.text(), "here") {
		t.Errorf("a terminal's output is among the rest: %q", v.text())
	}
}

// held are terminals that other processes keep.
type held struct {
	list   chan []Terminal // what List returns, one after the other
	frames chan Terminal
}

func (h held) List(ctx context.Context, _ string) ([]Terminal, error) {
	select {
	case l := <-h.list:
		return l, nil
	default:
		return nil, nil
	}
}

func (h held) Follow(ctx context.Context, _ string, show func(Terminal)) error {
	for {
		select {
		case t := <-h.frames:
			show(t)
			if t.End != "" {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func TestTerminalsThatOthersKeep(t *testing.T) {
	t.Parallel()
	from := held{make(chan []Terminal, 3), make(chan Terminal)}
	s := newStage(t, Options{Terminals: from})
	s.run()
	v := s.view(web)
	s.w.Put(web, journal.Record{Kind: journal.Start, ID: "t1", Mode: "terminal", Command: "bash", Cols: 80, Rows: 24}, nil)
	v.until("the journal's", func() bool { return len(v.order) == 1 && v.order[0] == "t1" })
	kept := Terminal{ID: "pty_1", Command: "bash", Started: time.Now(), Cols: 80, Rows: 24, Writable: true}
	from.list <- []Terminal{kept}
	s.w.Put(web, journal.Record{Kind: journal.Resize, ID: "t1", Cols: 80, Rows: 24}, nil)
	v.until("the kept one instead", func() bool { return len(v.order) == 1 && v.order[0] == "pty_1" })
	kept.Lines = []string{"$ \x1b[31mls"}
	from.frames <- kept
	v.until("what it shows, made safe", func() bool { l := v.terminals["pty_1"].Lines; return len(l) == 1 && l[0] == "$ ls" })
	kept.End = "exit 0"
	from.frames <- kept
	v.until("its end", func() bool { return v.terminals["pty_1"].End == "exit 0" })
}

func TestALateSubscriberIsTold(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	s.run()
	fast, slow := s.view(web), s.view(web)
	s.start(web, "c", "yes")
	slow.until("the start", func() bool { return len(slow.items) == 1 })
	d := s.hub.detailOf(web)
	for range 40 { // more than is kept
		s.hub.mu.Lock()
		d.put(Item{Kind: ItemOutput, ID: "c", Text: strings.Repeat("y\n", 50<<10)})
		s.hub.mu.Unlock()
		fast.take(fast.sub.Next())
	}
	if fast.gap {
		t.Error("the fast one has missed something")
	}
	slow.take(slow.sub.Next())
	if !slow.gap {
		t.Error("the slow one has no note that something is missing")
	}
	if n := d.ring.bytes; n > ringBytes {
		t.Errorf("%d bytes are kept; want at most %d", n, ringBytes)
	}
}

func TestGoneProcesses(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{Gone: func(writer string) bool { return writer == "host/1/1" }})
	s.start(web, "c", "sleep 9")
	s.run()
	v := s.view(web)
	v.until("it", func() bool { return v.sessions[web].State == Running && len(v.items) == 1 })
	s.hub.buryGone()
	v.until("its loss", func() bool { return v.sessions[web].LastEnd == lostWords && strings.Contains(v.text(), lostWords) })
}

func TestWhatTheEngineSays(t *testing.T) {
	t.Parallel()
	answers := make(chan any, 4)
	s := newStage(t, Options{Known: func(context.Context) ([]Known, error) {
		switch a := (<-answers).(type) {
		case error:
			return nil, a
		default:
			return a.([]Known), nil
		}
	}})
	s.describe(web, "web")
	s.w.Put(web, journal.Record{Kind: journal.Checkpoint}, nil)
	answers <- []Known{{Session: journal.Session{ID: web, Name: "web"}, State: "running"}, {Session: journal.Session{ID: api, Name: "api"}, State: "paused"}}
	s.run()
	v := s.view()
	v.until("both", func() bool {
		return v.sessions[web].State == Idle && !v.sessions[web].NoJournal && v.sessions[api].State == Paused
	})
	if !v.sessions[api].NoJournal || v.sessions[web].NoJournal {
		t.Errorf("sessions %+v", v.sessions)
	}
	answers <- errors.New("no engine answers")
	s.hub.Refresh()
	v.until("the problem", func() bool { return v.problem == "no engine answers" })
	answers <- []Known{}
	s.hub.Refresh()
	v.until("they have gone", func() bool {
		return v.problem == "" && v.sessions[web].State == Stopped && v.sessions[api].State == Stopped
	})
}
