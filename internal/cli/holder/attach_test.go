//go:build unix

package holder_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/internal/serve"
)

// A user is shown what the holder sends, types, and learns why it is over. The holder plays
// with ids: pty/attach is the second request of a connection.
func TestAttachment(t *testing.T) {
	t.Parallel()
	const over = "}\n" + `{"jsonrpc":"2.0","id":2,`
	for name, test := range map[string]struct {
		answers map[string]string
		do      func(a *holder.Attachment)
		shown   string
		want    serve.AttachedEvent
		code    int
		err     exec.Outcome
	}{
		"detached": {
			map[string]string{
				"pty/attach": `"method":"pty/output","params":{"data":"aGkA/w=="}`,
				"pty/detach": `"result":{}` + over + `"result":{"event":"detached","restore":"cmVzdG9yZQ=="}`,
			},
			func(a *holder.Attachment) { a.Detach() }, "hi\x00\xff", serve.AttachDetached, 0, "",
		},
		"ended": {
			map[string]string{
				"pty/input": `"result":{}` + over + `"method":"pty/output","params":{"data":"Ynll"}` + over + `"result":{"event":"ended","restore":"cmVzdG9yZQ==","reason":"exited","exitCode":3}`,
			},
			func(a *holder.Attachment) { _, _ = a.Write([]byte("exit 3\r")) }, "bye", serve.AttachEnded, 3, "",
		},
		"killed": {
			map[string]string{"pty/end": `"result":{}` + over + `"result":{"event":"ended","restore":"cmVzdG9yZQ==","reason":"cancelled"}`},
			func(a *holder.Attachment) { a.Kill() }, "", serve.AttachEnded, 0, "",
		},
		"refused": {
			map[string]string{"pty/attach": `"error":{"code":-1,"message":"it hangs","data":{"kind":"outcome-unknown"}}`},
			func(*holder.Attachment) {}, "", "", 0, exec.Unknown,
		},
		"the holder dies": {
			map[string]string{"pty/resize": ""},
			func(a *holder.Attachment) { _ = a.Resize(t.Context(), screen.DefaultSize) }, "", "", 0, exec.Unknown,
		},
	} {
		dir := clitest.SocketDir(t)
		listen(t, dir, "pty_1", func(method string) string {
			answer, ok := test.answers[method]
			switch {
			case ok:
				return answer
			case method == "pty/attach": // nothing for now
				return `"method":"pty/output","params":{"data":""}`
			}
			return `"result":{}`
		})
		var live bytes.Buffer
		a, err := holder.Attach(t.Context(), dir, "pty_1", screen.DefaultSize, &live)
		if err != nil {
			t.Fatal(err)
		}
		test.do(a)
		end, err := a.Wait()
		if e, _ := errors.AsType[*exec.Error](err); (e == nil) != (test.err == "") || e != nil && e.Outcome != test.err {
			t.Errorf("%s: Wait() error = %v; want %q", name, err, test.err)
		}
		if err == nil && (end.Event != test.want || string(end.Restore) != "restore" || end.ExitCode != nil && *end.ExitCode != test.code || live.String() != test.shown) {
			t.Errorf("%s: %+v, shown %q; want %s and %q", name, end, live.String(), test.want, test.shown)
		}
		if err := a.Close(); err != nil {
			t.Errorf("%s: Close() = %v", name, err)
		}
		if _, err := a.Write([]byte(strings.Repeat("x", 9))); err == nil {
			t.Errorf("%s: Write after the end succeeds", name)
		}
	}
	if _, err := holder.Attach(t.Context(), clitest.SocketDir(t), "pty_1", screen.DefaultSize, &bytes.Buffer{}); err == nil {
		t.Error("Attach to no terminal succeeds")
	}
}
