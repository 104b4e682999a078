//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/runner/proc"
	"github.com/sandboxbash/sandboxbash/internal/runner/shells"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// server runs one command at a time for the host at the other end of stdio.
//
// Its states, and what ends each of them:
//
//	state    the host may send     ends with
//	greeted  Open                  Open: idle; a Request that comes before has a lease of a minute
//	idle     Part, Request         the last part of a Request: busy
//	busy     Stdin, Kill, Detach   Failed, or Exit without children left: idle
//	                               spoiled, Exit with children left, a job's end: the process exits
//	any      Ping                  the end of the stream, a frame that breaks the rules, or
//	                               silence for a lease: gone
//	gone                           the command is killed, unless it is a job; the process exits
//
// Three kinds of goroutines work on a command, in this order:
//
//   - read handles frames, one at a time. It alone sets server.command and server.request, so
//     that they need no lock. It never waits for the command, because the next frame may be
//     the Kill of it.
//   - command.run takes the command from its slot to its Exit, and closes done. It frees the
//     slot and closes done before it sends the Exit: the host may answer the Exit with the
//     next Request, and read must not find the runner busy then.
//   - The pumps and reap work between the start and the end. All frames go through one
//     frameWriter, which run uses last: the Exit comes behind all output.
//
// serve itself only waits for the end of read, or of the lease, and then ends the last command.
// After the end of a lease read is not waited for: it may be blocked on a host that takes no
// frames.
type server struct {
	in   *wire.Reader
	out  *frameWriter
	init *initLine
	oom  *oomCounter
	// refusals counts the processes and threads that the kernel has refused at the pids limit.
	refusals eventCounter
	pids     *proc.Counter
	kids     *oomScore

	spoiled bool // it must not go on: see fork; set before a Failed
	forker  *forker
	freezer *freezer

	slot   [slots]*os.File
	shells map[string]shells.Shell
	room   [2][]byte // for the output of a command, reused

	tmpfs    sync.Once
	inMemory []string // writable file systems in memory; by tmpfs

	lease time.Duration
	watch *time.Timer // runs out when the host has been silent for too long

	command *command     // the last one; nil before the first
	request requestParts // of the next one
}

// serve speaks the protocol of internal/wire until the host goes away or a command
// leaves children behind. It returns nil in both cases.
func serve(stdin, stdout *os.File) error {
	s, err := newServer()
	if err != nil {
		return err
	}
	return s.serve(stdin, stdout)
}

// serve is the function serve for a server that has what every command needs.
func (s *server) serve(stdin, stdout *os.File) (err error) {
	defer s.init.farewell()
	if err := s.attach(stdin, stdout); err != nil {
		return err
	}
	s.hello(s.out)
	frames := make(chan error, 1)
	go func() { frames <- s.read() }()
	select {
	case err = <-frames:
	case <-s.watch.C:
		err = errors.New("no word from the host for the length of a lease")
	}
	// The host is gone, so the command that it was waiting for is killed.
	if c := s.command; c != nil {
		if c.job == nil || !c.job.outlives() {
			c.kill(0)
		}
		<-c.done // if the command is a job, the process ends before that
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// newServer prepares this process to run commands, and opens what every command needs.
// Standard streams are not touched.
func newServer() (*server, error) {
	for _, prepare := range []func() error{harden, adoptOrphans, limitOpenFiles} {
		if err := prepare(); err != nil {
			return nil, err
		}
	}
	s := &server{pids: proc.OpenCounter(), shells: shells.Find(), lease: time.Minute}
	var err error
	if s.kids, err = openOOMScore(); err != nil {
		return nil, err
	}
	if s.forker, err = newForker(); err != nil {
		return nil, err
	}
	// It waits for PID 1, which makes all files of stateDir before it listens.
	if s.init, err = dialInit(); err != nil {
		return nil, err
	}
	s.init.contact()
	if s.oom, err = openOOMCounter(); err != nil {
		return nil, err
	}
	s.refusals = openRefusals()
	if s.freezer, err = openFreezer(); err != nil {
		return nil, err
	}
	s.freezer.line = s.init
	for i := range s.slot {
		if s.slot[i], err = os.OpenFile(slotPath(i), os.O_RDONLY, 0); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// hello greets the host with what this runner is and what the image has.
func (s *server) hello(out *frameWriter) {
	hello := wire.Hello{Version: wire.Version, PID: os.Getpid(), Bash: s.has("bash"), Shell: s.has("sh")}
	out.send(wire.TypeHello, hello.Append(nil))
}

func (s *server) has(shell string) bool { return s.shells[shell].File != "" }

// attach gives the server the pipes to the host.
func (s *server) attach(stdin, stdout *os.File) error {
	in, err := pollable(int(stdin.Fd()), "stdin")
	if err != nil {
		return err
	}
	out, err := pollable(int(stdout.Fd()), "stdout")
	if err != nil {
		return err
	}
	// A larger pipe means fewer switches to the engine's process. The machine limits the
	// size for unprivileged processes, so an error is ignored.
	_, _ = unix.FcntlInt(stdout.Fd(), unix.F_SETPIPE_SZ, pipeSize)
	s.in, s.out = wire.NewReader(in), newFrameWriter(out)
	s.watch = time.NewTimer(s.lease)
	return nil
}

// read handles the host's frames until the stream ends.
func (s *server) read() error {
	for {
		kind, payload, err := s.in.Next()
		if err != nil {
			return err
		}
		s.watch.Reset(s.lease)
		if err := s.handle(kind, payload); err != nil {
			return err
		}
		if !s.busy() {
			s.rest()
		}
	}
}

// busy reports whether a command runs. Only the goroutine that reads frames may call it.
func (s *server) busy() bool {
	if s.command == nil {
		return false
	}
	select {
	case <-s.command.done:
		return false
	default:
		return true
	}
}

// rest allows the host a longer silence, because no command runs.
func (s *server) rest() {
	if s.watch != nil { // a terminal's server has none
		s.watch.Reset(max(s.lease, wire.IdleLease))
	}
}

func (s *server) handle(kind wire.Type, payload []byte) error {
	switch kind {
	case wire.TypeOpen:
		open, err := wire.ParseOpen(payload)
		if err != nil {
			return err
		}
		if open.Version != wire.Version || open.Lease <= 0 {
			return fmt.Errorf("%w: open version %d, lease %s", wire.ErrFrame, open.Version, open.Lease)
		}
		s.lease = open.Lease
		s.init.contact()
	case wire.TypePing:
		s.init.contact()
		s.out.send(wire.TypePong, nil)
	case wire.TypePart, wire.TypeRequest:
		req, err := s.request.add(kind, payload)
		if err != nil || req == nil {
			return err
		}
		return s.start(*req)
	case wire.TypeStdin:
		if s.command != nil {
			s.command.stdin.push(payload)
		}
	case wire.TypeStdinEnd:
		if s.command != nil {
			s.command.stdin.end()
		}
	case wire.TypeKill:
		kill, err := wire.ParseKill(payload)
		if err != nil {
			return err
		}
		if s.command != nil && s.command.req.Seq == kill.Seq {
			if kill.TimedOut && s.command.job != nil {
				s.command.job.timedOut()
			}
			s.command.end(kill)
		}
	case wire.TypeDetach:
		detach, err := wire.ParseDetach(payload)
		if err != nil {
			return err
		}
		if c := s.command; c != nil && c.req.Seq == detach.Seq && c.job != nil && c.job.asked.CompareAndSwap(false, true) {
			go c.job.handOver() // closes decided
		}
	default:
		if !kind.Optional() {
			return fmt.Errorf("%w: type %q", wire.ErrFrame, kind)
		}
	}
	return nil
}

// requestParts are the parts of a Request so far.
type requestParts []byte

// add adds a TypePart or a TypeRequest. It returns the request after its last part, and nil
// before.
func (p *requestParts) add(kind wire.Type, payload []byte) (*wire.Request, error) {
	if len(*p)+len(payload) > wire.MaxRequest {
		return nil, fmt.Errorf("%w: request above %d bytes", wire.ErrFrame, wire.MaxRequest)
	}
	*p = append(*p, payload...)
	if kind == wire.TypePart {
		return nil, nil
	}
	req, err := wire.ParseRequest(*p)
	*p = nil // a script of megabytes must not stay
	return &req, err
}

// start starts the requested command. The host gets one Exit or one Failed in any case.
func (s *server) start(req wire.Request) error {
	if s.busy() {
		return fmt.Errorf("%w: a command is running", wire.ErrFrame)
	}
	s.init.contact()
	s.command = newCommand(s, req)
	if answer := answerTo(&req); answer != nil {
		ctx, quit := context.WithCancel(context.Background())
		s.command.quit = quit
		go s.command.answer(ctx, answer) // closes done
		return nil
	}
	if req.Job != nil {
		s.command.job = newJob(s.command, *req.Job, wire.JobsDir, s.lease)
	}
	go s.command.run() // closes done
	return nil
}

// takeSlots locks one free slot of the session, or all slots for an exclusive command. It
// returns the function that unlocks them, and false if they are not free.
func (s *server) takeSlots(exclusive bool) (release func(), ok bool) {
	var taken []*os.File
	release = func() {
		for _, f := range taken {
			_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
		}
	}
	want := 1
	if exclusive {
		want = len(s.slot)
	}
	for _, f := range s.slot {
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			if taken = append(taken, f); len(taken) == want {
				return release, true
			}
		} else if exclusive {
			break
		}
	}
	release()
	return nil, false
}

// frameWriter writes frames of several goroutines, one at a time.
type frameWriter struct {
	mu   sync.Mutex
	dst  io.Writer // guarded by mu
	held []byte    // guarded by mu; frames that go out with the next one
	torn bool      // guarded by mu; a frame was not written whole: nothing may follow
}

func newFrameWriter(dst io.Writer) *frameWriter { return &frameWriter{dst: dst} }

// send writes a control frame. It ignores errors: the goroutine that reads notices when the
// host is gone.
func (w *frameWriter) send(kind wire.Type, payload []byte) {
	w.write(wire.AppendFrame(nil, kind, payload))
}

// hold keeps a copy of a small frame until the next write.
func (w *frameWriter) hold(frame []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = append(w.held, frame...)
}

// write writes what is held and one whole frame, in one call where that is
// cheap.
func (w *frameWriter) write(frame []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case len(w.held) > 0 && len(frame) <= smallChunk:
		w.held = append(w.held, frame...)
		w.put(w.held)
	case len(w.held) > 0:
		w.put(w.held)
		w.put(frame)
	default:
		w.put(frame)
	}
	w.held = w.held[:0]
}

// put needs mu.
func (w *frameWriter) put(b []byte) {
	if !w.torn {
		_, err := w.dst.Write(b)
		w.torn = err != nil
	}
}

// limit bounds the time of writes, including those under way. 0 removes the bound.
func (w *frameWriter) limit(d time.Duration) {
	var until time.Time
	if d > 0 {
		until = time.Now().Add(d)
	}
	if f, ok := w.dst.(*os.File); ok {
		_ = f.SetWriteDeadline(until)
	}
}
