package agent

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/docker"
	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/internal/corpus"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
	"github.com/sandboxbash/sandboxbash/tool"
)

// These tests hold what a Session promises against a real engine.

// startSandbox starts a sandbox session of the image host, with artifacts, which ends
// with the test.
func startSandbox(t *testing.T) *sandbox.Session {
	t.Helper()
	return startSandboxWith(t, sandbox.Spec{}, t.TempDir())
}

// startSandboxWith has its artifacts below a directory.
func startSandboxWith(t *testing.T, spec sandbox.Spec, dir string) *sandbox.Session {
	t.Helper()
	client := dockertest.Connect(t)
	imgs, err := images.New(client, images.Options{})
	if err != nil {
		t.Fatal(err)
	}
	artifacts, err := sink.NewStore(dir, sink.StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secrets, _, err := sink.NewSecrets([]sink.Secret{{Name: "TOKEN", Value: "s3cr3t-value"}})
	if err != nil {
		t.Fatal(err)
	}
	e := sandbox.New(docker.NewEngine(client, images.Runner), imgs, sandbox.Options{Artifacts: artifacts, Secrets: secrets, Ahead: 1})
	spec.Image = "host"
	sb, err := e.Start(t.Context(), spec)
	if err != nil {
		t.Fatalf("Start(%+v) = %v", spec, err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(sb.Stop(ctx), e.Close(ctx)); err != nil {
			t.Errorf("Stop() = %v", err)
		}
		if _, err := client.Container(ctx, "sandboxbash-"+sb.ID()); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("the container after Stop(): %v; want not found", err)
		}
	})
	return sb
}

// openSession begins the use of a contract, which ends with the test.
func openSession(t *testing.T, sb *sandbox.Session, o SessionOptions) *Session {
	t.Helper()
	if o.Settings.MaxJobs == 0 {
		o.Settings = tool.DefaultSettings()
	}
	s, err := Open(sb, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return s
}

// call calls bash with arguments in pairs.
func call(t *testing.T, s *Session, command string, more ...any) tool.Result {
	t.Helper()
	return callOn(t, s, Events{}, command, more...)
}

func callOn(t *testing.T, s *Session, on Events, command string, more ...any) tool.Result {
	t.Helper()
	fields := map[string]any{"command": command}
	for i := 0; i < len(more); i += 2 {
		fields[more[i].(string)] = more[i+1]
	}
	return s.Call(t.Context(), tool.BashName, corpus.Arguments(t, fields), on)
}

// shows calls bash and checks the start of the text, and that it is not an error.
func shows(t *testing.T, s *Session, command, want string, more ...any) tool.Result {
	t.Helper()
	r := call(t, s, command, more...)
	if r.IsError || !strings.HasPrefix(r.Text, want) {
		t.Errorf("%q: error %v, text %q; want it to begin with %q", command, r.IsError, r.Text, want)
	}
	return r
}

// heard collects updates.
type heard struct {
	mu  sync.Mutex
	all []tool.Update // guarded by mu
}

func (h *heard) update(u tool.Update) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, u)
}

func (h *heard) texts() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var texts []string
	for _, u := range h.all {
		texts = append(texts, u.Text)
	}
	return texts
}

// eventually waits for something that comes about by itself.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("not within a minute: %s", what)
}

func raw(text string) json.RawMessage { return json.RawMessage(text) }

// noProcess checks that no process of a session has a word in its command line.
func noProcess(t *testing.T, sb *sandbox.Session, word string) {
	t.Helper()
	all, err := sb.Processes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if strings.Contains(p.Command, word) {
			t.Errorf("%+v is left", p)
		}
	}
}
