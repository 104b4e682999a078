package sandbox

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// Caps on what is taken out of a session: its contents are its commands'.
const (
	maxPullBytes   = 16 << 30 // of all files together
	maxPullEntries = 1 << 20
	maxPullDepth   = 256 // directories
)

// transferTime bounds one transfer.
const transferTime = time.Hour

// copyIn fills a fresh workspace with a host directory and returns what was left
// out because it looked like credentials.
func (s *Session) copyIn(ctx context.Context, w Workspace) ([]string, error) {
	left, err := s.send(ctx, w.Target, func(t *tarOut) error { return t.tree(w.Dir) })
	if err != nil {
		return nil, fmt.Errorf("copy %s into the workspace: %w", w.Dir, err)
	}
	return left, nil
}

// Push copies a file or directory of the host into a directory of the session,
// under its own name. It overwrites files, and returns what it left out because
// it looks like credentials.
func (s *Session) Push(ctx context.Context, src, dir string) ([]string, error) {
	left, err := s.send(ctx, s.inside(dir), func(t *tarOut) error { return t.named(src) })
	if err != nil {
		return nil, fmt.Errorf("session %s: push %s to %s: %w", s.ID(), src, s.inside(dir), err)
	}
	return left, nil
}

// inside makes a path of the container absolute: relative ones are the
// workspace's.
func (s *Session) inside(p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join(s.info.labels.Workspace.Target, p)
}

// send streams a tar to the runner, and compares what arrived there.
func (s *Session) send(ctx context.Context, dir string, fill func(*tarOut) error) ([]string, error) {
	return s.sendAs(ctx, s.info.labels.User, dir, fill)
}

// sendAs is send for files of another user.
func (s *Session) sendAs(ctx context.Context, user User, dir string, fill func(*tarOut) error) ([]string, error) {
	if strings.IndexByte(dir, 0) >= 0 {
		return nil, badInput("path", "the path has a NUL byte")
	}
	r, w := io.Pipe()
	sum := sha256.New()
	out := newTarOut(io.MultiWriter(w, sum))
	packed := make(chan error, 1)
	go func() {
		err := errors.Join(fill(out), out.archive.Close())
		w.CloseWithError(err)
		packed <- err
	}()
	var answer bytes.Buffer
	err := s.helperAs(ctx, user, helperStreams{in: r, out: &limited{w: &answer, left: 1 << 10}, timeout: transferTime}, "push", dir)
	r.CloseWithError(errors.New("the transfer has ended"))
	if packErr := <-packed; packErr != nil && err == nil {
		err = packErr
	} else if packErr != nil && out.err != nil {
		err = out.err
	}
	if err != nil {
		return nil, err
	}
	if got := strings.TrimSpace(answer.String()); got != hex.EncodeToString(sum.Sum(nil)) {
		return nil, errors.New("what arrived in the session is not what was sent")
	}
	return out.left, nil
}

// Pull copies a file or directory of the session below a directory of the host,
// which is made if it is missing. Only regular files, directories and symbolic
// links that stay inside are made there, never anything outside of it; what was
// left out is returned.
func (s *Session) Pull(ctx context.Context, src, dir string) (skipped []string, err error) {
	in, err := newTarIn(dir)
	if err != nil {
		return nil, fmt.Errorf("session %s: pull %s: %w", s.ID(), s.inside(src), err)
	}
	defer in.root.Close()
	if err := s.receive(ctx, src, in.entry); err != nil {
		return in.skipped, fmt.Errorf("session %s: pull %s: %w", s.ID(), s.inside(src), err)
	}
	return in.skipped, in.finish()
}

// receive streams a tar from the runner through take, within the caps.
func (s *Session) receive(ctx context.Context, src string, take func(*tar.Header, io.Reader) error) error {
	if strings.IndexByte(src, 0) >= 0 {
		return badInput("path", "the path has a NUL byte")
	}
	r, w := io.Pipe()
	taken := make(chan error, 1)
	go func() {
		err := readTar(r, take)
		r.CloseWithError(err)
		taken <- err
	}()
	err := s.helperTo(ctx, helperStreams{out: w, timeout: transferTime}, "pull", s.inside(src))
	w.CloseWithError(err)
	if takeErr := <-taken; takeErr != nil && (err == nil || errors.Is(err, takeErr)) {
		return takeErr
	}
	return err
}

// readTar reads a hostile tar stream: entries in bounds, each handed to take.
func readTar(r io.Reader, take func(*tar.Header, io.Reader) error) error {
	archive := tar.NewReader(r)
	entries, total := 0, int64(0)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			_, err := io.Copy(io.Discard, r) // the padding behind the end
			return err
		}
		if err != nil {
			return err
		}
		entries++
		total += h.Size
		name := path.Clean(h.Name)
		switch {
		case entries > maxPullEntries:
			return fmt.Errorf("it has more than %d files", maxPullEntries)
		case total > maxPullBytes:
			return fmt.Errorf("it is larger than %d bytes", int64(maxPullBytes))
		case strings.Count(name, "/") > maxPullDepth:
			return fmt.Errorf("%s: it is deeper than %d directories", printable(name), maxPullDepth)
		case !filepath.IsLocal(filepath.FromSlash(name)) || strings.IndexByte(name, 0) >= 0:
			return fmt.Errorf("entry %q leads out of the directory", name)
		}
		h.Name = name
		if err := take(h, archive); err != nil {
			return fmt.Errorf("%s: %w", printable(name), err)
		}
	}
}

// Change is one difference between a session's workspace and the host directory
// that it was copied from.
type Change struct {
	Path string `json:"path"` // relative
	Kind string `json:"kind"` // "added", "modified", "deleted", "type"
}

// Diff compares a directory of the session with one of the host, by content,
// mode and link target. What push leaves out is not compared.
func (s *Session) Diff(ctx context.Context, src, dir string) ([]Change, error) {
	d, err := newDiffer(dir)
	if err != nil {
		return nil, fmt.Errorf("session %s: diff: %w", s.ID(), err)
	}
	defer d.root.Close()
	if err := s.receive(ctx, src, d.entry); err != nil {
		return nil, fmt.Errorf("session %s: diff: %w", s.ID(), err)
	}
	return d.finish()
}

// hashOf hashes a stream.
func hashOf(r io.Reader) (string, error) {
	h := sha256.New()
	_, err := io.Copy(h, r)
	return hex.EncodeToString(h.Sum(nil)), err
}
