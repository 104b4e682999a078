package sandbox

import (
	"context"
	"os"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
)

// Runners keeps idle runners of sessions for other processes of this machine and user: see
// Options.Runners. Its methods may be called concurrently.
type Runners interface {
	// Take returns a runner of the session that another process has left, or false if there is
	// none. The file is the caller's.
	Take(ctx context.Context, of engine.Handle) (IdleRunner, bool)
	// Leave takes over a runner and its file. If it cannot keep the runner it closes the file,
	// which ends the runner.
	Leave(of engine.Handle, r IdleRunner)
}

// IdleRunner is a runner that no process uses. A process that has its file can run commands in the
// session, as its user.
type IdleRunner struct {
	File    *os.File `json:"-"`       // the connection to it
	Stream  string   `json:"stream"`  // what the engine needs to know of the connection
	PID     int      `json:"pid"`     // in the session
	Version uint64   `json:"version"` // of the protocol
	Seq     uint64   `json:"seq"`     // of its last command
}

// parking is the exec.Parking of a session.
type parking struct {
	session *Session
	mover   engine.Mover
	runners Runners
}

// parking returns nil if the session's runners are not for other processes.
func (s *Session) parking() exec.Parking {
	mover, ok := s.engine.backend.(engine.Mover)
	if !ok || s.engine.opts.Runners == nil {
		return nil
	}
	return &parking{session: s, mover: mover, runners: s.engine.opts.Runners}
}

// Take implements exec.Parking. Like a runner that is opened, one that was left gets commands only
// once a session that was started again is confined as it should be.
func (p *parking) Take(ctx context.Context) (exec.Parked, bool) {
	if p.session.settled(ctx) != nil {
		return exec.Parked{}, false // opening one says why
	}
	left, ok := p.runners.Take(ctx, p.session.handle)
	if !ok {
		return exec.Parked{}, false
	}
	stream, err := p.mover.Adopt(left.File, left.Stream)
	if err != nil {
		return exec.Parked{}, false
	}
	return exec.Parked{Stream: runnerStream{stream}, PID: left.PID, Version: left.Version, Seq: left.Seq}, true
}

// Leave implements exec.Parking.
func (p *parking) Leave(left exec.Parked) {
	stream, ok := left.Stream.(runnerStream)
	if !ok || p.session.ended.Load() {
		_ = left.Stream.Close()
		return
	}
	file, name, err := p.mover.Detach(stream.Stream)
	if err != nil {
		_ = left.Stream.Close()
		return
	}
	p.runners.Leave(p.session.handle, IdleRunner{File: file, Stream: name, PID: left.PID, Version: left.Version, Seq: left.Seq})
}
