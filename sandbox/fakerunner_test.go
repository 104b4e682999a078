package sandbox

import (
	"crypto/sha256"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec/wire"
)

// fakeStream is the host's end.
type fakeStream struct{ net.Conn }

func (fakeStream) CloseWrite() error { return nil }
func (fakeStream) ID() engine.ExecID { return "e1" }
func (fakeStream) Stderr() string    { return "" }

// fakeRunner speaks the runner's side of the protocol.
type fakeRunner struct {
	docker    *fakeDocker
	container engine.ContainerID
	conn      net.Conn
	in        *wire.Reader
	out       chan []byte // two writers of a pipe would wait for a mutex, which stops a bubble's clock
	done      chan struct{}

	request []byte
	stdin   []byte // of the request under way
	current wire.Request
}

func (f *fakeRunner) write() {
	for {
		select {
		case b := <-f.out:
			if _, err := f.conn.Write(b); err != nil {
				return
			}
		case <-f.done:
			return
		}
	}
}

func (f *fakeRunner) send(kind wire.Type, payload []byte) {
	f.out <- wire.AppendFrame(nil, kind, payload)
}

func (f *fakeRunner) serve() {
	defer close(f.done)
	defer f.conn.Close()
	for {
		kind, payload, err := f.in.Next()
		if err != nil {
			return
		}
		switch kind {
		case wire.TypeOpen:
			f.send(wire.TypeHello, wire.Hello{Version: wire.Version, PID: 2, Bash: true, Shell: true}.Append(nil))
		case wire.TypePart, wire.TypeRequest:
			f.request = append(f.request, payload...)
			if kind == wire.TypeRequest {
				f.begin()
			}
		case wire.TypeStdin:
			f.stdin = append(f.stdin, payload...)
			f.send(wire.TypeTaken, wire.Taken{Seq: f.current.Seq, Bytes: uint64(len(payload))}.Append(nil))
		case wire.TypeStdinEnd:
			if f.docker.jobs != nil && slices.Equal(f.current.Args, []string{"jobs"}) {
				f.docker.jobs(f)
				continue
			}
			f.answer(fmt.Appendf(nil, "%x\n", sha256.Sum256(f.stdin)))
		case wire.TypeKill:
			kill, err := wire.ParseKill(payload)
			if err == nil && f.docker.onKill != nil {
				f.docker.onKill(f, kill)
			}
		}
	}
}

func (f *fakeRunner) begin() {
	req, err := wire.ParseRequest(f.request)
	f.request, f.stdin, f.current = nil, nil, req
	if err != nil {
		f.docker.t.Errorf("request: %v", err)
		return
	}
	if req.Path == "" {
		if f.docker.on != nil {
			f.docker.on(f, req)
			return
		}
		f.answer(req.Script)
		return
	}
	switch verb := req.Args[0]; verb {
	case "posture":
		f.answer([]byte(f.docker.posture(f.container)))
	case "pull":
		if f.docker.pull != nil {
			f.answer(f.docker.pull(req.Args[1]))
			return
		}
		f.answer(f.docker.archive)
	case "push", "jobs": // at the end of its input
		f.send(wire.TypeTaken, wire.Taken{Seq: req.Seq, Bytes: wire.StdinWindow}.Append(nil))
	default:
		f.answer(nil)
	}
}

// answer ends the command with some output and exit code 0.
func (f *fakeRunner) answer(output []byte) {
	for b := range slices.Chunk(output, wire.MaxPayload) {
		f.send(wire.TypeStdout, b)
	}
	f.send(wire.TypeExit, wire.Exit{Seq: f.current.Seq, Stdout: uint64(len(output))}.Append(nil))
}

// failed refuses the command.
func (f *fakeRunner) failed(why wire.Failure) {
	f.send(wire.TypeFailed, wire.Failed{Seq: f.current.Seq, Failure: why, Detail: "fake"}.Append(nil))
}

// posture is a perfect report.
func (d *fakeDocker) posture(id engine.ContainerID) string {
	d.mu.Lock()
	info, err := describe(d.containers[id])
	d.mu.Unlock()
	if err != nil {
		d.t.Errorf("posture: %v", err)
	}
	text := reportFor((&Session{info: info}).expect(nil))
	if w := info.labels.Workspace; w.Kind == WorkspaceBind { // the engine is on this machine
		at, _ := hostPlace(w.Dir)
		text += "place=" + w.Target + " " + at.device + " " + at.path + "\n"
	}
	if d.report != nil {
		text = d.report(text)
	}
	return text
}

// reportFor is a report that is just as expected.
func reportFor(want expectation) string {
	var lines []string
	for key, value := range want.exact {
		lines = append(lines, key+"="+value)
	}
	for key, values := range want.oneOf {
		lines = append(lines, key+"="+values[0])
	}
	for target, readOnly := range want.mounts {
		options := "rw,nosuid"
		if readOnly {
			options = "ro,nosuid"
		}
		lines = append(lines, "mount="+target+" tmpfs "+options)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}
