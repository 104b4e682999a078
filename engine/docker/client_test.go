package docker

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandboxbash/sandboxbash/engine"
)

func TestErrorKinds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status int
		want   error
	}{
		{400, engine.ErrInvalid},
		{401, engine.ErrDenied},
		{403, engine.ErrDenied},
		{404, engine.ErrNotFound},
		{409, engine.ErrConflict},
		{500, nil},
		{503, nil},
	} {
		refuse := answer(tt.status, `{"message":"conflict: not found, says the engine"}`)
		c := fakeClient(t, map[string]http.HandlerFunc{"/": refuse})
		calls := map[string]func() error{
			"Container":       func() error { _, err := c.Container(t.Context(), "x"); return err },
			"RemoveVolume":    func() error { return c.RemoveVolume(t.Context(), "x") },
			"inspectExec":     func() error { _, err := c.inspectExec(t.Context(), "x"); return err },
			"PullImage":       func() error { return c.PullImage(t.Context(), "x", nil) },
			"CreateContainer": func() error { _, _, err := c.CreateContainer(t.Context(), Container{Image: "x"}); return err },
		}
		for name, call := range calls {
			err := call()
			e, ok := errors.AsType[*engine.Error](err)
			if !ok || e.Kind != tt.want || !strings.Contains(err.Error(), "says the engine") { //nolint:errorlint // the very kind
				t.Errorf("%s with status %d = %v; want kind %v and the engine's words", name, tt.status, err, tt.want)
			}
		}
	}
}

func TestRemoveContainerGone(t *testing.T) {
	t.Parallel()
	c := fakeClient(t, map[string]http.HandlerFunc{"/": answer(404, `{"message":"no such container"}`)})
	if err := c.RemoveContainer(t.Context(), "x"); err != nil {
		t.Errorf("RemoveContainer(gone) = %v; want nil", err)
	}
	c = fakeClient(t, map[string]http.HandlerFunc{
		"DELETE /v1.41/containers/x":    answer(409, `{"message":"in progress"}`),
		"POST /v1.41/containers/x/wait": answer(200, `{"StatusCode":0}`),
	})
	if err := c.RemoveContainer(t.Context(), "x"); err != nil {
		t.Errorf("RemoveContainer(being removed) = %v; want nil", err)
	}
}

// The engine's clients make 0 of an exit code that is not known.
func TestExecState(t *testing.T) {
	t.Parallel()
	code := func(n int) *int { return &n }
	for _, tt := range []struct {
		name, body string
		want       execState
		fails      bool
	}{
		{name: "before the start", body: `{"Running":false,"ExitCode":null,"Pid":0}`},
		{name: "no code at all", body: `{"Running":false,"Pid":5}`, want: execState{PID: 5}},
		{name: "running", body: `{"Running":true,"ExitCode":null,"Pid":7}`, want: execState{Running: true, PID: 7}},
		{name: "running, as Podman says it", body: `{"Running":true,"ExitCode":0,"Pid":7}`, want: execState{Running: true, PID: 7}},
		{name: "ended well", body: `{"Running":false,"ExitCode":0,"Pid":7}`, want: execState{ExitCode: code(0), PID: 7}},
		{name: "ended badly", body: `{"Running":false,"ExitCode":137,"Pid":7}`, want: execState{ExitCode: code(137), PID: 7}},
		{name: "empty object", body: `{}`, fails: true},
		{name: "garbage", body: `<html>`, fails: true},
		{name: "cut", body: `{"Running":false,"Exit`, fails: true},
		{name: "without end", body: `{"Running":false,"ExitCode":0,"x":"` + strings.Repeat("x", maxInspect) + `"}`, fails: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := fakeClient(t, map[string]http.HandlerFunc{"GET /v1.41/exec/x/json": answer(200, tt.body)})
			got, err := c.inspectExec(t.Context(), "x")
			same := got.Running == tt.want.Running && got.PID == tt.want.PID && (got.ExitCode == nil) == (tt.want.ExitCode == nil) &&
				(got.ExitCode == nil || *got.ExitCode == *tt.want.ExitCode)
			if !same || (err != nil) != tt.fails {
				t.Errorf("Exec(%.60s) = %+v, %v; want %+v, failure %t", tt.body, got, err, tt.want, tt.fails)
			}
		})
	}
}

// hangUp breaks the connection under a request.
func hangUp(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

func TestRetries(t *testing.T) {
	t.Parallel()
	var gets, posts atomic.Int32
	c := fakeClient(t, map[string]http.HandlerFunc{
		"GET /v1.41/containers/once/json": func(w http.ResponseWriter, _ *http.Request) {
			if gets.Add(1) == 1 {
				hangUp(w)
				return
			}
			answer(200, `{"Id":"abc"}`)(w, nil)
		},
		"GET /v1.41/containers/never/json": func(w http.ResponseWriter, _ *http.Request) { hangUp(w) },
		"POST /v1.41/containers/x/start":   func(w http.ResponseWriter, _ *http.Request) { posts.Add(1); hangUp(w) },
	})
	if st, err := c.Container(t.Context(), "once"); err != nil || st.ID != "abc" {
		t.Errorf("Container(broken once) = %+v, %v; want it found", st, err)
	}
	if _, err := c.Container(t.Context(), "never"); err == nil || errors.Is(err, engine.ErrUnreachable) {
		t.Errorf("Container(always broken) = %v; want an error that does not claim nothing was sent", err)
	}
	if err := c.StartContainer(t.Context(), "x"); err == nil || errors.Is(err, engine.ErrUnreachable) || posts.Load() != 1 {
		t.Errorf("StartContainer(broken) = %v after %d requests; want an error after one", err, posts.Load())
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	stuck := make(chan struct{})
	c := fakeClient(t, map[string]http.HandlerFunc{
		"/": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // the server sees that the client has gone only after the body
			stuck <- struct{}{}
			<-r.Context().Done()
		},
		"POST /v1.41/containers/x/exec": answer(201, `{"Id":"e"}`),
	})
	mine := errors.New("enough")
	for name, call := range map[string]func(context.Context) error{
		"StartContainer": func(ctx context.Context) error { return c.StartContainer(ctx, "x") },
		"WaitContainer":  func(ctx context.Context) error { return c.WaitContainer(ctx, "x") },
		"inspectExec":    func(ctx context.Context) error { _, err := c.inspectExec(ctx, "x"); return err },
		"OpenExec":       func(ctx context.Context) error { _, err := c.OpenExec(ctx, "x", engine.Exec{}); return err },
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error)
		go func() { ended <- call(ctx) }()
		<-stuck
		cancel(mine)
		if err := <-ended; !errors.Is(err, mine) {
			t.Errorf("%s cancelled = %v; want its cause", name, err)
		}
	}
}

// upgraded answers an exec's start with a stream.
func upgraded(stream string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(buf, "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"+stream)
		_ = buf.Flush()
	}
}

// What is in the wanted state is not an error, with whatever status an engine refuses it.
func TestPauseContainer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		verb, state string
		answer      http.HandlerFunc
		kind        error
	}{
		{"pause", "running", answer(204, ""), nil},
		{"pause", "paused", answer(409, `{"message":"already paused"}`), nil},
		{"pause", "paused", answer(500, `{"message":"state improper"}`), nil},
		{"pause", "exited", answer(409, `{"message":"is not running"}`), engine.ErrNotRunning},
		{"pause", "running", answer(409, `{"message":"is restarting"}`), engine.ErrConflict},
		{"pause", "", answer(404, `{"message":"no such container"}`), engine.ErrNotFound},
		{"unpause", "paused", answer(204, ""), nil},
		{"unpause", "running", answer(409, `{"message":"is not paused"}`), nil},
		{"unpause", "running", answer(500, `{"message":"is not paused"}`), nil},
		{"unpause", "exited", answer(409, `{"message":"is not paused"}`), engine.ErrNotRunning},
	} {
		c := fakeClient(t, map[string]http.HandlerFunc{
			"POST /v1.41/containers/x/" + tt.verb: tt.answer,
			"GET /v1.41/containers/x/json":        answer(200, `{"Id":"x","State":{"Status":"`+tt.state+`"}}`),
		})
		do := map[string]func(context.Context, ContainerID) error{"pause": c.PauseContainer, "unpause": c.UnpauseContainer}[tt.verb]
		err := do(t.Context(), "x")
		if e, _ := errors.AsType[*engine.Error](err); tt.kind == nil && err != nil || tt.kind != nil && (e == nil || e.Kind != tt.kind) { //nolint:errorlint // the very kind
			t.Errorf("%s of one that is %q = %v; want kind %v", tt.verb, tt.state, err, tt.kind)
		}
	}
}

func TestOpenExec(t *testing.T) {
	t.Parallel()
	made := answer(201, `{"Id":"e"}`)
	stopped := answer(200, `{"Id":"x","State":{"Status":"exited"}}`)
	for _, tt := range []struct {
		name                   string
		create, start, inspect http.HandlerFunc
		out                    string
		err                    error
		kind                   error
	}{
		{name: "a stream with the head", create: made, start: upgraded(frame(1, "out") + frame(2, "err")), out: "out"},
		{name: "a cut stream", create: made, start: upgraded(frame(1, "out")[:10]), out: "ou", err: io.ErrUnexpectedEOF},
		{name: "stopped, as Docker says it", create: answer(409, `{"message":"is not running"}`), inspect: stopped, kind: engine.ErrNotRunning},
		{name: "stopped, as Podman says it", create: answer(500, `{"message":"state improper"}`), inspect: stopped, kind: engine.ErrNotRunning},
		{name: "paused", create: answer(409, `{"message":"is paused"}`), inspect: answer(200, `{"State":{"Status":"paused"}}`), kind: engine.ErrNotRunning},
		{name: "conflict of another kind", create: answer(409, `{"message":"is not running"}`), inspect: answer(200, `{"State":{"Status":"running"}}`), kind: engine.ErrConflict},
		{name: "stopped in between", create: made, start: answer(409, `{"message":"x"}`), inspect: stopped, kind: engine.ErrNotRunning},
		{name: "exec gone", create: made, start: answer(404, `{"message":"no such exec"}`), kind: engine.ErrNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			routes := map[string]http.HandlerFunc{"POST /v1.41/containers/x/exec": tt.create}
			if tt.start != nil {
				routes["POST /v1.41/exec/e/start"] = tt.start
			}
			if tt.inspect != nil {
				routes["GET /v1.41/containers/x/json"] = tt.inspect
			}
			s, err := fakeClient(t, routes).OpenExec(t.Context(), "x", engine.Exec{Args: []string{"y"}})
			if tt.kind != nil {
				if e, ok := errors.AsType[*engine.Error](err); !ok || e.Kind != tt.kind { //nolint:errorlint // the very kind
					t.Errorf("OpenExec() = %v; want kind %v", err, tt.kind)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			out, err := io.ReadAll(s)
			if string(out) != tt.out || !errors.Is(err, tt.err) {
				t.Errorf("stream = %q, %v; want %q, %v", out, err, tt.out, tt.err)
			}
		})
	}
}
