package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/mux"
	"github.com/sandboxbash/sandboxbash/internal/webforward"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// ForwardOptions describe a Forward.
type ForwardOptions struct {
	// Listen is the address on this machine, as net.Listen takes it. A host of "" stands for
	// 127.0.0.1, and port 0 for a free one.
	Listen string
	// Port is where the server listens in the session: at 127.0.0.1, or at all addresses.
	Port int
	// HTTP passes on HTTP requests instead of connections, and only those of clients that have opened
	// Forward.URL: other users of this machine, and pages in its browsers, cannot use the Forward.
	HTTP bool
	// Note is called with what a user should see, in one line: that nothing listens in the
	// session, or that connections were lost. It does not repeat a text before a connection has
	// worked. It may be called concurrently, and must not block. It may be nil.
	Note func(text string)
}

// maxForwarded is how many connections the forwards of a session carry at once. Connections beyond
// it wait in the listener's backlog.
const maxForwarded = mux.MaxHostStreams

// A Forward is an address of this machine at which a port of a session can be reached. It
// needs no network in the session and no rule: connections are carried over a stream of the
// engine to the session's loopback interface.
//
// Each connection is connected inside when it is made. If nothing listens there, it is reset
// at once. Ends and resets of connections pass through as they are, in both directions.
//
// A Forward lasts until Close, or until its session is released, stopped or gone. If the
// runner that carries its connections is lost, they are reset, and new ones work again.
type Forward struct {
	session  *Session
	opts     ForwardOptions
	listener net.Listener
	ctx      context.Context //nolint:containedctx // it ends with the Forward
	stop     context.CancelCauseFunc
	wg       sync.WaitGroup
	web      *webforward.Server // nil unless HTTP
	over     chan struct{}      // closed when the listener and all connections are closed
	ending   sync.Once

	mu   sync.Mutex
	said string // guarded by mu; the last note, until a connection works
}

// Forward listens on this machine and forwards connections to a port of the session. ctx bounds
// the start only. The errors are those of net.Listen, an *InputError for an invalid port, and
// those of a session that is gone.
func (s *Session) Forward(ctx context.Context, opts ForwardOptions) (*Forward, error) {
	if opts.Port < 1 || opts.Port > maxPort {
		return nil, badInput("port", "%d is not a port: ports are 1 to %d", opts.Port, maxPort)
	}
	host, port, err := net.SplitHostPort(opts.Listen)
	if err != nil {
		return nil, badInput("listen", "%s", err)
	}
	if host == "" {
		host = localhost.String()
	}
	if s.inward == nil { // a reader
		return nil, fmt.Errorf("session %s: forward: it has ended", s.ID())
	}
	if _, err := s.inward.carrier(ctx); err != nil {
		return nil, fmt.Errorf("session %s: forward: %w", s.ID(), err)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("session %s: forward: %w", s.ID(), err)
	}
	f := &Forward{session: s, opts: opts, listener: listener, over: make(chan struct{})}
	f.ctx, f.stop = context.WithCancelCause(context.Background())
	if opts.HTTP {
		f.web = f.newWeb()
	}
	if err := s.inward.add(f); err != nil {
		return nil, errors.Join(fmt.Errorf("session %s: forward: %w", s.ID(), err), listener.Close())
	}
	if opts.HTTP {
		f.serveWeb()
	} else {
		f.wg.Go(f.accept)
	}
	return f, nil
}

const maxPort = 65535

// localhost is where servers of a session are reached, and where a Forward listens by default.
var localhost = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// Addr is where the Forward listens on this machine.
func (f *Forward) Addr() net.Addr { return f.listener.Addr() }

// Port is the port in the session.
func (f *Forward) Port() int { return f.opts.Port }

// Done is closed when the Forward has ended.
func (f *Forward) Done() <-chan struct{} { return f.over }

// Err says why a Forward has ended: net.ErrClosed after Close, an error that says what
// happened to the session, or nil if it has not ended.
func (f *Forward) Err() error { return context.Cause(f.ctx) }

// Close stops listening, resets the open connections, and waits until that is done.
func (f *Forward) Close() error {
	f.end(net.ErrClosed)
	<-f.over
	return nil
}

// end ends the Forward and does not wait. Only the first reason counts.
func (f *Forward) end(why error) {
	f.stop(why)
	f.ending.Do(func() {
		_ = f.listener.Close()
		go func() {
			f.wg.Wait()
			f.session.inward.remove(f)
			close(f.over)
		}()
	})
}

// note tells the user something, unless it was the last thing said.
func (f *Forward) note(text string) {
	f.mu.Lock()
	again := f.said == text
	f.said = text
	f.mu.Unlock()
	if !again && text != "" && f.opts.Note != nil {
		f.opts.Note(text)
	}
}

// accept takes connections while there is room for them.
func (f *Forward) accept() {
	const pause = 50 * time.Millisecond // after an accept that fails, as without descriptors
	for {
		conn, err := f.listener.Accept()
		if f.ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return
		}
		if err != nil {
			f.note("forward: " + err.Error())
			select {
			case <-time.After(pause):
			case <-f.ctx.Done():
			}
			continue
		}
		if !f.session.inward.enter(f.ctx, f) {
			_ = conn.Close()
			return
		}
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			f.session.inward.leave()
			_ = conn.Close()
			continue
		}
		f.wg.Go(func() {
			defer f.session.inward.leave()
			f.carry(tcp)
		})
	}
}

// carry connects a connection with the session, and carries its bytes until it ends.
func (f *Forward) carry(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // what fails is reset
	stream, err := f.open()
	if err != nil {
		_ = conn.Close()
		if f.ctx.Err() == nil {
			f.note(fmt.Sprintf("forward: a connection to port %d of the session was reset: %v", f.opts.Port, err))
		}
		return
	}
	release := context.AfterFunc(f.ctx, func() { stream.Reset(wire.NetCut) })
	defer release()
	_, received, err := mux.Join(stream, conn)
	if err == nil || received > 0 {
		f.note("") // it works
	} else if why := f.explain(err); why != "" && f.ctx.Err() == nil {
		f.note("forward: " + why)
	}
}

// explain says why the session has reset a connection, or "".
func (f *Forward) explain(err error) string {
	reset, _ := errors.AsType[*mux.ResetError](err)
	if reset == nil || !reset.Peer {
		return ""
	}
	switch reset.Reason { //nolint:exhaustive // the others are the server's
	case wire.NetRefused:
		return fmt.Sprintf("nothing listens at 127.0.0.1:%d in the session: start the server there, or have it listen at 0.0.0.0", f.opts.Port)
	case wire.NetFull:
		return "the session takes no more connections at once; one was reset"
	case wire.NetTimeout:
		return fmt.Sprintf("what listens at port %d of the session does not accept connections", f.opts.Port)
	}
	return ""
}

// open opens a stream to the port of the session.
func (f *Forward) open() (*mux.Stream, error) {
	ctx, cancel := context.WithTimeout(f.ctx, callTime)
	defer cancel()
	target := mux.Target{Kind: wire.NetDial, Local: netip.AddrPortFrom(localhost, uint16(f.opts.Port))}
	for again := false; ; {
		carrier, err := f.session.inward.carrier(ctx)
		if err != nil {
			return nil, err
		}
		stream, err := carrier.Open(ctx, target)
		switch {
		case errors.Is(err, mux.ErrFull) && pause(ctx, fullPause): // streams that were closed go when the runner has said so
		case !errors.Is(err, mux.ErrLost) || again:
			return stream, err
		default:
			again = true
		}
	}
}

// fullPause is the pause until a stream that was closed is looked for again.
const fullPause = 5 * time.Millisecond

// inward is the way into a session: what the forwards of this process share. The connections
// go through the runner that carries those of the session's rules, or, without rules here,
// through one of its own, which is opened for the first of them.
type inward struct {
	session *Session
	room    chan struct{} // has an element for each open connection
	opening chan struct{} // has an element while the runner is opened

	mu       sync.Mutex
	own      *mux.Session      // guarded by mu; the runner opened here, or nil
	known    *mux.Session      // guarded by mu; the one whose end is waited for
	forwards map[*Forward]bool // guarded by mu
	closed   bool              // guarded by mu
	watchers sync.WaitGroup
}

func newInward(s *Session) *inward {
	return &inward{
		session: s, room: make(chan struct{}, maxForwarded), opening: make(chan struct{}, 1), forwards: map[*Forward]bool{},
	}
}

func (in *inward) add(f *Forward) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return net.ErrClosed
	}
	in.forwards[f] = true
	return nil
}

// remove forgets a Forward. The last one closes the runner that was opened for them.
func (in *inward) remove(f *Forward) {
	in.mu.Lock()
	delete(in.forwards, f)
	var own *mux.Session
	if len(in.forwards) == 0 {
		own, in.own, in.known = in.own, nil, nil
	}
	in.mu.Unlock()
	if own != nil {
		_ = own.Close()
	}
}

// close ends all forwards, and waits for their ends.
func (in *inward) close() {
	if in == nil {
		return
	}
	in.mu.Lock()
	in.closed = true
	all := in.all()
	in.mu.Unlock()
	for _, f := range all {
		_ = f.Close()
	}
	in.mu.Lock()
	own := in.own // of a call that failed
	in.own, in.known = nil, nil
	in.mu.Unlock()
	if own != nil {
		_ = own.Close()
	}
	in.watchers.Wait()
}

// all needs mu.
func (in *inward) all() []*Forward {
	var all []*Forward
	for f := range in.forwards {
		all = append(all, f)
	}
	return all
}

// enter waits for room for one more connection. It returns false if ctx has ended.
func (in *inward) enter(ctx context.Context, f *Forward) bool {
	select {
	case in.room <- struct{}{}:
		return true
	default:
	}
	f.note(fmt.Sprintf("forward: %d connections are open, which is the limit; more wait until one ends", maxForwarded))
	select {
	case in.room <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (in *inward) leave() { <-in.room }

// carrier returns a runner that carries connections; it opens one if there is none.
func (in *inward) carrier(ctx context.Context) (*mux.Session, error) {
	select {
	case in.opening <- struct{}{}:
		defer func() { <-in.opening }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return nil, net.ErrClosed
	}
	if shared := in.session.carrier().link(); shared != nil {
		in.watch(shared)
		return shared, nil
	}
	if in.own == nil || in.own.Err() != nil {
		in.mu.Unlock()
		own, err := in.session.openCarrier(ctx)
		in.mu.Lock()
		if err != nil {
			return nil, err
		}
		if in.closed {
			_ = own.Close()
			return nil, net.ErrClosed
		}
		in.own = own
	}
	in.watch(in.own)
	return in.own, nil
}

// openCarrier opens a runner that carries connections, and listens nowhere.
func (s *Session) openCarrier(ctx context.Context) (*mux.Session, error) {
	if err := s.settled(ctx); err != nil {
		return nil, err
	}
	args := append([]string{engine.RunnerPath}, wire.VerbNet.Command()...)
	stream, err := s.engine.backend.Open(ctx, s.handle, engine.Exec{Args: args, User: "0:0"})
	if err != nil {
		return nil, err
	}
	carrier := mux.New(mux.Host, stream, mux.Options{Lease: netLease, UID: s.info.User.UID})
	if err := carrier.Ready(ctx); err != nil {
		err = errors.Join(err, carrier.Close())
		if words := stream.Stderr(); words != "" {
			err = fmt.Errorf("%w (the runner says: %s)", err, words)
		}
		return nil, err
	}
	return carrier, nil
}

// link returns the runner that carries the session's connections at the moment, or nil.
func (x *exceptions) link() *mux.Session {
	if x == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.current.Session; c != nil && c.Err() == nil {
		return c
	}
	return nil
}

// watch waits for the end of a carrier, once. It needs mu.
func (in *inward) watch(carrier *mux.Session) {
	if in.known == carrier {
		return
	}
	in.known = carrier
	in.watchers.Go(func() {
		<-carrier.Done()
		in.lost(carrier)
	})
}

// lost handles the end of a carrier that was in use. It tells the forwards, and opens another
// one, because the end may be that of the session.
func (in *inward) lost(carrier *mux.Session) {
	in.mu.Lock()
	current := in.known == carrier && !in.closed
	all := in.all()
	in.mu.Unlock()
	if !current || len(all) == 0 {
		return
	}
	err := in.again(all)
	for _, f := range all {
		switch {
		case f.ctx.Err() != nil:
		case err != nil:
			f.end(fmt.Errorf("session %s: forward: %w", in.session.ID(), err))
		default:
			f.note("forward: the way into the session was lost for a moment: connections that were open were reset, and new ones work")
		}
	}
}

// again opens another carrier. Some time passes if the session is being reset. It gives up
// when all forwards have ended, or if the session is gone.
func (in *inward) again(all []*Forward) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	in.watchers.Go(func() { // closing forwards do not wait for an engine that does not answer
		for _, f := range all {
			select {
			case <-f.ctx.Done():
			case <-stop:
				return
			}
		}
		cancel()
	})
	pause := firstPause
	for tries := 1; ; tries++ {
		_, err := in.carrier(ctx)
		if err == nil || errors.Is(err, net.ErrClosed) {
			return nil // the forwards have ended
		}
		if gone := in.session.gone(ctx); errors.Is(gone, engine.ErrNotFound) || gone != nil && tries >= resetTries {
			return gone
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
		pause = min(2*pause, maxPause)
	}
}

// resetTries is how often a session may be found ended, more than a second in all, before it is
// taken for gone: another process may be resetting it.
const resetTries = 4

// gone returns an error if the session has ended.
func (s *Session) gone(ctx context.Context) error {
	state, err := s.state(ctx)
	switch {
	case errors.Is(err, engine.ErrNotFound):
		return err
	case err == nil && state.Status == engine.StatusExited:
		return lost(state)
	}
	return nil
}
