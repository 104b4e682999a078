//go:build unix

package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/internal/filelock"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// runner describes a runner, along with its file.
type runner = sandbox.IdleRunner

// Store is the sandbox.Runners of one call of the program.
type Store struct {
	opts Options
	dir  string

	mu      sync.Mutex
	clients []client // guarded by mu; those that a runner may be left to
}

// client is a connection to the keeper of a session.
type client struct {
	of   engine.Handle
	conn *net.UnixConn
}

// New returns a Store, or nil where there is no place for sockets of this user.
func New(opts Options) *Store {
	dir, err := holder.SocketDir(opts.Env, "run", "runners", nameLen)
	if err != nil {
		return nil
	}
	return &Store{opts: opts, dir: dir}
}

// How long a keeper may take to answer. It answers at once, unless it has just been started, is
// stopped, or the machine is very busy. The caller then opens a runner of its own.
const (
	takeTime  = 500 * time.Millisecond
	leaveTime = 100 * time.Millisecond
)

// Take implements sandbox.Runners.
func (s *Store) Take(ctx context.Context, of engine.Handle) (runner, bool) {
	conn, err := s.dial(of)
	if err != nil {
		return runner{}, false // Leave says why, if it is not that there is none
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(takeTime))
	if _, err = conn.Write([]byte{sayTake}); err == nil {
		var r runner
		var what byte
		what, r, err = receive(conn)
		switch {
		case err != nil:
		case what == sayHere && r.File != nil:
			s.hold(client{of, conn})
			return r, true
		case what == sayNone:
			s.hold(client{of, conn})
			return runner{}, false
		}
		if r.File != nil {
			_ = r.File.Close()
		}
	}
	_ = conn.Close()
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
		s.opts.Note(fmt.Sprintf("the process that keeps runners of this session for its next commands does not answer, so this call has opened one itself: end that process (`sandboxbash session lend %s`), and the next call starts another", of.ID))
	}
	return runner{}, false
}

// hold keeps a client until a runner is left to it, or this process ends.
func (s *Store) hold(c client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, c)
}

// held takes a client for a session.
func (s *Store) held(of engine.Handle) *net.UnixConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range s.clients {
		if c.of == of {
			s.clients = append(s.clients[:i], s.clients[i+1:]...)
			return c.conn
		}
	}
	return nil
}

// Leave implements sandbox.Runners.
func (s *Store) Leave(of engine.Handle, r runner) {
	defer r.File.Close()
	conn := s.held(of)
	if conn != nil && leave(conn, r) == nil {
		return
	}
	if err := s.start(of, r); err != nil {
		s.opts.Daily(fmt.Sprintf("no runner is kept for the session's next commands, which therefore take longer to start: %v", err))
	}
}

// leave gives a runner to a keeper.
func leave(conn *net.UnixConn, r runner) error {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(leaveTime))
	if err := send(conn, sayLeave, r); err != nil {
		return err
	}
	_, _, err := receive(conn)
	return err
}

// dial connects to the keeper of a session's runners.
func (s *Store) dial(of engine.Handle) (*net.UnixConn, error) {
	if err := holder.OwnOnly(s.dir); err != nil {
		return nil, err
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.path(of), Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := holder.CheckPeer(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func (s *Store) path(of engine.Handle) string {
	return filepath.Join(s.dir, s.opts.socketName(of)+holder.SocketSuffix)
}

// start starts a keeper with its first runner, or leaves the runner to one that another call has
// started meanwhile.
func (s *Store) start(of engine.Handle, r runner) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(s.dir, "start.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if ok, err := filelock.TryLock(lock); !ok {
		return err // nil: another call is starting one
	}
	conn, err := s.dial(of)
	switch {
	case err == nil:
		_ = leave(conn, r) // if that fails, the runner ends
		return nil
	case errors.Is(err, syscall.ECONNREFUSED): // its keeper was killed
		_ = os.Remove(s.path(of))
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return s.spawn(of, r)
}

// spawn makes the socket, and a keeper that listens on it.
func (s *Store) spawn(of engine.Handle, r runner) error {
	path := s.path(of)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	defer l.Close()
	l.SetUnlinkOnClose(false) // it is the keeper's now
	err = os.Chmod(path, 0o600)
	var socket *os.File
	if err == nil {
		socket, err = l.File()
	}
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	defer socket.Close()
	line, err := json.Marshal(handover{Path: path, Stay: s.opts.Stay, Runner: r})
	if err == nil {
		err = holder.Spawn(append(line, '\n'), []*os.File{socket, r.File}, "session", "lend", of.ID)
	}
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// Sweep removes the sockets of keepers that were killed.
func Sweep(env holder.Environment) {
	dir, err := holder.SocketDir(env, "run", "runners", nameLen)
	if err != nil || holder.OwnOnly(dir) != nil {
		return
	}
	sockets, _ := filepath.Glob(filepath.Join(dir, "*"+holder.SocketSuffix)) // the pattern is good
	for _, path := range sockets {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err == nil {
			_ = conn.Close() // nothing was said
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.Remove(path)
		}
	}
}
