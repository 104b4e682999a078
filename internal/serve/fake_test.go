package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandboxbash/sandboxbash/agent"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
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
		ID: id, Caller: s, News: s, Jobs: s, Files: fakeFiles{s}, Copies: s, Terminals: fakeTerminals{s}, Artifacts: fakeArtifacts{}, Lifetime: s, Proposals: s,
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
	var s *fakeSession
	eventually(t, fmt.Sprintf("session %d is started", n), func() bool {
		if all := h.all(); len(all) > n {
			s = all[n]
		}
		return s != nil
	})
	return s
}

// all are the sessions that were started.
func (h *fakeHost) all() []*fakeSession {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.started)
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never comes that %s", what)
		}
	}
}

// runs waits until so many commands run.
func (s *fakeSession) runs(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d commands run", n), func() bool { return s.state().running == n })
}

// fakeSession is a session whose commands are words: "echo TEXT" answers TEXT,
// "sleep" runs until it is cancelled or made a job, "spam" updates first.
type fakeSession struct {
	id    string
	r     SessionRequest
	jobs  chan []tool.Delivery
	files map[string]string

	mu         sync.Mutex
	changed    bool                     // guarded by mu; the workspace, for Leave
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

// Leave keeps what a test has marked as changed.
func (s *fakeSession) Leave(ctx context.Context) (*sandbox.Info, error) {
	s.mu.Lock()
	changed := s.changed
	s.mu.Unlock()
	if err := s.Stop(ctx); err != nil || !changed {
		return nil, err
	}
	info := s.info()
	info.Status, info.Kept = sandbox.StatusKept, &sandbox.Kept{}
	return &info, nil
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
	all, err := tool.Definitions(s.r.Contract, tool.Host{Settings: settings})
	if err != nil {
		panic(err)
	}
	return all
}

func (s *fakeSession) Call(ctx context.Context, name string, arguments json.RawMessage, on agent.Events) tool.Result {
	if name == tool.JobName {
		return tool.Result{Text: "No running background jobs to wait for."}
	}
	var a struct{ Command string }
	if err := json.Unmarshal(arguments, &a); err != nil {
		return tool.Result{Text: "Invalid bash arguments: " + err.Error(), IsError: true, Thrown: tool.ToolError}
	}
	return s.run(ctx, a.Command, on)
}

func (s *fakeSession) Shell(ctx context.Context, command string, on agent.Events) tool.Result {
	return s.run(ctx, command, on)
}

func (s *fakeSession) run(ctx context.Context, command string, on agent.Events) tool.Result {
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
			details.Async = &tool.Async{State: sandbox.JobRunning, JobID: "bg_1", Type: "bash"}
			return tool.Result{Text: "Background job bg_1 started: " + command, Details: details}
		case <-ctx.Done():
			details.Reason = exec.Cancelled
			return tool.Result{Text: "[Command cancelled]\n", IsError: true, Thrown: tool.ToolAbort, Details: details}
		}
	case "client":
		id, err := s.r.Terminal.Create(ctx, agent.CreateTerminal{Command: rest, OutputByteLimit: 51200})
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
		return agent.ErrNoCall
	}
	delete(s.background, callID)
	close(ask)
	return nil
}
