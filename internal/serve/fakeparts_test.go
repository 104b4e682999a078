package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

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

func (s *fakeSession) Kill(ctx context.Context, id string) (sandbox.JobInfo, error) {
	if _, err := s.Job(ctx, id); err != nil {
		return sandbox.JobInfo{}, err
	}
	info := fakeJobInfo(id)
	info.State, info.Reason = sandbox.JobCancelled, exec.Cancelled
	return info, nil
}

func (j fakeJob) Tail(_ context.Context, most int64) (string, error) {
	return fmt.Sprintf("the last %d bytes", most), nil
}

func (s *fakeSession) Push(context.Context, string, string) ([]string, error) {
	return []string{".env"}, nil
}

func (s *fakeSession) Pull(context.Context, string, string, sandbox.PullOptions) (sandbox.Pulled, error) {
	return sandbox.Pulled{}, errors.New("no space left on device")
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
	typed strings.Builder                           // guarded by mu
	size  screen.Size                               // guarded by mu
	ended bool                                      // guarded by mu
	show  func(ctx context.Context, p []byte) error // guarded by mu; shows it to the user that is attached
}

func (t *fakeTerminal) Type(text string) error {
	t.mu.Lock()
	t.typed.WriteString(text)
	show := t.show
	t.mu.Unlock()
	if show != nil {
		return show(context.Background(), []byte(text))
	}
	return nil
}

func (t *fakeTerminal) Write(p []byte) (int, error) { return len(p), t.Type(string(p)) }

// Attach shows what was typed so far, and then what is typed.
func (t *fakeTerminal) Attach(show func(ctx context.Context, p []byte) error) (detach func() []byte) {
	text := t.Text()
	t.mu.Lock()
	t.show = show
	t.mu.Unlock()
	if text != "" {
		_ = show(context.Background(), []byte("redrawn "+text)) // of a user who has gone
	}
	return func() []byte {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.show = nil
		return []byte("restored")
	}
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

func (t *fakeTerminal) TextFrom(from int64) (string, int64) {
	text := t.Text()
	const window = 600 // bytes; more than any other test types
	begin := min(max(from, int64(len(text))-window), int64(len(text)))
	return text[begin:], begin
}

func (t *fakeTerminal) Done() <-chan struct{} { return t.done }

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
