package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/sandboxbash/sandboxbash/internal/transfer"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// transferTime bounds one transfer. transferIdle bounds the time in which no byte of it
// arrives, because in profile dev a command can stop the program at the other end.
const (
	transferTime = time.Hour
	transferIdle = time.Minute
)

// errTransferIdle is the cause of a transfer that was given up.
var errTransferIdle = errors.New("nothing has arrived for too long: a command of the session may have stopped the transfer")

// copyIn copies a host directory into a new workspace. It returns the paths that it left
// out because they look like credentials.
func (s *Session) copyIn(ctx context.Context, w Workspace) ([]string, error) {
	out, err := s.pack(ctx, w.Target, func(t *transfer.Packer) error { return t.Tree(w.Dir) })
	if err == nil {
		err = s.rememberCopy(ctx, w.Dir, w.Target, out)
	}
	if err != nil {
		return nil, fmt.Errorf("copy %s into the workspace: %w", w.Dir, err)
	}
	if text := largeText(w.Dir, out); text != "" {
		s.engine.mu.Lock()
		s.notes = append(s.notes, text)
		s.engine.mu.Unlock()
	}
	return out.Left, nil
}

// A copy that has more than these takes seconds, and its user should know why.
const (
	largeSize  = 1 << 30 // bytes
	largeFiles = 200_000
	largeParts = 3 // that are named
)

// largeText says of a large copy what is large in it and what else can be done, "" of another.
func largeText(dir string, out *transfer.Packer) string {
	if out.Size <= largeSize && out.Files <= largeFiles {
		return ""
	}
	names := slices.SortedFunc(maps.Keys(out.Parts), func(a, b string) int {
		return cmp.Or(cmp.Compare(out.Parts[b], out.Parts[a]), cmp.Compare(a, b))
	})
	var largest []string
	for _, name := range names[:min(len(names), largeParts)] {
		largest = append(largest, printable(name)+" "+units.HumanSize(float64(out.Parts[name])))
	}
	return fmt.Sprintf("the copy of %s is large, %s in %d files, most of it %s: bind:DIR uses the directory itself, and in an empty workspace `session cp --gitignore` or --exclude copies a part of it",
		printable(dir), units.HumanSize(float64(out.Size)), out.Files, strings.Join(largest, ", "))
}

// Push copies a file or directory of the host into a directory of the session, under its own
// name. It overwrites files, and returns what it left out because it looks like credentials. If
// src is missing, it returns an *InputError.
func (s *Session) Push(ctx context.Context, src, dir string) (left []string, err error) {
	err = s.observeTransfer(ctx, ModePush, src, s.inside(dir), func() error {
		left, err = s.push(ctx, src, dir)
		return err
	})
	return left, err
}

func (s *Session) push(ctx context.Context, src, dir string) ([]string, error) {
	if _, err := os.Stat(src); errors.Is(err, fs.ErrNotExist) {
		return nil, badInput("path", "push: %v", err)
	}
	abs, err := filepath.Abs(src)
	if err != nil {
		return nil, err
	}
	out, err := s.pack(ctx, s.inside(dir), func(t *transfer.Packer) error { return t.Named(abs) })
	if err == nil {
		err = s.addCopied(ctx, []common{{filepath.Dir(abs), s.inside(dir), out.Packed}})
	}
	if err != nil {
		return nil, fmt.Errorf("session %s: push %s to %s: %w", s.ID(), src, s.inside(dir), err)
	}
	return out.Left, nil
}

// inside returns p as an absolute path in the container. A relative p is relative to the
// workspace.
func (s *Session) inside(p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join(s.info.labels.Workspace.Target, p)
}

// pack is like send, and also records what was packed.
func (s *Session) pack(ctx context.Context, dir string, fill func(*transfer.Packer) error) (*transfer.Packer, error) {
	return s.sendAs(ctx, s.info.labels.User, dir, func(t *transfer.Packer) error {
		t.Record = true
		return fill(t)
	})
}

// send streams a tar to the runner, and compares what arrived there.
func (s *Session) send(ctx context.Context, dir string, fill func(*transfer.Packer) error) error {
	_, err := s.sendAs(ctx, s.info.labels.User, dir, fill)
	return err
}

// sendAs is send for files of another user.
func (s *Session) sendAs(ctx context.Context, user User, dir string, fill func(*transfer.Packer) error) (*transfer.Packer, error) {
	if strings.IndexByte(dir, 0) >= 0 {
		return nil, badInput("path", "the path has a NUL byte")
	}
	ctx, moves, end := s.watchTransfer(ctx)
	defer end()
	r, w := io.Pipe()
	sum := sha256.New()
	out := transfer.NewPacker(io.MultiWriter(w, sum))
	packed := make(chan error, 1)
	go func() {
		err := errors.Join(fill(out), out.Close())
		w.CloseWithError(err)
		packed <- err
	}()
	var answer bytes.Buffer
	err := s.transfer(ctx, user, helperStreams{in: movingReader{r, moves}, out: &limited{w: &answer, left: 1 << 10}}, wire.VerbPush, dir)
	r.CloseWithError(errors.New("the transfer has ended"))
	if packErr := <-packed; packErr != nil && err == nil {
		err = packErr
	} else if packErr != nil && out.Err != nil {
		err = out.Err
	}
	if err != nil {
		return nil, err
	}
	if got, err := wire.ParseSum(answer.Bytes()); err != nil || got != wire.Sum(sum.Sum(nil)) {
		return nil, errors.New("what arrived in the session is not what was sent")
	}
	return out, nil
}

// transfer runs a transfer in the session. The program runs as uid 0 and acts for
// the user, so that no command of profile strict can reach it.
func (s *Session) transfer(ctx context.Context, user User, streams helperStreams, verb wire.Verb, path string) error {
	streams.timeout = transferTime
	err := s.helperAs(ctx, User{}, streams, verb.Command(&wire.TransferArgs{UID: user.UID, GID: user.GID, Path: path}))
	if err != nil && errors.Is(context.Cause(ctx), errTransferIdle) {
		return errTransferIdle
	}
	return err
}

// moves measures how long a transfer has waited for the other end.
type moves struct {
	timer *time.Timer
	after time.Duration
}

// watchTransfer returns a context that ends when the transfer has waited too long for the
// other end. The time starts with the first move.
func (s *Session) watchTransfer(ctx context.Context) (context.Context, *moves, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	m := &moves{after: s.engine.idle}
	m.timer = time.AfterFunc(m.after, func() { cancel(errTransferIdle) })
	m.timer.Stop()
	return ctx, m, func() {
		m.timer.Stop()
		cancel(nil)
	}
}

// own runs do, which is work of this end. Its time does not count.
func (m *moves) own(do func() (int, error)) (int, error) {
	m.timer.Stop()
	defer m.timer.Reset(m.after)
	return do()
}

type movingReader struct {
	r io.Reader
	m *moves
}

func (r movingReader) Read(p []byte) (int, error) {
	return r.m.own(func() (int, error) { return r.r.Read(p) })
}

type movingWriter struct {
	w io.Writer
	m *moves
}

func (w movingWriter) Write(p []byte) (int, error) {
	return w.m.own(func() (int, error) { return w.w.Write(p) })
}

// receive calls take with each entry of a tree of the session, within the limits. The error
// is a missingError if src does not exist.
func (s *Session) receive(ctx context.Context, src string, take func(transfer.Entry, io.Reader) error) error {
	return s.receiveAs(ctx, s.info.labels.User, s.inside(src), take)
}

// receiveAs is receive with the rights of another user.
func (s *Session) receiveAs(ctx context.Context, user User, src string, take func(transfer.Entry, io.Reader) error) error {
	if strings.IndexByte(src, 0) >= 0 {
		return badInput("path", "the path has a NUL byte")
	}
	return s.take(ctx, user, arriving{verb: wire.VerbPull, src: src, take: take})
}

// arriving is a stream of entries from a session.
type arriving struct {
	verb wire.Verb
	src  string // absolute
	in   string // what the verb reads
	take func(transfer.Entry, io.Reader) error
}

func (s *Session) take(ctx context.Context, user User, a arriving) error {
	ctx, moves, end := s.watchTransfer(ctx)
	defer end()
	r, w := io.Pipe()
	taken := make(chan error, 1)
	go func() {
		err := transfer.Read(r, transfer.DefaultLimits, a.take)
		r.CloseWithError(err)
		taken <- err
	}()
	// Reading standard input shows that the program has started, even if it is empty.
	in := movingReader{strings.NewReader(a.in), moves}
	err := s.transfer(ctx, user, helperStreams{in: in, out: movingWriter{w, moves}}, a.verb, a.src)
	w.CloseWithError(err)
	if takeErr := <-taken; takeErr != nil && (err == nil || errors.Is(err, takeErr)) {
		return takeErr
	}
	return err
}
