package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/exec/screen"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
	"github.com/sandboxbash/sandboxbash/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeHost starts fake sessions, and remembers them.
type fakeHost struct {
	fail error

	mu      sync.Mutex
	started []*fakeSession // guarded by mu
	asked   []SessionRequest
	gate    chan struct{} // if not nil, starts wait for it
}

func (h *fakeHost) Start(ctx context.Context, r SessionRequest) (*Session, error) {
	if h.gate != nil {
		select {
		case <-h.gate:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if h.fail != nil {
		return nil, h.fail
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, r)
	id := r.Attach
	if id == "" {
		id = fmt.Sprintf("session-%d", len(h.started)+1)
	}
	s := &fakeSession{id: id, r: r, jobs: make(chan []tool.Delivery), files: map[string]string{}, background: map[string]chan struct{}{}, dead: make(chan struct{})}
	h.started = append(h.started, s)
	return &Session{
		ID: id, Caller: s, News: s, Jobs: s, Files: fakeFiles{s}, Copies: s, Terminals: fakeTerminals{s}, Artifacts: fakeArtifacts{}, Lifetime: s,
	}, nil
}

func (h *fakeHost) List(context.Context) ([]sandbox.Info, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []sandbox.Info
	for _, s := range h.started {
		if !s.state().stopped {
			all = append(all, s.info())
		}
	}
	return all, nil
}

// session returns the nth that was started, waiting for it.
func (h *fakeHost) session(t *testing.T, n int) *fakeSession {
	t.Helper()
	for range 1000 {
		h.mu.Lock()
		all := h.started
		h.mu.Unlock()
		if len(all) > n {
			return all[n]
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("session %d was not started", n)
	return nil
}

// fakeSession is a session whose commands are words: "echo TEXT" answers TEXT,
// "sleep" runs until it is cancelled or made a job, "spam" updates first.
type fakeSession struct {
	id    string
	r     SessionRequest
	jobs  chan []tool.Delivery
	files map[string]string

	mu         sync.Mutex
	stopped    bool                     // guarded by mu
	dead       chan struct{}            // closed when it goes by itself
	released   bool                     // guarded by mu
	running    int                      // guarded by mu
	most       int                      // guarded by mu; at once
	order      []string                 // guarded by mu; commands as they began
	background map[string]chan struct{} // guarded by mu
}

type fakeState struct {
	stopped, released bool
	running, most     int
	order             []string
}

func (s *fakeSession) state() fakeState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fakeState{s.stopped, s.released, s.running, s.most, slices.Clone(s.order)}
}

func (s *fakeSession) info() sandbox.Info {
	return sandbox.Info{ID: s.id, Status: "running", Image: "fake", Created: time.Unix(0, 0).UTC()}
}

func (s *fakeSession) Info(context.Context) (sandbox.Info, error) {
	if s.state().stopped {
		return sandbox.Info{}, fmt.Errorf("session %q: %w", s.id, sandbox.ErrUnknownSession)
	}
	return s.info(), nil
}

func (s *fakeSession) Stop(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	return nil
}

// die ends the session as an engine that restarts does.
func (s *fakeSession) die() {
	_ = s.Stop(context.Background()) // never fails
	close(s.dead)
}

func (s *fakeSession) Release(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = true
	return nil
}

func (s *fakeSession) Definitions() []tool.Definition {
	settings := tool.DefaultSettings()
	settings.Async = true
	all, err := Options{Settings: settings}.definitions(s.r.Contract, tool.Host{Settings: settings})
	if err != nil {
		panic(err)
	}
	return all
}

func (s *fakeSession) Call(ctx context.Context, name string, arguments json.RawMessage, on tool.Events) tool.Result {
	if name == jobName {
		return tool.Result{Text: "No running background jobs to wait for."}
	}
	var a struct{ Command string }
	if err := json.Unmarshal(arguments, &a); err != nil {
		return tool.Result{Text: "Invalid bash arguments: " + err.Error(), IsError: true, Thrown: tool.ToolError}
	}
	return s.run(ctx, a.Command, on)
}

func (s *fakeSession) Shell(ctx context.Context, command string, on tool.Events) tool.Result {
	return s.run(ctx, command, on)
}

func (s *fakeSession) run(ctx context.Context, command string, on tool.Events) tool.Result {
	ask := make(chan struct{})
	s.mu.Lock()
	s.order = append(s.order, command)
	s.running++
	s.most = max(s.most, s.running)
	s.background[on.CallID] = ask
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running--
		delete(s.background, on.CallID)
	}()
	details := &tool.Details{TimeoutSeconds: 300, Reason: exec.Exited}
	word, rest, _ := strings.Cut(command, " ")
	if word == "spam" {
		for i := range 200 {
			on.Update(tool.Update{Text: fmt.Sprintf("line %d\n", i)})
		}
	}
	switch word {
	case "sleep", "spam":
		select {
		case <-ask:
			details.Async = &tool.Async{State: tool.JobRunning, JobID: "bg_1", Type: "bash"}
			return tool.Result{Text: "Background job bg_1 started: " + command, Details: details}
		case <-ctx.Done():
			details.Reason = exec.Cancelled
			return tool.Result{Text: "[Command cancelled]\n", IsError: true, Thrown: tool.ToolAbort, Details: details}
		}
	case "client":
		id, err := s.r.Terminal.Create(ctx, tool.CreateTerminal{Command: rest, OutputByteLimit: 51200})
		if err != nil {
			return tool.Result{Text: err.Error(), IsError: true}
		}
		exit, err := s.r.Terminal.WaitForExit(ctx, id)
		if err != nil {
			return tool.Result{Text: err.Error(), IsError: true}
		}
		shown, err := s.r.Terminal.Output(ctx, id)
		return tool.Result{Text: fmt.Sprintf("%s %s %v %v", id, shown.Output, *exit.Code, errors.Join(err, s.r.Terminal.Release(ctx, id)))}
	}
	return tool.Result{Text: rest, Details: details}
}

func (s *fakeSession) Deliveries(ctx context.Context, hand func(context.Context, []tool.Delivery) error) error {
	for {
		select {
		case all := <-s.jobs:
			for hand(ctx, all) != nil && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
		case <-s.dead:
			return errors.New("its container has exited")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *fakeSession) Background(callID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ask := s.background[callID]
	if ask == nil {
		return tool.ErrNoCall
	}
	delete(s.background, callID)
	close(ask)
	return nil
}

func fakeJobInfo(id string) sandbox.JobInfo {
	return sandbox.JobInfo{Session: "session-1", ID: id, State: sandbox.JobRunning, OutputFile: "/tmp/" + id, Label: "sleep", Started: time.Unix(0, 0).UTC()}
}

func (s *fakeSession) List(context.Context) ([]sandbox.JobInfo, error) {
	return []sandbox.JobInfo{fakeJobInfo("bg_1")}, nil
}

func (s *fakeSession) Job(_ context.Context, id string) (Job, error) {
	if id != "bg_1" {
		return nil, fmt.Errorf("job %s: %w", id, sandbox.ErrUnknownJob)
	}
	return fakeJob{id}, nil
}

type fakeJob struct{ id string }

func (j fakeJob) Now(context.Context) (sandbox.JobInfo, error) { return fakeJobInfo(j.id), nil }

func (j fakeJob) Wait(ctx context.Context) (sandbox.JobInfo, error) {
	<-ctx.Done()
	return sandbox.JobInfo{}, context.Cause(ctx)
}

func (j fakeJob) Kill(context.Context) (sandbox.JobInfo, error) {
	info := fakeJobInfo(j.id)
	info.State, info.Reason = sandbox.JobCancelled, exec.Cancelled
	return info, nil
}

func (j fakeJob) Tail(_ context.Context, most int64) (string, error) {
	return fmt.Sprintf("the last %d bytes", most), nil
}

func (s *fakeSession) Push(context.Context, string, string) ([]string, error) {
	return []string{".env"}, nil
}

func (s *fakeSession) Pull(context.Context, string, string) ([]string, error) {
	return nil, errors.New("no space left on device")
}

type fakeFiles struct{ *fakeSession }

func (f fakeFiles) Read(_ context.Context, path string, from, most int64) ([]byte, bool, error) {
	text, ok := f.files[path]
	if !ok {
		return nil, false, failure(KindFile, "%s: there is no such file", shown(path))
	}
	from = min(from, int64(len(text)))
	end := min(from+most, int64(len(text)))
	return []byte(text[from:end]), end == int64(len(text)), nil
}

func (f fakeFiles) Write(_ context.Context, path string, data []byte) error {
	f.files[path] = string(data)
	return nil
}

func (f fakeFiles) List(context.Context, string) ([]FileInfo, error) {
	return []FileInfo{{Name: "a", Type: "file", Size: 1, Mode: "0644"}}, nil
}

type fakeArtifacts struct{}

func (fakeArtifacts) List(context.Context) ([]ArtifactInfo, error) {
	return []ArtifactInfo{{ID: "0", Bytes: 10, Complete: true}}, nil
}

func (fakeArtifacts) Read(_ context.Context, id string, from, most int64) ([]byte, int64, error) {
	if id != "0" {
		return nil, 0, fmt.Errorf("artifact %s: %w", id, sink.ErrNotFound)
	}
	const text = "0123456789"
	from = min(from, int64(len(text)))
	return []byte(text[from:min(from+most, int64(len(text)))]), int64(len(text)), nil
}

type fakeTerminals struct{ *fakeSession }

func (f fakeTerminals) Open(ctx context.Context, r TerminalRequest) (Terminal, error) {
	if r.Command == "" {
		return nil, &sandbox.InputError{Field: "script", Text: "the script is empty"}
	}
	t := &fakeTerminal{done: make(chan struct{}), size: screen.Size{Cols: r.Cols, Rows: r.Rows}}
	t.stop = context.AfterFunc(ctx, t.Kill)
	return t, nil
}

// fakeTerminal shows what is typed.
type fakeTerminal struct {
	done chan struct{}
	stop func() bool

	mu    sync.Mutex
	typed strings.Builder // guarded by mu
	size  screen.Size     // guarded by mu
	ended bool            // guarded by mu
}

func (t *fakeTerminal) Type(text string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.typed.WriteString(text)
	return nil
}

func (t *fakeTerminal) Paste(text string) error { return t.Type("[" + text + "]") }

func (t *fakeTerminal) Keys(names ...string) error {
	if slices.Contains(names, "nokey") {
		return &screen.KeyError{Name: "nokey"}
	}
	return t.Type("<" + strings.Join(names, ",") + ">")
}

func (t *fakeTerminal) Text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.typed.String()
}

func (t *fakeTerminal) Screen() screen.Snapshot {
	text := t.Text()
	t.mu.Lock()
	defer t.mu.Unlock()
	return screen.Snapshot{Size: t.size, Lines: strings.Split(text, "\n")}
}

func (t *fakeTerminal) Resize(_ context.Context, size screen.Size) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.size = size
	return nil
}

func (t *fakeTerminal) WaitFor(ctx context.Context, until sandbox.Until) (sandbox.Event, error) {
	for {
		if until.Match != nil && until.Match(t.Screen()) {
			return sandbox.Output, nil
		}
		select {
		case <-t.done:
			return sandbox.Ended, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

func (t *fakeTerminal) Kill() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.ended = true
		close(t.done)
	}
}

func (t *fakeTerminal) Wait() (sandbox.Result, error) {
	<-t.done
	t.stop()
	return sandbox.Result{Status: exec.Status{Reason: exec.Cancelled}}, nil
}

// client speaks to a server over pipes.
type client struct {
	t     *testing.T
	host  *fakeHost
	in    io.WriteCloser
	lines chan string
	ended chan error
	other bool // it is not JSON-RPC of ours that is spoken
}

// connect starts a server for the length of the test.
func connect(t *testing.T, change func(*Options)) *client {
	t.Helper()
	host := &fakeHost{}
	o := Options{Version: "1.2.3", Contract: tool.Agent, Settings: tool.DefaultSettings(), Dir: "/workspace", Host: host}
	if change != nil {
		change(&o)
		if h, ok := o.Host.(*fakeHost); ok {
			host = h
		}
	}
	fromClient, in := io.Pipe()
	out, toClient := io.Pipe()
	c := &client{t: t, host: host, in: in, lines: make(chan string, 1000), ended: make(chan error, 1)}
	go func() {
		c.ended <- RPC(context.WithoutCancel(t.Context()), o, fromClient, toClient)
		_ = toClient.Close() // never fails
	}()
	go func() {
		defer close(c.lines)
		scan := bufio.NewScanner(out)
		scan.Buffer(nil, 64<<20)
		for scan.Scan() {
			c.lines <- scan.Text()
		}
	}()
	t.Cleanup(func() {
		_ = in.Close() // never fails
		for line := range c.lines {
			checkMessage(t, line)
		}
	})
	return c
}

// send writes lines as they are.
func (c *client) send(lines ...string) {
	c.t.Helper()
	for _, line := range lines {
		if _, err := io.WriteString(c.in, line+"\n"); err != nil {
			c.t.Fatalf("send: %v", err)
		}
	}
}

// patience is how long an answer may take on a machine that is busy.
const patience = 20 * time.Second

// next is the next message.
func (c *client) next() string {
	c.t.Helper()
	select {
	case line, ok := <-c.lines:
		if !ok {
			c.t.Fatal("the server has ended")
		}
		if !c.other {
			checkMessage(c.t, line)
		}
		return line
	case <-time.After(patience):
		c.t.Fatal("no message came")
		return ""
	}
}

// answer is the next message with an id.
func (c *client) answer() rpcAnswer {
	c.t.Helper()
	for {
		line := c.next()
		var a rpcAnswer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			c.t.Fatalf("%q: %v", line, err)
		}
		if a.Method == "" || a.ID != nil {
			return a
		}
	}
}

type rpcAnswer struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *Error
}

// text is the answer in one line.
func (a rpcAnswer) text() string {
	if a.Error != nil {
		return fmt.Sprintf("%s: %d %s", a.ID, a.Error.Code, a.Error.Data.Kind)
	}
	return fmt.Sprintf("%s: %s", a.ID, a.Result)
}

// hello begins a connection.
func (c *client) hello(more string) {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocol":"1"` + more + `}}`)
	if a := c.answer(); a.Error != nil {
		c.t.Fatalf("initialize: %v", a.Error)
	}
}

// ask sends a request and returns its answer.
func (c *client) ask(method, params string) rpcAnswer {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`)
	a := c.answer()
	checkAnswer(c.t, method, params, a)
	return a
}

// end closes the input and waits for the server.
func (c *client) end() error {
	c.t.Helper()
	_ = c.in.Close() // never fails
	select {
	case err := <-c.ended:
		return err
	case <-time.After(patience):
		c.t.Fatal("the server does not end")
		return nil
	}
}
