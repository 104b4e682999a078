package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/sandboxbash/sandboxbash/internal/transfer"
)

// PullOptions say what Pull may overwrite.
type PullOptions struct {
	// Force overwrites files on this machine that have changed since the session and this
	// machine last had the same. It never overwrites a directory.
	Force bool
	// Untracked neither uses nor writes a record of what both sides have in common. It is
	// for a directory of the caller's own.
	Untracked bool
	// Into copies a directory into the target under its own name, if the target is a directory or
	// ends in a separator, as cp does. Otherwise what is in it is copied.
	Into bool
	// Skip says what of a directory is not copied; nil: all is.
	Skip Skip
}

// Pulled says what Pull did.
type Pulled struct {
	LeftOut []string // what was not pulled, with the reason
	// Deleted names what the session has deleted and this machine still has. Pull deletes
	// nothing.
	Deleted []string
	Written int // files, directories and links
	Files   int // of those, how many are files
	Bytes   int64
	Alike   int // files that were not written because they are here already
}

// ConflictError is returned by Pull if it would overwrite changes of the user.
type ConflictError = transfer.ConflictError

// Pull copies a file or directory of the session to this machine. The contents of a
// directory are copied into the directory to, which is created if it is missing. A file is
// copied into to if that is a directory or ends in a separator, and otherwise becomes to.
//
// Only regular files, directories and symbolic links that stay inside are made, never anything
// outside of the directory, and nothing that this machine's tools run by themselves, such as the
// configuration and hooks of a repository. Pull does not write what the session has not changed.
// If it would overwrite a change made here since both sides were equal, it returns a
// *ConflictError and writes nothing. If src is missing, it returns an *InputError.
func (s *Session) Pull(ctx context.Context, src, to string, o PullOptions) (done Pulled, err error) {
	err = s.observeTransfer(ctx, ModePull, s.inside(src), to, func() error {
		if done, err = s.pull(ctx, src, to, o); err != nil {
			err = s.explain("pull "+s.inside(src), err)
		}
		return err
	})
	return done, err
}

// explain adds to an error of a transfer what was transferred.
func (s *Session) explain(what string, err error) error {
	if _, missing := errors.AsType[missingError](err); missing {
		return badInput("path", "session %s: %s: %v", s.ID(), what, err)
	}
	return fmt.Errorf("session %s: %s: %w", s.ID(), what, err)
}

// pulling is one Pull.
type pulling struct {
	s    *Session
	src  string // in the session, absolute
	o    PullOptions
	tree target // if src is a directory
	file target // if it is a file

	at *target         // the one of the two that it is; nil before the first entry
	in *transfer.Inbox // nil before the first entry
}

// target is a directory that is pulled to.
type target struct {
	dir   string
	as    string // the name of a file on this machine
	pair  pair
	known transfer.State // of the pair's record
	err   error          // why there is none
}

func (s *Session) pull(ctx context.Context, src, to string, o PullOptions) (Pulled, error) {
	p := &pulling{s: s, src: s.inside(src), o: o}
	if err := p.aim(ctx, to); err != nil {
		return Pulled{}, err
	}
	err := s.receive(ctx, src, p.take)
	if p.in == nil {
		if err == nil {
			err = errors.New("nothing has arrived") // the runner sends one entry at least
		}
		return Pulled{}, err
	}
	var report transfer.Report
	if err == nil {
		report, err = p.in.Finish()
	}
	err = errors.Join(err, p.in.Close())
	done := Pulled{Deleted: report.Deleted, Written: report.Written, Files: report.Files, Bytes: report.Bytes, Alike: report.Alike}
	for _, l := range report.LeftOut {
		done.LeftOut = append(done.LeftOut, l.String())
	}
	if err == nil && p.tracked() {
		err = s.remember(ctx, p.at.pair, p.at.known, report.State, nil)
	}
	return done, err
}

// tracked reports whether a record may be written: names must be the same on both sides.
func (p *pulling) tracked() bool {
	return !p.o.Untracked && (p.at == &p.tree || p.file.as == path.Base(p.src))
}

// aim determines where to write if src is a directory, and where if it is a file, and what
// is recorded of these places.
func (p *pulling) aim(ctx context.Context, to string) error {
	abs, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	p.tree.dir, p.file.dir, p.file.as = abs, abs, path.Base(p.src)
	info, err := os.Stat(abs)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !missing:
		return err
	case missing && !endsInSeparator(to), err == nil && !info.IsDir():
		p.file.dir, p.file.as = filepath.Dir(abs), filepath.Base(abs)
		if !missing {
			p.tree.err = badInput("path", "%s is a directory, and %s is not", p.src, to)
		}
	}
	if base := path.Base(p.src); p.o.Into && base != "/" && (!missing || endsInSeparator(to)) && p.tree.err == nil {
		p.tree.dir = filepath.Join(abs, filepath.FromSlash(base))
	}
	if p.o.Untracked {
		return nil
	}
	p.tree.pair, p.file.pair = p.s.pairOf(p.tree.dir, p.src), p.s.pairOf(p.file.dir, path.Dir(p.src))
	if p.tree.known, err = p.recall(ctx, p.tree.pair); err != nil {
		return err
	}
	p.file.known = p.tree.known
	if p.file.pair.record != p.tree.pair.record || p.file.pair.id != p.tree.pair.id {
		p.file.known, err = p.recall(ctx, p.file.pair)
	}
	return err
}

// recall is like Session.recall. With Force it ignores a record that cannot be used.
func (p *pulling) recall(ctx context.Context, of pair) (transfer.State, error) {
	known, err := p.s.recall(ctx, of)
	if errors.Is(err, errAltered) && p.o.Force {
		return nil, nil
	}
	return known, err
}

func endsInSeparator(to string) bool {
	return strings.HasSuffix(to, "/") || strings.HasSuffix(to, string(filepath.Separator))
}

// take processes one entry. The first entry says whether src is a file or a directory.
func (p *pulling) take(e transfer.Entry, content io.Reader) error {
	if p.in == nil {
		p.at = &p.file
		if e.Kind == transfer.Dir {
			p.at = &p.tree
		}
		if p.at.err != nil {
			return p.at.err
		}
		o := transfer.Options{Force: p.o.Force, Named: p.at == &p.file, Skip: p.o.Skip, Leave: transfer.IsCredential, Clean: transfer.Clean}
		if p.tracked() {
			o.Base = p.at.known.Below(p.at.pair.below)
		}
		var err error
		if p.in, err = transfer.Open(p.at.dir, o); err != nil {
			return err
		}
	}
	if p.at == &p.file {
		if e.Name != path.Base(p.src) || e.Kind != transfer.File {
			return errors.New("it is more than the file that was asked for")
		}
		e.Name = p.file.as
	}
	return p.in.Take(e, content)
}

// Change is one difference between a session and a directory of this machine.
type Change = transfer.Change

// Side says which side has changed something. It is "" if that is not known.
type Side = transfer.Side

// Sides.
const (
	ChangedInSession = transfer.Session
	ChangedHere      = transfer.Here
	ChangedByBoth    = transfer.Both
)

// Diff compares a directory of the session with one of this machine, by content, mode
// and link target. If there is a record of what both once had in common, as for a copied
// workspace, each Change says which side made it. Diff ignores what Push leaves out.
func (s *Session) Diff(ctx context.Context, src, dir string) ([]Change, error) {
	changes, err := s.diff(ctx, src, dir)
	if err != nil {
		return nil, s.explain("diff", err)
	}
	return changes, nil
}

func (s *Session) diff(ctx context.Context, src, dir string) ([]Change, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, badInput("path", "%v", err)
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	of := s.pairOf(dir, s.inside(src))
	known, err := s.recall(ctx, of)
	if err != nil && !errors.Is(err, errAltered) {
		return nil, err
	}
	c := transfer.Compare(transfer.Tree{Root: root, Leave: transfer.IsCredential, Clean: transfer.Clean}, known.Below(of.below))
	if err := s.receive(ctx, src, c.Take); err != nil {
		return nil, err
	}
	return c.Finish()
}
