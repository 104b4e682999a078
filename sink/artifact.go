package sink

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/sandboxbash/sandboxbash/internal/filelock"
)

// Artifact describes the file on the host with the full scrubbed output of a command, in
// the order of its arrival.
type Artifact struct {
	ID       string // decimal; "" without a store, or if the store could give none
	Path     string // "" unless Stored
	Bytes    int64  // in the file
	Stored   bool   // there is a file
	Complete bool   // there is a file and it holds every byte
	Cause    string // why it is not complete, if a file was wanted
}

// ArtifactMode says when a command's output becomes an artifact.
type ArtifactMode int

const (
	// OnOverflow writes one if a window elides something, or if the output does not fit
	// into memory, even if little of it is text.
	OnOverflow ArtifactMode = iota
	// Always writes one, even if the output is empty.
	Always
	// Never writes no artifact.
	Never
)

// partialSize is the size of the file that marks an artifact as not complete. It is
// allocated at the start, so that the cause can be written when the disk is full.
const partialSize = 512

// diskBuffer is the size of each of the two buffers before the disk: one is filled while
// the other is written. When both are full the stream waits for the disk.
const diskBuffer = 512 << 10

// A diskWriter writes one artifact from a goroutine of its own, which ends with finish.
// Its errors do not fail the command: it keeps the first one as the cause, and drops all
// further bytes.
type diskWriter struct {
	session *Session
	name    string
	done    chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex
	more   sync.Cond // on mu: fill is not empty, or closed
	room   sync.Cond // on mu: fill is empty again, or cause is set
	fill   []byte    // guarded by mu
	closed bool      // guarded by mu
	cause  string    // guarded by mu; why writing ended early

	// Used by the goroutine alone until done is closed.
	file, partial *os.File
	bytes         int64
	granted       int64
}

func newDiskWriter(s *Session, name string) *diskWriter {
	w := &diskWriter{session: s, name: name, done: make(chan struct{})}
	w.more.L, w.room.L = &w.mu, &w.mu
	go func() {
		defer close(w.done)
		w.drain()
	}()
	return w
}

// write takes a copy of p.
func (w *diskWriter) write(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(p) > 0 && w.cause == "" {
		n := min(diskBuffer-len(w.fill), len(p))
		if n == 0 {
			w.room.Wait()
			continue
		}
		w.fill = append(w.fill, p[:n]...)
		p = p[n:]
		w.more.Signal()
	}
}

func (w *diskWriter) drain() {
	cause := w.open()
	var spare []byte
	for {
		w.mu.Lock()
		if cause != "" && w.cause == "" {
			w.cause = cause
			w.fill = nil
			w.room.Broadcast()
		}
		for len(w.fill) == 0 && !w.closed {
			w.more.Wait()
		}
		if len(w.fill) == 0 {
			w.mu.Unlock()
			return
		}
		full := w.fill
		w.fill = spare[:0]
		w.room.Broadcast()
		w.mu.Unlock()
		if cause == "" {
			cause = w.put(full)
		}
		spare = full
	}
}

// open creates first the mark that the file is not complete, and then the file.
func (w *diskWriter) open() (cause string) {
	var err error
	if w.partial, err = w.session.create(w.name + partialSuffix); err != nil {
		return causeOf(err)
	}
	if err = filelock.Lock(w.partial); err != nil {
		return causeOf(err)
	}
	if err = w.mark(""); err != nil {
		return causeOf(err)
	}
	if w.file, err = w.session.create(w.name); err != nil {
		return causeOf(err)
	}
	return ""
}

// put writes as much of p as the quotas and the disk allow.
func (w *diskWriter) put(p []byte) (cause string) {
	for len(p) > 0 {
		n := int64(len(p))
		if left := w.session.store.opts.ArtifactBytes - w.bytes; n > left {
			n = left
			if n == 0 {
				return fmt.Sprintf("the artifact's quota of %s is used up", FormatBytes(w.session.store.opts.ArtifactBytes))
			}
		}
		if w.granted == 0 {
			if w.granted, cause = w.session.grant(); cause != "" {
				return cause
			}
		}
		n = min(n, w.granted)
		written, err := w.file.Write(p[:n])
		w.bytes += int64(written)
		w.granted -= int64(written)
		if err != nil {
			return causeOf(err)
		}
		p = p[n:]
	}
	return ""
}

// mark writes why the artifact is not complete, "" while that is not known.
func (w *diskWriter) mark(cause string) error {
	if len(cause) > partialSize {
		cause = cause[:partialSize]
	}
	_, err := w.partial.WriteAt([]byte(cause+strings.Repeat(" ", partialSize-len(cause))), 0)
	return err
}

// finish writes the rest and describes the artifact. A cause says why the artifact is not
// complete even if everything could be written.
func (w *diskWriter) finish(id, cause string) Artifact {
	w.mu.Lock()
	w.closed = true
	w.more.Broadcast()
	w.mu.Unlock()
	<-w.done

	w.mu.Lock()
	if w.cause != "" {
		cause = w.cause
	}
	w.mu.Unlock()
	a := Artifact{ID: id, Cause: cause}
	if w.file != nil {
		a.Stored = w.session.holds(w.name, w.file)
		if !a.Stored {
			a.Cause = "the artifact was removed while it was written"
		}
		if err := w.file.Close(); err != nil && a.Cause == "" {
			a.Cause = causeOf(err)
		}
	}
	if a.Stored {
		a.Path, a.Bytes, a.Complete = w.session.path(w.name), w.bytes, a.Cause == ""
	}
	if w.partial != nil {
		w.settle(a)
	}
	return a
}

// settle removes the mark of a complete artifact, and writes the cause into that of any
// other.
//
// It unlocks the mark before closing it: a child process that is just being started has
// a copy of the open file, and with it the lock, until it executes its program.
func (w *diskWriter) settle(a Artifact) {
	if a.Stored && !a.Complete {
		_ = w.mark(a.Cause) // without it, the cause is not known later
	}
	_ = filelock.Unlock(w.partial) // it ends with the file at the latest
	_ = w.partial.Close()
	if a.Complete || !a.Stored {
		_ = w.session.remove(w.name + partialSuffix) // if it stays, the artifact counts as incomplete
	}
}

// causeOf returns the text of an error without the path, which is the artifact's.
func causeOf(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Op + ": " + pe.Err.Error()
	}
	return err.Error()
}

// OnOverflow keeps raw bytes in memory until a window overflows: at most rawHead times
// the window's size, or minRawHead if that is more.
const (
	rawHead    = 4
	minRawHead = 256 << 10
)

// A spill writes an artifact of a command's output if one is wanted. It keeps the output
// in memory until then.
type spill struct {
	session *Session
	mode    ArtifactMode
	most    int // bytes kept in memory
	id      string
	cause   string // why there is no id

	mu   sync.Mutex  // held while a full buffer waits for the disk: it keeps the order
	head []byte      // guarded by mu; all bytes so far, while w is nil
	w    *diskWriter // guarded by mu
}

// newSpill takes an id for the command. If there is none, nothing is stored.
func newSpill(s *Session, mode ArtifactMode, window int) *spill {
	sp := &spill{session: s, mode: mode, most: max(rawHead*window, minRawHead)}
	if s == nil {
		sp.mode = Never
		return sp
	}
	id, err := s.next()
	if err != nil {
		sp.mode, sp.cause = Never, causeOf(err)
		return sp
	}
	sp.id = strconv.FormatInt(id, 10)
	return sp
}

func (s *spill) write(p []byte, overflowed bool) {
	if s.session == nil || s.id == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w == nil && s.mode != Never && (overflowed || s.mode == Always || len(s.head)+len(p) > s.most) {
		s.begin()
	}
	switch {
	case s.w != nil:
		s.w.write(p)
	case s.mode != Never:
		s.head = append(s.head, p...)
	}
}

func (s *spill) begin() {
	s.w = newDiskWriter(s.session, s.id+logSuffix)
	s.w.write(s.head)
	s.head = nil
}

// finish ends the artifact. overflowed reports whether a window has elided something: if
// so, and nothing could be stored, the result has the cause.
func (s *spill) finish(overflowed bool, cause string) Artifact {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w == nil && s.id != "" && (s.mode == Always || s.mode == OnOverflow && overflowed) {
		s.begin()
	}
	if s.w != nil {
		return s.w.finish(s.id, cause)
	}
	a := Artifact{ID: s.id}
	if overflowed {
		a.Cause = s.cause
	}
	return a
}

// keepOriginal stores the original of a minimized text, unless there is an artifact
// already. It reports whether the original is stored.
func (s *spill) keepOriginal(a Artifact) bool {
	if a.Stored || s.mode == Never {
		return a.Complete
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := newDiskWriter(s.session, s.id+originalSuffix)
	w.write(s.head)
	return w.finish(s.id, "").Complete
}
