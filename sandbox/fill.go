package sandbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/transfer"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// The workspace of a fork has content before its session starts. The runner writes it in a helper in which no program of a session runs, so that a session either has the whole of it or does
// not exist. See engine.Fill and docs/adr/0072.

// Where such a helper sees what it works on. The records of the session that is read are where that session has them.
const (
	fillFrom    = "/from"
	fillTo      = "/to"
	fillRecords = "/records"
)

// undoLock is locked by what changes a workspace as a whole.
const undoLock = wire.JobsDir + "/undo/lock"

// fillCaps are what it takes to read every file of a workspace and to write it as whose it was.
var fillCaps = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID"}

// filled says where the content of a new workspace comes from.
type filled struct {
	image string // the reference that the label says, if the spec has the image's ID
	from  *Info  // the session whose workspace is read; nil: none is
	// do fills the workspace and the records of a new session, by a helper.
	do func(ctx context.Context, t filling) error
}

// filling is one workspace that is being filled.
type filling struct {
	helper *Session // of the session that is read, if there is one
	spec   Spec     // of the new session
	key    []byte   // of the new session
	strict bool
}

// fill returns what the engine is to do.
func (f *filled) fill(e *Engine, spec Spec, p prerequisites, key []byte) (*engine.Fill, error) {
	r := readerSpec{labels: labelsOf(spec, p.image, engine.Overlays{}), caps: fillCaps, cpus: 2}
	if n := float64(p.info.CPUs); n > 0 {
		r.cpus = min(r.cpus, n)
	}
	r.labels.Profile = Strict // of the helper: fillCaps are all that it needs
	info := Info{}
	if f.from != nil {
		r.over = []engine.Attachment{{Session: f.from.ID, Target: fillFrom, Records: wire.JobsDir}}
		info = *f.from
	}
	helper, err := r.helper()
	if err != nil {
		return nil, err
	}
	return &engine.Fill{
		Helper: helper, Target: fillTo, Records: fillRecords,
		Do: func(ctx context.Context, h engine.Handle) error {
			info.ID, info.labels.Path = h.ID, standardPath
			s := e.reader(h, info)
			defer s.Release()
			return f.do(ctx, filling{helper: s, spec: spec, key: key, strict: spec.Profile == Strict})
		},
	}, nil
}

// tree runs a verb of a helper that answers with a wire.Tree.
func (s *Session) tree(ctx context.Context, in io.Reader, args []string) (wire.Tree, error) {
	var out bytes.Buffer
	err := s.helperAs(ctx, User{}, helperStreams{in: in, out: &limited{w: &out, left: maxHelperOutput}, timeout: transferTime}, args)
	if err != nil {
		return wire.Tree{}, err
	}
	return wire.ParseTree(out.Bytes())
}

// records is what a new session knows of what its workspace was copied from. The zero value is nothing.
type records struct {
	state transfer.State
	index transfer.Index
	texts map[transfer.Sum][]byte
}

// recordsOf reads the record of a copied workspace. It is nothing if there is none, or if it is another machine's.
func (s *Session) recordsOf(ctx context.Context, from Info) (records, error) {
	if from.Workspace.Kind != WorkspaceCopy || from.key == nil {
		return records{}, nil
	}
	state, index, err := s.recallIndexed(ctx, s.pairOf(from.Workspace.Dir, from.Workspace.Target))
	if errors.Is(err, ErrNotRecorded) || errors.Is(err, errAltered) {
		return records{}, nil
	}
	if err != nil {
		return records{}, err
	}
	out := records{state: state, index: index, texts: map[transfer.Sum][]byte{}}
	err = s.receiveAs(ctx, User{}, textsDir, func(e transfer.Entry, r io.Reader) error {
		if e.Kind != transfer.File || e.Size > maxKeptText || strings.Contains(e.Name, "/") {
			return nil
		}
		b, err := io.ReadAll(io.LimitReader(r, maxKeptText))
		if sum := transfer.Sum(sha256.Sum256(b)); err == nil && textName(sum) == e.Name {
			out.texts[sum] = b
		}
		return err
	})
	if _, missing := errors.AsType[missingError](err); missing {
		err = nil
	}
	return out, err
}

// keepRecords writes the record of a new session.
func (t filling) keepRecords(ctx context.Context, r records) error {
	if r.state == nil {
		return nil
	}
	// A session as the new one will be, for what its key seals.
	own := &Session{info: Info{key: t.key, Workspace: t.spec.Workspace, labels: labelSpec{Workspace: t.spec.Workspace}}}
	of := own.pairOf(t.spec.Workspace.Dir, t.spec.Workspace.Target)
	_, err := t.helper.sendAs(ctx, User{}, strings.Replace(copiedDir, wire.JobsDir, fillRecords, 1), func(p *transfer.Packer) error {
		err := p.Bytes(of.record, own.sealCopied(of.id, r.state))
		if err == nil && r.index != nil {
			err = p.Bytes(indexName(of), own.sealIndex(of.id, r.index))
		}
		if err == nil {
			err = (&texts{of: r.texts}).pack(p)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("keep what was copied: %w", err)
	}
	return nil
}
