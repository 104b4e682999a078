//go:build unix

package keeper

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
)

// The files of a keeper, besides its standard streams: see handover.
const (
	socketFile = 3
	runnerFile = 4
)

// askTime is how long a client that has connected may take to say what it needs.
const askTime = 5 * time.Second

// busyPause is the pause after a connection that could not be accepted.
const busyPause = 50 * time.Millisecond

// Main is a keeper: it serves until it has nothing to keep, or ctx ends. It reads its handover
// from in.
func Main(ctx context.Context, in io.Reader) error {
	var h handover
	if err := holder.ReadLine(bufio.NewReader(io.LimitReader(in, maxMessage)), &h); err != nil {
		return exit.Misuse("run `sandboxbash session exec`, which starts this process", "there is no handover on standard input: %v", err)
	}
	listener, err := net.FileListener(os.NewFile(socketFile, "socket"))
	if err != nil {
		return err
	}
	unix, ok := listener.(*net.UnixListener)
	if !ok {
		return fmt.Errorf("file %d is not a Unix socket", socketFile)
	}
	k := newKeeper(unix, h.Path, h.Stay)
	h.Runner.File = os.NewFile(runnerFile, "runner")
	k.leave(h.Runner)
	k.serve(ctx)
	return nil
}

// keeper keeps idle runners.
//
// A runner is idle, and read by its watch, or it is lent: then this process has no file of it, and
// knows of it only by the client's connection.
type keeper struct {
	listener *net.UnixListener
	path     string
	socket   os.FileInfo // of path, as it was made
	stay     time.Duration

	done  chan struct{} // closed at the end
	timer *time.Timer   // runs out when the next idle runner has stayed for long enough

	mu      sync.Mutex
	idle    []*parked // guarded by mu; the last one left is the last
	clients int       // guarded by mu
	ended   bool      // guarded by mu
}

// parked is an idle runner.
type parked struct {
	runner  // without its file
	conn    net.Conn
	since   time.Time
	watched chan struct{} // closed when its watch has ended
	err     error         // why the watch has ended; set before watched is closed
}

func newKeeper(listener *net.UnixListener, path string, stay time.Duration) *keeper {
	k := &keeper{listener: listener, path: path, stay: min(max(stay, 0), MaxStay), done: make(chan struct{})}
	k.socket, _ = os.Lstat(path) // nil if it is gone: then it is not removed either
	k.timer = time.AfterFunc(k.stay, k.expire)
	return k
}

// serve takes clients until the end.
func (k *keeper) serve(ctx context.Context) {
	stop := context.AfterFunc(ctx, k.end)
	defer stop()
	var served sync.WaitGroup
	for {
		conn, err := k.listener.AcceptUnix()
		if err != nil {
			select {
			case <-k.done:
				served.Wait()
				return
			case <-time.After(busyPause): // too many files are open
				continue
			}
		}
		if !k.enter() {
			_ = conn.Close()
			continue
		}
		served.Go(func() {
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer stop()
			k.client(conn)
			_ = conn.Close()
			k.leaveOne()
		})
	}
}

// client answers one client.
func (k *keeper) client(conn *net.UnixConn) {
	if holder.CheckPeer(conn) != nil {
		return
	}
	_ = conn.SetDeadline(time.Now().Add(askTime))
	what, r, err := receive(conn)
	if err == nil && what == sayTake {
		if r.File != nil {
			_ = r.File.Close()
		}
		if k.lend(conn) != nil {
			return
		}
		_ = conn.SetDeadline(time.Time{}) // for as long as its command runs
		what, r, err = receive(conn)
	}
	if err != nil || r.File == nil {
		return
	}
	if what != sayLeave {
		_ = r.File.Close()
		return
	}
	k.leave(r)
	_ = conn.SetDeadline(time.Now().Add(askTime))
	_, _ = conn.Write([]byte{sayKept}) // a client that has gone does not need it
}

// lend gives a client an idle runner, if there is one. The runner ends with the client.
func (k *keeper) lend(conn *net.UnixConn) error {
	for {
		p := k.pop()
		if p == nil {
			_, err := conn.Write([]byte{sayNone})
			return err
		}
		file, err := p.detach()
		if err != nil {
			continue // it has ended
		}
		r := p.runner
		r.File = file
		err = send(conn, sayHere, r)
		_ = file.Close()
		return err
	}
}

// pop removes the runner that was left last from those that are idle, nil if there is none.
func (k *keeper) pop() *parked {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(k.idle)
	if n == 0 {
		return nil
	}
	p := k.idle[n-1]
	k.idle = k.idle[:n-1]
	return p
}

// detach ends the watch of a runner that is not idle any more, and returns its connection.
func (p *parked) detach() (*os.File, error) {
	defer p.conn.Close()
	if err := p.conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return nil, err
	}
	<-p.watched
	if !errors.Is(p.err, os.ErrDeadlineExceeded) {
		return nil, p.err
	}
	moved, ok := p.conn.(interface{ File() (*os.File, error) })
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return moved.File()
}

// leave takes over a runner and its file. It closes one that cannot be kept.
func (k *keeper) leave(r runner) {
	conn, err := net.FileConn(r.File) // a copy
	_ = r.File.Close()
	if err != nil {
		return
	}
	r.File = nil
	p := &parked{runner: r, conn: conn, since: time.Now(), watched: make(chan struct{})}
	k.mu.Lock()
	full := k.ended || len(k.idle) >= mostIdle
	if !full {
		k.idle = append(k.idle, p)
		k.schedule()
	}
	k.mu.Unlock()
	if full {
		_ = conn.Close()
		return
	}
	go k.watch(p)
}

// errSpoke reports a runner that has said something while it was idle.
var errSpoke = errors.New("an idle runner has sent something")

// watch waits for the end of an idle runner, which says nothing.
func (k *keeper) watch(p *parked) {
	n, err := p.conn.Read(make([]byte, 1))
	if n > 0 || err == nil {
		err = errSpoke
	}
	p.err = err
	close(p.watched)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return // detach has its connection
	}
	k.drop(func(other *parked) bool { return other == p })
}

// drop closes idle runners, and ends the keeper if it has nothing to do any more.
func (k *keeper) drop(which func(*parked) bool) {
	k.mu.Lock()
	var left, gone []*parked
	for _, p := range k.idle {
		if which(p) {
			gone = append(gone, p)
		} else {
			left = append(left, p)
		}
	}
	k.idle = left
	k.schedule()
	k.mu.Unlock()
	for _, p := range gone {
		_ = p.conn.Close()
	}
	k.endIfIdle()
}

// expire drops the runners that have stayed for long enough.
func (k *keeper) expire() {
	now := time.Now()
	k.mu.Lock()
	var due []*parked
	for i, p := range k.idle {
		if !k.until(i).After(now) {
			due = append(due, p)
		}
	}
	k.mu.Unlock()
	k.drop(func(p *parked) bool {
		for _, d := range due {
			if d == p {
				return true
			}
		}
		return false
	})
}

// until is when an idle runner has stayed for long enough. The caller holds mu.
func (k *keeper) until(i int) time.Time {
	stay := k.stay
	if i < len(k.idle)-1 {
		stay = min(stay, extraStay)
	}
	return k.idle[i].since.Add(stay)
}

// schedule sets the timer. The caller holds mu.
func (k *keeper) schedule() {
	if len(k.idle) == 0 {
		k.timer.Stop()
		return
	}
	next := k.until(0)
	if last := k.until(len(k.idle) - 1); last.Before(next) {
		next = last
	}
	k.timer.Reset(max(time.Until(next), time.Millisecond))
}

// enter counts a client. It is false at the end.
func (k *keeper) enter() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.ended {
		k.clients++
	}
	return !k.ended
}

func (k *keeper) leaveOne() {
	k.mu.Lock()
	k.clients--
	k.mu.Unlock()
	k.endIfIdle()
}

func (k *keeper) endIfIdle() {
	k.mu.Lock()
	end := len(k.idle) == 0 && k.clients == 0 && !k.ended
	k.ended = k.ended || end // from here on no client enters
	k.mu.Unlock()
	if end {
		k.close()
	}
}

// end ends the keeper, whatever it has.
func (k *keeper) end() {
	k.mu.Lock()
	end := !k.ended
	k.ended = true
	k.mu.Unlock()
	if end {
		k.close()
	}
}

// close lets go of all. Who connects from now on finds no keeper, or one that says nothing.
func (k *keeper) close() {
	k.mu.Lock()
	idle := k.idle
	k.idle = nil
	k.timer.Stop()
	k.mu.Unlock()
	if now, err := os.Lstat(k.path); err == nil && k.socket != nil && os.SameFile(now, k.socket) {
		_ = os.Remove(k.path)
	}
	close(k.done)
	_ = k.listener.Close()
	for _, p := range idle {
		_ = p.conn.Close()
	}
}
