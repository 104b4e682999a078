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

	"github.com/sandboxbash/sandboxbash/internal/runner/shells"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// server runs one command at a time for the host at the other end of stdio.
type server struct {
	in   *wire.Reader
	out  *frameWriter
	init *initLine
	oom  *oomCounter
	pids *pidCounter
	kids *oomScore

	forker  *forker
	freezer *freezer

	slot   [slots]*os.File
	shells map[string]shells.Shell
	room   [2][]byte // for the output of a command, reused

	tmpfs    sync.Once
	inMemory []string // writable file systems in memory; by tmpfs

	lease time.Duration
	watch *time.Timer // runs out when the host has been silent for too long

	command *command // the last one; nil before the first
	request []byte   // the parts of a Request so far
}

// serve speaks the protocol of internal/wire until the host goes away or a command
// leaves children behind. It returns nil in both cases.
func serve(stdin, stdout *os.File) error {
	if err := harden(); err != nil {
		return err
	}
	if err := adoptOrphans(); err != nil {
		return err
	}
	s, err := newServer()
	if err != nil {
		return err
	}
	if err := s.attach(stdin, stdout); err != nil {
		return err
	}
	hello := wire.Hello{
		Version: wire.Version, PID: os.Getpid(),
		Bash: s.has("bash"), Shell: s.has("sh"),
	}
	s.out.send(wire.TypeHello, hello.Append(nil))

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
		<-c.done // of a job the process ends before that
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// newServer opens what every command needs. Standard streams are not touched.
func newServer() (*server, error) {
	s := &server{pids: openPidCounter(), shells: shells.Find(), lease: time.Minute}
	err := limitOpenFiles()
	if err != nil {
		return nil, err
	}
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
	if s.freezer, err = openFreezer(); err != nil {
		return nil, err
	}
	for i := range s.slot {
		if s.slot[i], err = os.OpenFile(slotPath(i), os.O_RDONLY, 0); err != nil {
			return nil, err
		}
	}
	return s, nil
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
		if len(s.request)+len(payload) > wire.MaxRequest {
			return fmt.Errorf("%w: request above %d bytes", wire.ErrFrame, wire.MaxRequest)
		}
		s.request = append(s.request, payload...)
		if kind == wire.TypeRequest {
			return s.start()
		}
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

// start starts the requested command. The host gets one Exit or one Failed in any case.
func (s *server) start() error {
	req, err := wire.ParseRequest(s.request)
	s.request = nil // a script of megabytes must not stay
	if err != nil {
		return err
	}
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
