package holder

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Listener is the socket of a holder. Its Accept and its Close may be called concurrently; all
// other calls come from one goroutine.
type Listener struct {
	unix  *net.UnixListener
	path  string // where the socket is; "" once it has been removed
	final string // where Publish puts it
}

// Listen makes the socket of a holder in dir, for this user only. Clients find it by its name
// once Publish was called. The caller must call Close.
func Listen(dir, name string) (*Listener, error) {
	l := &Listener{path: filepath.Join(dir, name+NewSuffix), final: filepath.Join(dir, name+SocketSuffix)}
	_ = os.Remove(l.path) // of a holder that was killed; starts of the same name are one after the other
	var err error
	if l.unix, err = net.ListenUnix("unix", &net.UnixAddr{Name: l.path, Net: "unix"}); err != nil {
		return nil, err
	}
	l.unix.SetUnlinkOnClose(false) // by then another holder's socket may have its name
	if err := os.Chmod(l.path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Publish gives the socket the name by which clients find it.
func (l *Listener) Publish() error {
	if err := os.Rename(l.path, l.final); err != nil {
		return err
	}
	l.path = l.final
	return nil
}

// Removed reports whether the socket is gone: a user may remove it to end its holder.
func (l *Listener) Removed() bool {
	_, err := os.Lstat(l.path)
	return err != nil
}

// Close removes the socket, so that no new client finds it, and has Accept return. Later calls
// do nothing.
func (l *Listener) Close() {
	if l.path != "" {
		_ = os.Remove(l.path) // it may be gone
		l.path = ""
	}
	_ = l.unix.Close() // it may be closed
}

// acceptPause is the pause after an accept that fails, as a rule because there are no descriptors.
const acceptPause = 10 * time.Millisecond

// Accept serves clients until Close: MaxClients at a time, and those of this user only. Further
// ones are turned away. It returns when all have been served.
func (l *Listener) Accept(ctx context.Context, serve func(context.Context, io.Reader, io.Writer) error) {
	var clients sync.WaitGroup
	defer clients.Wait()
	slots := make(chan struct{}, MaxClients)
	for {
		conn, err := l.unix.AcceptUnix()
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed):
			return
		default:
			time.Sleep(acceptPause)
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		clients.Go(func() {
			defer func() { <-slots }()
			defer conn.Close() //nolint:errcheck // the client may have closed it
			if CheckPeer(conn) == nil {
				_ = serve(ctx, conn, conn) // of a client that has gone there is nothing to tell
			}
		})
	}
}
