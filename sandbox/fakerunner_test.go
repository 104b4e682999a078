package sandbox

import (
	"crypto/sha256"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// fakeRunner speaks the runner's side of the protocol.
type fakeRunner struct {
	engine  *fakeEngine
	session string // id
	conn    net.Conn
	in      *wire.Reader
	out     chan []byte // two writers of a pipe would wait for a mutex, which stops a bubble's clock
	done    chan struct{}

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
	f.send(wire.TypeHello, wire.Hello{Version: wire.Version, PID: 2, Bash: true, Shell: true}.Append(nil))
	for {
		kind, payload, err := f.in.Next()
		if err != nil {
			return
		}
		switch kind {
		case wire.TypePart, wire.TypeRequest:
			f.request = append(f.request, payload...)
			if kind == wire.TypeRequest {
				f.begin()
			}
		case wire.TypeStdin:
			f.stdin = append(f.stdin, payload...)
			f.send(wire.TypeTaken, wire.Taken{Seq: f.current.Seq, Bytes: uint64(len(payload))}.Append(nil))
		case wire.TypeStdinEnd:
			if f.engine.files != nil && transfers[wire.Verb(f.current.Args[0])] {
				f.engine.files(f)
				continue
			}
			if f.current.Args[0] == "pull" || f.engine.stopped {
				continue // it reads nothing, and has answered; or it does not answer
			}
			if f.engine.jobs != nil && slices.Equal(f.current.Args, wire.VerbJobs.Command()) {
				f.engine.jobs(f)
				continue
			}
			f.answer(fmt.Appendf(nil, "%x\n", sha256.Sum256(f.stdin)))
		case wire.TypePing:
			if f.engine.stopped { // the runner is not
				f.send(wire.TypePong, nil)
			}
		case wire.TypeKill:
			kill, err := wire.ParseKill(payload)
			if err == nil && f.engine.onKill != nil {
				f.engine.onKill(f, kill)
			}
		}
	}
}

func (f *fakeRunner) begin() {
	req, err := wire.ParseRequest(f.request)
	f.request, f.stdin, f.current = nil, nil, req
	if err != nil {
		f.engine.t.Errorf("request: %v", err)
		return
	}
	if req.Path == "" {
		if f.engine.on != nil {
			f.engine.on(f, req)
			return
		}
		f.answer(req.Script)
		return
	}
	if f.engine.verb != nil {
		f.engine.verb(req.Args[0])
	}
	if f.engine.files != nil && transfers[wire.Verb(req.Args[0])] {
		f.send(wire.TypeTaken, wire.Taken{Seq: req.Seq, Bytes: wire.StdinWindow}.Append(nil))
		return // it answers at the end of its input
	}
	switch verb := req.Args[0]; verb {
	case "posture":
		f.answer([]byte(f.engine.posture(f.session)))
	case "pull":
		f.send(wire.TypeTaken, wire.Taken{Seq: req.Seq, Bytes: wire.StdinWindow}.Append(nil))
		if f.engine.onPull != nil {
			f.engine.onPull(f, req.Args[2])
			return
		}
		if f.engine.pull != nil {
			f.answer(f.engine.pull(req.Args[2]))
			return
		}
		f.answer(f.engine.archive)
	case "lease":
		if f.engine.lease != nil {
			f.engine.lease(strings.Join(req.Args, " "))
		}
		f.answer(nil)
	case "survey":
		f.answer(f.engine.surveyed(f.session, req.Args[2:]))
	case "push", "jobs": // at the end of its input
		f.send(wire.TypeTaken, wire.Taken{Seq: req.Seq, Bytes: wire.StdinWindow}.Append(nil))
	default:
		f.answer(nil)
	}
}

// surveyed answers the verb survey.
func (d *fakeEngine) surveyed(id string, dirs []string) []byte {
	var out []byte
	for _, dir := range dirs {
		line := "abcd 1 4096"
		if d.survey != nil {
			line = d.survey(id, dir)
		}
		out = append(append(out, line...), '\n')
	}
	return out
}

// transfers are the verbs that transfer files.
var transfers = map[wire.Verb]bool{wire.VerbPush: true, wire.VerbPull: true, wire.VerbManifest: true, wire.VerbPick: true, wire.VerbUpdate: true}

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
func (d *fakeEngine) posture(id string) string {
	var info Info
	var err error
	for _, state := range d.Sessions() {
		if state.ID == id {
			info, err = describe(state)
		}
	}
	if err != nil {
		d.t.Errorf("posture: %v", err)
	}
	text := reportFor((&Session{info: info}).expect(engine.Info{}))
	if w := info.labels.Workspace; w.Kind == WorkspaceBind { // the engine is on this machine
		at, _ := hostLocation(w.Dir)
		text += "place=" + w.Target + " " + at.device + " " + at.path + "\n"
	}
	for _, m := range info.labels.Mounts {
		if at, ok := hostLocation(m.Dir); ok && m.Dir != "" {
			text += "place=" + m.Target + " " + at.device + " " + at.path + "\n"
		}
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
		lines = append(lines, string(key)+"="+value)
	}
	for key, values := range want.oneOf {
		lines = append(lines, string(key)+"="+values[0])
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

// parsed is a report as the host reads it.
func parsed(t *testing.T, report string) wire.Posture {
	t.Helper()
	p, err := wire.ParsePosture([]byte(report))
	if err != nil {
		t.Fatal(err)
	}
	return p
}
