package e2e

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"
)

// rpc speaks JSON-RPC in lines.
type rpc struct {
	*served
	in    io.WriteCloser
	lines chan string
	t     *testing.T
}

func startRPC(t *testing.T, environ []string, args ...string) *rpc {
	t.Helper()
	return beginRPC(t, `{"protocol":"1","ui":true}`, environ, args...)
}

// beginRPC is startRPC for a client that describes itself.
func beginRPC(t *testing.T, hello string, environ []string, args ...string) *rpc {
	t.Helper()
	r := &rpc{served: server(t, environ, append([]string{"rpc"}, args...)...), lines: make(chan string, 1000), t: t}
	out, err := r.cmd.StdoutPipe()
	if err == nil {
		r.in, err = r.cmd.StdinPipe()
	}
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.lines)
		scan := bufio.NewScanner(out)
		scan.Buffer(nil, 32<<20)
		for scan.Scan() {
			r.lines <- scan.Text()
		}
	}()
	r.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":` + hello + `}`)
	r.until(`"id":0,"result"`)
	return r
}

func (r *rpc) send(line string) {
	r.t.Helper()
	if _, err := io.WriteString(r.in, line+"\n"); err != nil {
		r.t.Fatalf("send: %v", err)
	}
}

// until reads messages until one has a text in it, and returns that.
func (r *rpc) until(want string) string {
	r.t.Helper()
	timeout := time.After(60 * time.Second)
	for {
		select {
		case line, ok := <-r.lines:
			if !ok {
				r.t.Fatalf("the server has ended before %s", want)
			}
			if strings.Contains(line, want) {
				return line
			}
		case <-timeout:
			r.t.Fatalf("no message has %s", want)
		}
	}
}

// end closes the input and waits for the server.
func (r *rpc) end() {
	r.t.Helper()
	r.in.Close()
	for range r.lines { // until it has ended
	}
	if err := r.cmd.Wait(); err != nil {
		r.t.Errorf("the server ended with %v", err)
	}
}

// TestServeRPC drives the server in lines.
func TestServeRPC(t *testing.T) {
	t.Parallel()
	needEngine(t)
	r := startRPC(t, []string{"SANDBOXBASH_AGENT_ASYNC=true", "SANDBOXBASH_KEEP_FOR=0s"}, "--artifacts", "always")
	call := func(id int, args string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"bash","arguments":%s}}`, id, args)
	}
	r.send(call(1, `{"command":"echo hi"}`))
	if line := r.until(`"id":1,`); !strings.Contains(line, `"text":"hi\n\n\nWall time: `) {
		t.Error(line)
	}
	ids := r.sessions(t)
	r.send(call(2, `{"command":"echo begun; sleep 4771 & sleep 4772"}`))
	r.until(`"method":"tools/update","params":{"request":2,"text":"begun\n"`)
	r.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":2}}`)
	if line := r.until(`"id":2,`); !strings.Contains(line, `"text":"[Command cancelled]\nbegun\n","isError":true,"thrown":"abort"`) {
		t.Error(line)
	}
	r.send(call(3, `{"command":"sleep 4773","timeout":1}`))
	if line := r.until(`"id":3,`); !strings.Contains(line, `[Command timed out after 1 seconds]`) {
		t.Error(line)
	}
	r.send(call(4, `{"command":"echo to-the-background; until [ -e /tmp/end-4 ]; do sleep 0.1; done; echo job-done"}`))
	r.until(`"text":"to-the-background\n"`)
	r.send(`{"jsonrpc":"2.0","id":5,"method":"job/background","params":{"request":4}}`)
	r.until("Background job bg_1 started")
	r.send(`{"jsonrpc":"2.0","id":40,"method":"bash","params":{"command":"touch /tmp/end-4"}}`)
	if line := r.until(`"method":"job/completed"`); !strings.Contains(line, "job-done") || !strings.Contains(line, "Background job bg_1 has completed.") {
		t.Error(line)
	}
	r.send(`{"jsonrpc":"2.0","id":6,"method":"bash","params":{"command":"echo from the user; ps ax | grep -c '[s]leep 477'"}}`)
	if line := r.until(`"id":6,`); !strings.Contains(line, `from the user\n0\n`) {
		t.Error(line)
	}
	r.send(call(7, `{"command":"seq 1 20000"}`))
	artifact := regexp.MustCompile(`artifact://(\d+)`).FindStringSubmatch(r.until(`"id":7,`))
	if artifact == nil {
		t.Fatal("there is no artifact")
	}
	r.send(`{"jsonrpc":"2.0","id":8,"method":"artifact/read","params":{"id":"` + artifact[1] + `","limit":4}}`)
	if line := r.until(`"id":8,`); !strings.Contains(line, `"result":{"content":"1\n2\n","encoding":"utf-8","size":108894}`) {
		t.Error(line)
	}

	// Files, with names that are not nice.
	r.send(`{"jsonrpc":"2.0","id":9,"method":"session/write","params":{"path":"deep/- a\n'b","content":"/wAK","encoding":"base64"}}`)
	r.until(`"id":9,"result":{}`)
	r.send(`{"jsonrpc":"2.0","id":10,"method":"session/files","params":{"path":"deep"}}`)
	if line := r.until(`"id":10,`); !strings.Contains(line, `"entries":[{"name":"- a\n'b","type":"file","size":3,"mode":"0644"}]`) {
		t.Error(line)
	}
	r.send(`{"jsonrpc":"2.0","id":9,"method":"session/write","params":{"path":"dash/-","content":"1234"}}`)
	r.until(`"id":9,"result":{}`)
	r.send(`{"jsonrpc":"2.0","id":10,"method":"session/files","params":{"path":"dash"}}`)
	if line := r.until(`"id":10,`); !strings.Contains(line, `"entries":[{"name":"-","type":"file","size":4,"mode":"0644"}]`) {
		t.Error(line)
	}
	r.send(`{"jsonrpc":"2.0","id":11,"method":"session/read","params":{"path":"deep/- a\n'b"}}`)
	if line := r.until(`"id":11,`); !strings.Contains(line, `{"content":"/wAK","encoding":"base64","end":true}`) {
		t.Error(line)
	}
	for path, want := range map[string]string{"deep": "it is a directory", "none": "there is no such file", "/dev/null": "it is not a plain file", "/etc/shadow-": "there is no such file"} {
		r.send(`{"jsonrpc":"2.0","id":12,"method":"session/read","params":{"path":"` + path + `"}}`)
		if line := r.until(`"id":12,`); !strings.Contains(line, want) {
			t.Errorf("%s: %s", path, line)
		}
	}

	// An agent's command on a terminal, which the user types into.
	r.send(call(13, `{"command":"read -p 'sure? ' a; echo answer $a","pty":true}`))
	r.until(`"method":"pty/started","params":{"terminal":"pty_1"`)
	r.send(`{"jsonrpc":"2.0","id":14,"method":"pty/write","params":{"terminal":"pty_1","text":"yes\n"}}`)
	if line := r.until(`"id":13,`); !strings.Contains(line, `answer yes`) {
		t.Error(line)
	}

	// Another process takes a session over; a job of it goes on.
	r.send(`{"jsonrpc":"2.0","id":15,"method":"session/start","params":{"idle":"1m"}}`)
	second := regexp.MustCompile(`"result":\{"id":"([0-9a-f-]+)"`).FindStringSubmatch(r.until(`"id":15,`))
	if second == nil {
		t.Fatal("no session was started")
	}
	r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":16,"method":"tools/call","params":{"session":"%s","name":"bash","arguments":{"command":"until [ -e /tmp/end-16 ]; do sleep 0.1; done; echo after-all","async":true}}}`, second[1]))
	r.until(`"id":16,`)
	r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":17,"method":"session/stop","params":{"session":"%s","release":true}}`, second[1]))
	r.until(`"id":17,"result":{}`)
	r.end()
	gone(t, ids...)

	r = startRPC(t, nil)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"session/attach","params":{"session":"` + second[1] + `"}}`)
	if line := r.until(`"id":1,`); !strings.Contains(line, `"held":"attached","default":true`) {
		t.Error(line)
	}
	r.send(`{"jsonrpc":"2.0","id":3,"method":"bash","params":{"command":"touch /tmp/end-16"}}`)
	if line := r.until(`"method":"job/completed"`); !strings.Contains(line, "after-all") {
		t.Error(line)
	}
	r.send(`{"jsonrpc":"2.0","id":2,"method":"session/stop"}`)
	r.until(`"id":2,"result":{}`)
	r.end()
	gone(t, second[1])
}
