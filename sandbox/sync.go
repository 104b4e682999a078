package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/sandboxbash/sandboxbash/internal/transfer"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// SyncOptions say what Sync does.
type SyncOptions struct {
	Check bool // decide, and write nothing
	Skip  Skip // of what stays here as it is
}

// Synced says what Sync did, or with SyncOptions.Check would do.
type Synced struct {
	// Changes are those of this machine that were brought into the session.
	Changes []Change `json:"changes"`
	// Conflicts are those that were not, because the session has changed the same.
	Conflicts []SyncConflict `json:"conflicts"`
	Files     int            `json:"files"` // whose content was copied
	Bytes     int64          `json:"bytes"` // of these files
}

// SyncConflict is a file, or a repository as a whole, that both sides have changed.
type SyncConflict struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Sync brings what was changed here, in the directory that was copied into the session, to the
// session: new, changed and deleted files, links and permissions. What the session has changed, too, stays
// as it is there and is listed. A repository is brought as a whole or not at all. From then on
// Changes shows what the session has changed besides. With an error, Synced is what was done until
// then. The error is ErrNotRecorded if it is not known what was copied.
func (s *Session) Sync(ctx context.Context, o SyncOptions) (done Synced, err error) {
	w := s.info.labels.Workspace
	if w.Kind != WorkspaceCopy {
		return Synced{}, badInput("workspace", "the workspace of session %s is not a copy of a directory", s.ID())
	}
	do := func() error {
		if done, err = s.sync(ctx, w, o); err != nil {
			err = s.explain("sync", err)
		}
		return err
	}
	if o.Check {
		err = do()
		return done, err
	}
	err = s.observeTransfer(ctx, ModePush, w.Dir, w.Target, do)
	return done, err
}

func (s *Session) sync(ctx context.Context, w Workspace, o SyncOptions) (done Synced, err error) {
	of := s.pairOf(w.Dir, w.Target)
	scan, err := transfer.OpenScan(w.Dir)
	if err != nil {
		return Synced{}, err
	}
	defer func() { err = errors.Join(err, scan.Close()) }()
	base, index, err := s.recallIndexed(ctx, of)
	if err != nil {
		return Synced{}, err
	}
	if err := scan.Read(ctx, index); err != nil {
		return Synced{}, err
	}
	p := &syncing{s: s, of: of, dir: w.Dir, to: w.Target, base: base, scan: scan}
	if err := p.decide(ctx, wanted(transfer.Deltas(base, scan.State), o.Skip)); err != nil {
		return Synced{}, err
	}
	if o.Check {
		for _, d := range p.take {
			p.note(d)
		}
		return p.done, nil
	}
	err = p.do(ctx)
	return p.done, err
}

// syncing is one Sync.
type syncing struct {
	s       *Session
	of      pair
	dir, to string
	base    transfer.State
	scan    *transfer.Scan

	take    []transfer.Delta // to be brought
	settled []transfer.Delta // both sides have it now
	done    Synced
}

// decide asks the session what would become of each change.
func (p *syncing) decide(ctx context.Context, deltas []transfer.Delta) error {
	if len(deltas) == 0 {
		return nil
	}
	verdicts, err := p.s.update(ctx, p.to, deltas, nil)
	if err != nil {
		return err
	}
	left := leftRepositories(deltas, verdicts)
	for i, d := range deltas {
		repository := transfer.RepositoryOf(d.Name)
		if why, ok := left[repository]; ok && repository != "" {
			if why != "" {
				p.conflict(repository, why)
			}
			continue
		}
		if verdicts[i] == transfer.Taken {
			p.take = append(p.take, d)
			continue
		}
		p.judged(d, verdicts[i])
	}
	return nil
}

// wanted returns the changes that are not to be left out.
func wanted(deltas []transfer.Delta, skip Skip) []transfer.Delta {
	if skip == nil {
		return deltas
	}
	return slices.DeleteFunc(deltas, func(d transfer.Delta) bool {
		unwanted, _ := skip(d.Name, d.Was.Kind == transfer.Dir || d.Now.Kind == transfer.Dir)
		return unwanted
	})
}

// leftRepositories returns the repositories that are not brought, and why: "" if there is nothing to
// tell, because git has written its index anew here and in the session, as looking at the status does.
func leftRepositories(deltas []transfer.Delta, verdicts []transfer.Verdict) map[string]string {
	left, more := map[string]string{}, map[string]bool{}
	for i, d := range deltas {
		repository := transfer.RepositoryOf(d.Name)
		isIndex := d.Name == path.Join(repository, "index")
		if repository == "" {
			continue
		}
		more[repository] = more[repository] || !isIndex
		if verdicts[i] != transfer.Taken && verdicts[i] != transfer.Alike {
			left[repository] = ""
		}
	}
	for repository := range left {
		if more[repository] {
			left[repository] = "both sides have used this repository: commits do not come in until the session's were brought here"
		}
	}
	return left
}

// judged notes a change that is not to be brought.
func (p *syncing) judged(d transfer.Delta, v transfer.Verdict) {
	switch v {
	case transfer.Taken, transfer.Alike:
		p.settled = append(p.settled, d)
	case transfer.Gone:
		p.conflict(d.Name, "changed here, deleted in the session")
	case transfer.Missed:
		p.conflict(d.Name, "changed here while it was read: sync again")
	case transfer.Clash:
		switch {
		case d.Was.Kind == 0:
			p.conflict(d.Name, "made on both sides, and not alike")
		case d.Now.Kind == 0:
			p.conflict(d.Name, "deleted here, changed in the session")
		default:
			p.conflict(d.Name, "changed on both sides")
		}
	}
}

// conflict lists a conflict. What lies below a directory that is one is not listed.
func (p *syncing) conflict(name, why string) {
	if n := len(p.done.Conflicts); n > 0 && strings.HasPrefix(name+"/", p.done.Conflicts[n-1].Path+"/") {
		return
	}
	p.done.Conflicts = append(p.done.Conflicts, SyncConflict{name, why})
}

// note lists a change that was brought. What lies below a deleted directory or in a repository is not
// listed.
func (p *syncing) note(d transfer.Delta) {
	c := d.Change()
	c.By = ChangedHere
	if repository := transfer.RepositoryOf(d.Name); repository != "" && repository != d.Name {
		if n := len(p.done.Changes); n > 0 && p.done.Changes[n-1].Path == repository {
			return
		}
		c.Path, c.Kind = repository, "modified"
	}
	if n := len(p.done.Changes); c.Kind == "deleted" && n > 0 && p.done.Changes[n-1].Kind == "deleted" && strings.HasPrefix(c.Path, p.done.Changes[n-1].Path+"/") {
		return
	}
	p.done.Changes = append(p.done.Changes, c)
}

// do brings the changes, and records what both sides have now.
func (p *syncing) do(ctx context.Context) error {
	var taken []transfer.Entry
	if len(p.take) > 0 {
		verdicts, err := p.s.update(ctx, p.to, p.take, p.pack)
		if err != nil {
			return err
		}
		for i, d := range p.take {
			if verdicts[i] == transfer.Taken {
				p.note(d)
				taken = append(taken, d.Now)
			}
			p.judged(d, verdicts[i])
		}
	}
	if len(p.settled) == 0 && p.scan.Files == 0 {
		return nil // the record and the index are as they are
	}
	kept := &texts{}
	if len(taken) > 0 {
		var err error
		if kept, err = unknownTexts(ctx, p.dir, taken); err != nil {
			return err
		}
	}
	if err := p.s.keepRecord(ctx, p.of, p.state(), p.scan.Index, kept); err != nil {
		return fmt.Errorf("all was brought, but this could not be recorded in the session; a further sync does no harm: %w", err)
	}
	return nil
}

// pack packs the files and links that are to be brought.
func (p *syncing) pack(t *transfer.Packer) error {
	var names []string
	for _, d := range p.take {
		if d.Now.Kind == transfer.File || d.Now.Kind == transfer.Link {
			names = append(names, d.Name)
		}
	}
	err := t.Names(p.dir, names)
	p.done.Files, p.done.Bytes = t.Files, t.Size
	return err
}

// state is what both sides have now.
func (p *syncing) state() transfer.State {
	settled := map[string]bool{}
	out := make([]transfer.Entry, 0, len(p.base)+len(p.settled))
	for _, d := range p.settled {
		settled[d.Name] = true
		if d.Now.Kind != 0 {
			out = append(out, d.Now)
		}
	}
	for _, e := range p.base {
		if !settled[e.Name] {
			out = append(out, e)
		}
	}
	return transfer.NewState(out)
}

// update asks the session to do changes below a directory, or with no contents what would become of
// them, and returns a verdict for each.
func (s *Session) update(ctx context.Context, dir string, deltas []transfer.Delta, contents func(*transfer.Packer) error) ([]transfer.Verdict, error) {
	ctx, moves, end := s.watchTransfer(ctx)
	defer end()
	r, w := io.Pipe()
	var out *transfer.Packer
	packed := make(chan error, 1)
	go func() {
		_, err := w.Write(transfer.AppendUpdate(nil, deltas, contents == nil))
		if err == nil && contents != nil {
			out = transfer.NewPacker(w)
			err = errors.Join(contents(out), out.Close())
		}
		w.CloseWithError(err)
		packed <- err
	}()
	var answer bytes.Buffer
	err := s.transfer(ctx, s.info.labels.User, helperStreams{in: movingReader{r, moves}, out: &limited{w: &answer, left: int64(len(deltas)) + 1}}, wire.VerbUpdate, dir)
	r.CloseWithError(errors.New("the transfer has ended"))
	if packErr := <-packed; packErr != nil && err == nil {
		err = packErr
	} else if packErr != nil && out != nil && out.Err != nil {
		err = out.Err
	}
	if err != nil {
		return nil, err
	}
	return transfer.ParseVerdicts(answer.Bytes(), len(deltas))
}

// indexName is the file name of the index that belongs to a record.
func indexName(of pair) string { return of.record + ".index" }

// indexID tells an index from the record of its pair.
func indexID(id string) string { return "index " + id }

// sealIndex encodes and seals an index.
func (s *Session) sealIndex(id string, index transfer.Index) []byte {
	body := index.Append([]byte(indexID(id)))
	return append(s.macCopied(body), body...)
}

// recallIndexed returns the recorded state of a pair, and the index of the directory of this machine. The
// index is empty if there is none that can be used: all files are read then. The error is ErrNotRecorded
// if there is no record.
func (s *Session) recallIndexed(ctx context.Context, of pair) (base transfer.State, index transfer.Index, err error) {
	if s.info.key == nil {
		return nil, nil, ErrNotRecorded
	}
	files := map[string][]byte{}
	err = s.pickAs(ctx, User{}, copiedDir, []string{of.record, indexName(of)}, func(e transfer.Entry, r io.Reader) error {
		var b bytes.Buffer
		_, err := io.Copy(&limited{w: &b, left: maxCopiedRecord}, r)
		files[e.Name] = b.Bytes()
		return err
	})
	_, missing := errors.AsType[missingError](err)
	switch {
	case missing || err == nil && files[of.record] == nil:
		return nil, nil, ErrNotRecorded
	case err != nil:
		return nil, nil, fmt.Errorf("read what was copied: %w", err)
	}
	known, err := s.openCopied(of.id, files[of.record])
	if err != nil {
		return nil, nil, err
	}
	if known == nil {
		return nil, nil, ErrNotRecorded
	}
	return known.Below(of.below), s.openIndex(of.id, files[indexName(of)]), nil
}

// openIndex decodes an index. One that cannot be used is as good as none.
func (s *Session) openIndex(id string, b []byte) transfer.Index {
	body, err := s.unsealed(b)
	if err != nil {
		return nil
	}
	text, ok := bytes.CutPrefix(body, []byte(indexID(id)))
	if !ok {
		return nil
	}
	index, err := transfer.ParseIndex(text)
	if err != nil {
		return nil
	}
	return index
}
