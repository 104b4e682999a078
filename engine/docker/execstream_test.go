package docker

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/docker/docker/api/types/registry"

	"github.com/sandboxbash/sandboxbash/engine"
)

// echoes answers an exec's start with a process that writes its input to its output, and its end.
func echoes(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
	p := make([]byte, 1<<10)
	for {
		n, err := buf.Read(p)
		if n > 0 {
			_, _ = io.WriteString(conn, frame(1, string(p[:n])))
		}
		if err != nil {
			_, _ = io.WriteString(conn, frame(1, "end"))
			return
		}
	}
}

// TestExecStream: what is written to an exec reaches it, its end too, and its exit code is waited for
// until the engine knows it.
func TestExecStream(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	states := []string{`{"Running":true,"ExitCode":0}`, `{"Running":false,"ExitCode":null}`, `{"Running":false,"ExitCode":7}`}
	c := fakeClient(t, map[string]http.HandlerFunc{
		"POST /v1.41/containers/x/exec": answer(201, `{"Id":"e"}`),
		"POST /v1.41/exec/e/start":      echoes,
		"GET /v1.41/exec/e/json": func(w http.ResponseWriter, r *http.Request) {
			answer(200, states[min(int(asked.Add(1)), len(states))-1])(w, r)
		},
	})
	s, err := c.OpenExec(t.Context(), "x", engine.Exec{Args: []string{"cat"}})
	if err != nil {
		t.Fatal(err)
	}
	half, ok := s.(interface{ CloseWrite() error })
	if !ok {
		t.Fatalf("a %T has no CloseWrite", s)
	}
	if _, err := io.WriteString(s, "some input"); err != nil {
		t.Fatal(err)
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if n, err := io.Copy(&out, s); out.String() != "some inputend" || n != int64(out.Len()) || err != nil {
		t.Errorf("the output is %q, %d bytes, %v; want the input and its end", out.String(), n, err)
	}
	if code, err := s.ExitCode(t.Context()); code != 7 || err != nil || asked.Load() != 3 {
		t.Errorf("ExitCode() = %d, %v after %d questions; want 7 after 3", code, err, asked.Load())
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close() = %v; want nil each time", err)
		}
	}
	_, err = s.Write([]byte("x"))
	if e, ok := errors.AsType[*engine.Error](err); !ok || e.Op != "write to exec e" {
		t.Errorf("Write() after Close() = %v; want an error of the engine's that names the exec", err)
	}
	if _, err := s.Read(make([]byte, 1)); err == nil {
		t.Error("Read() after Close() = nil; want an error")
	}
}

// TestExitCodeUnknown: an exit code that the engine does not give is an error, never zero.
func TestExitCodeUnknown(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	var asked atomic.Int32
	for name, state := range map[string]http.HandlerFunc{
		"it does not know it": func(w http.ResponseWriter, r *http.Request) {
			if answer(200, `{"Running":false}`)(w, r); asked.Add(1) == 3 {
				cancel()
			}
		},
		"it does not know the exec": answer(404, `{"message":"no such exec"}`),
		"it says nothing of it":     answer(200, `{}`),
	} {
		c := fakeClient(t, map[string]http.HandlerFunc{"GET /v1.41/exec/e/json": state})
		s := &stream{client: c, id: "e"}
		if code, err := s.ExitCode(ended); err == nil || code != 0 || !strings.Contains(err.Error(), "exec e") {
			t.Errorf("%s: ExitCode() = %d, %v; want an error that names the exec", name, code, err)
		}
	}
}

// TestTerminalSize: an exec with a terminal has its size before it starts where the engine can do that,
// and as soon as the engine lets it elsewhere.
func TestTerminalSize(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, version string
		refusals      int // before a resize is accepted
		status        int // of a refusal
		size          *[2]uint
		resizes       string
	}{
		{"a new engine", "1.42", 0, 0, &[2]uint{30, 100}, ""},
		{"an old engine", "1.41", 0, 0, &[2]uint{30, 100}, "h=30 w=100 "},
		{"one that refuses until the process runs", "1.41", 2, 409, &[2]uint{30, 100}, "h=30 w=100 h=30 w=100 h=30 w=100 "},
		{"a process that has ended", "1.41", 2, 404, &[2]uint{30, 100}, "h=30 w=100 "},
		{"no size", "1.41", 0, 0, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var created, started struct{ ConsoleSize *[2]uint }
			var resizes strings.Builder
			left := tt.refusals
			routes := speaks(tt.version)
			routes["POST /v"+tt.version+"/containers/x/exec"] = func(w http.ResponseWriter, r *http.Request) {
				_ = json.NewDecoder(r.Body).Decode(&created)
				answer(201, `{"Id":"e"}`)(w, r)
			}
			routes["POST /v"+tt.version+"/exec/e/start"] = func(w http.ResponseWriter, r *http.Request) {
				_ = json.NewDecoder(r.Body).Decode(&started)
				upgraded("plain")(w, r)
			}
			routes["POST /v"+tt.version+"/exec/e/resize"] = func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintf(&resizes, "h=%s w=%s ", r.FormValue("h"), r.FormValue("w"))
				if left--; left >= 0 {
					answer(tt.status, `{"message":"refused"}`)(w, r)
				}
			}
			want := engine.Exec{Args: []string{"sh"}, TTY: true}
			if tt.size != nil {
				want.Rows, want.Cols = tt.size[0], tt.size[1]
			}
			s, err := fakeClient(t, routes).OpenExec(t.Context(), "x", want)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if out, err := io.ReadAll(s); string(out) != "plain" || err != nil {
				t.Errorf("the terminal shows %q, %v; want it without frames", out, err)
			}
			atStart := tt.size
			if tt.version == "1.41" {
				atStart = nil // unknown to it
			}
			if cmp.Diff(atStart, created.ConsoleSize) != "" || cmp.Diff(atStart, started.ConsoleSize) != "" || resizes.String() != tt.resizes {
				t.Errorf("created with %v, started with %v, resized %q; want %v, %v, %q", created.ConsoleSize, started.ConsoleSize, resizes.String(), atStart, atStart, tt.resizes)
			}
		})
	}
}

// TestMaking: a call that makes something goes on for makeGrace after its caller has given up, and ends
// with the caller's cause.
func TestMaking(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gaveUp := errors.New("the caller gave up")
		caller, cancel := context.WithCancelCause(t.Context())
		lasting, done := making(caller)
		defer done()
		cancel(gaveUp)
		time.Sleep(makeGrace - time.Millisecond)
		synctest.Wait()
		if err := context.Cause(lasting); err != nil {
			t.Errorf("within the grace: %v; want nil", err)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if err := context.Cause(lasting); !errors.Is(err, gaveUp) {
			t.Errorf("after the grace: %v; want %v", err, gaveUp)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a call that has ended leaves no timer and no goroutine
		caller, cancel := context.WithCancel(t.Context())
		lasting, done := making(caller)
		cancel()
		synctest.Wait()
		done()
		synctest.Wait()
		if !errors.Is(context.Cause(lasting), context.Canceled) {
			t.Errorf("after its end: %v; want it cancelled", context.Cause(lasting))
		}
	})
}

// TestAllCredentials: a build gets what the user has for all registries, and nothing of a file that
// cannot be read.
func TestAllCredentials(t *testing.T) {
	t.Parallel()
	login := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	for config, want := range map[string]map[string]registry.AuthConfig{
		fmt.Sprintf(`{"auths":{"https://index.docker.io/v1/":{"auth":%q},"reg.example:5000":{"auth":%q}}}`, login("hub:one"), login("me:two")): {
			hubKey:             {Username: "hub", Password: "one", ServerAddress: hubKey},
			"reg.example:5000": {Username: "me", Password: "two", ServerAddress: "reg.example:5000"},
		},
		`{}`:           {},
		`{"auths":`:    nil,
		`{"auths":{}}`: {},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, (&Client{configDir: dir}).allCredentials()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", config, diff)
		}
	}
	if got := (&Client{}).allCredentials(); got != nil {
		t.Errorf("without a directory they are %v", got)
	}
}
