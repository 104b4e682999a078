package docker

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/sandboxbash/sandboxbash/engine"
)

// Detach takes a stream apart. A connection inside TLS cannot be moved, because its keys are in
// this process.
func (e *Engine) Detach(s engine.Stream) (f *os.File, name string, err error) {
	own, ok := s.(*stream)
	if !ok {
		return nil, "", fmt.Errorf("move a %T: %w", s, errors.ErrUnsupported)
	}
	if !own.between() {
		return nil, "", fmt.Errorf("move exec %s: a part of a frame was read: %w", own.id, errors.ErrUnsupported)
	}
	conn, ok := own.conn.(interface{ File() (*os.File, error) })
	if !ok {
		return nil, "", fmt.Errorf("move exec %s: a %T cannot be moved: %w", own.id, own.conn, errors.ErrUnsupported)
	}
	if f, err = conn.File(); err != nil {
		return nil, "", fmt.Errorf("move exec %s: %w", own.id, err)
	}
	_ = own.Close() // f goes on
	return f, string(own.id), nil
}

// Adopt makes a stream of a connection that another process has detached.
func (e *Engine) Adopt(f *os.File, name string) (engine.Stream, error) {
	conn, err := net.FileConn(f) // a copy
	_ = f.Close()
	if err != nil {
		return nil, fmt.Errorf("adopt exec %s: %w", name, err)
	}
	return &stream{demux: newDemux(bufio.NewReaderSize(conn, streamBuffer), frames), client: e.client, conn: conn, id: execID(name)}, nil
}
