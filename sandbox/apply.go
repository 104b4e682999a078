package sandbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxbash/sandboxbash/internal/hostgit"
	"github.com/sandboxbash/sandboxbash/internal/merge"
	"github.com/sandboxbash/sandboxbash/internal/transfer"
)

// ApplyOptions say what Apply does.
type ApplyOptions struct {
	Paths []string // files and directories, relative to the directory; none: all
	Check bool     // decide, and write nothing
	// Shown, if it is not nil, are files that Changes.Patch has shown: nothing but them is applied, with the
	// directories that they need or leave empty, and only if the session has not changed them since. Of one that
	// FileDiff.Part has returned, that part is applied.
	Shown []FileDiff
	Count bool // fill Applied.Counts
}

// Applied says what Apply did, or with ApplyOptions.Check would do.
type Applied struct {
	// Changes are what was brought here. By is ChangedByBoth for a file that was merged.
	Changes []Change
	LeftOut []string // what is never brought here, with the reason
	Kept    []string // directories that the session has deleted, and that hold something else here
	// Runs names files among Changes that programs of this machine run, or may run, when they
	// are used here.
	Runs []string
	// Counts are the lines of the files among Changes that Apply changes here, in the order of
	// Changes; with ApplyOptions.Count.
	Counts []LineCount
}

// LineCount counts the lines of a file that are changed.
type LineCount struct {
	Path           string
	Added, Removed int
	Note           string // why they are not counted
}

// ApplyConflictError is returned by Apply if something was changed on both sides and cannot
// be merged. Nothing was written.
type ApplyConflictError = transfer.ClashError

// ErrApplyBusy is returned by Apply if another process applies changes to the directory.
var ErrApplyBusy = transfer.ErrBusy

// Apply brings what the session has changed in src, since it was copied from dir or last
// applied, to dir: new, changed and deleted files, links and permissions. What was changed
// in dir meanwhile stays: a text that both have changed is merged. If that cannot be done
// for one file, the error is an *ApplyConflictError and nothing was written. Either all is
// written or nothing is, also if this process is killed: then the next Apply undoes what
// was done. Nothing is written into repositories, nor what looks like credentials. The
// error is ErrNotRecorded if it is not known what the session has changed.
func (s *Session) Apply(ctx context.Context, src, dir string, o ApplyOptions) (done Applied, err error) {
	err = s.observeTransfer(ctx, ModePull, s.inside(src), dir, func() error {
		if done, err = s.apply(ctx, s.inside(src), dir, o); err != nil {
			err = s.explain("apply", err)
		}
		return err
	})
	return done, err
}

func (s *Session) apply(ctx context.Context, src, dir string, o ApplyOptions) (done Applied, err error) {
	for i, p := range o.Paths {
		if o.Paths[i], err = s.under(filepath.ToSlash(p)); err != nil {
			return Applied{}, err
		}
	}
	open := transfer.OpenApply
	if o.Check {
		open = transfer.OpenCheck
	}
	a, err := open(dir)
	if err != nil {
		return Applied{}, err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	return s.applyTo(ctx, &applying{src: src, dir: dir, o: o, a: a})
}

// applying is one Apply.
type applying struct {
	src, dir string
	o        ApplyOptions
	a        *transfer.Apply
	plan     *transfer.Applying
	parts    map[string]*filePart // what was chosen of files
	kept     texts                // what both sides have from now on
	counts   map[string]LineCount
}

func (s *Session) applyTo(ctx context.Context, p *applying) (Applied, error) {
	of := s.pairOf(p.dir, p.src)
	base, now, err := s.both(ctx, p.src, of)
	if err == nil && p.o.Shown != nil {
		p.a.Only, err = onlyShown(p.o.Shown, transfer.Deltas(base, now), now)
		if err == nil {
			now, err = p.choose(base, now)
		}
	}
	if err != nil {
		return Applied{}, err
	}
	if p.plan, err = p.a.Plan(base, now, p.o.Paths); err != nil {
		return Applied{}, err
	}
	if err := s.merge(ctx, p); err != nil {
		return Applied{}, err
	}
	if len(p.plan.Conflicts) > 0 {
		return p.applied(ctx), &transfer.ClashError{Conflicts: p.plan.Conflicts}
	}
	if !p.o.Check || p.o.Count {
		if err := s.stage(ctx, p); err != nil {
			return Applied{}, err
		}
	}
	done := p.applied(ctx)
	done.Counts = p.counted(base, now)
	if p.o.Check {
		return done, nil
	}
	if err := p.a.Commit(); err != nil {
		return Applied{}, err
	}
	var known transfer.State
	if of.below != "." {
		known, err = s.recall(ctx, of)
	}
	if err == nil {
		err = s.remember(ctx, of, known, p.plan.State, &p.kept)
	}
	if err != nil {
		return done, fmt.Errorf("all was applied, but this could not be recorded in the session; a further apply does no harm: %w", err)
	}
	return done, nil
}

// onlyShown returns what selects the files that were shown, and the directories that are made for them
// or that they leave.
func onlyShown(shown []FileDiff, deltas []transfer.Delta, now transfer.State) (func(transfer.Delta) bool, error) {
	taken := map[string]bool{}
	for _, f := range shown {
		e, _ := now.Find(f.Path)
		if e.Kind != f.now.Kind || e.Kind != 0 && !e.Same(f.now) {
			return nil, fmt.Errorf("%s was changed in the session since it was shown: look at it again", f.Path)
		}
		taken[f.Path] = true
	}
	isDir := func(d transfer.Delta) bool {
		return (d.Was.Kind == 0 || d.Was.Kind == transfer.Dir) && (d.Now.Kind == 0 || d.Now.Kind == transfer.Dir)
	}
	need, hold := map[string]bool{}, map[string]bool{} // directories with a file that is taken, with one that is not
	for _, d := range deltas {
		if isDir(d) {
			continue
		}
		mark := hold
		if taken[d.Name] {
			mark = need
		}
		for dir := path.Dir(d.Name); dir != "."; dir = path.Dir(dir) {
			mark[dir] = true
		}
	}
	return func(d transfer.Delta) bool {
		return taken[d.Name] || isDir(d) && (!hold[d.Name] || need[d.Name] && d.Now.Kind != 0)
	}, nil
}

// choose returns the state of the session as if it had made no other changes to the files of which a part was
// chosen. So what both sides have afterwards is that part, and the rest is still a change of the session.
func (p *applying) choose(base, now transfer.State) (transfer.State, error) {
	now, p.parts = slices.Clone(now), map[string]*filePart{}
	for _, f := range p.o.Shown {
		if f.part == nil {
			continue
		}
		if was, _ := base.Find(f.Path); was.Kind != transfer.File || !was.Same(f.was) {
			return nil, fmt.Errorf("%s was applied or copied since it was shown: look at it again", f.Path) // else what was left out would be undone here
		}
		p.parts[f.Path] = f.part
	}
	for i, e := range now {
		if part := p.parts[e.Name]; part != nil {
			now[i] = part.Entry
		}
	}
	return now, nil
}

// pickFor calls take with files of the session, and first with those of which a part was chosen.
func (s *Session) pickFor(ctx context.Context, p *applying, names []string, take func(transfer.Entry, io.Reader) error) error {
	var rest []string
	for _, name := range names {
		part := p.parts[name]
		if part == nil {
			rest = append(rest, name)
			continue
		}
		if err := take(part.Entry, bytes.NewReader(part.text)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return s.pick(ctx, p.src, rest, take)
}

// stage brings the contents that the plan wants.
func (s *Session) stage(ctx context.Context, p *applying) error {
	missing := len(p.plan.Fetch)
	err := s.pickFor(ctx, p, p.plan.Fetch, func(e transfer.Entry, r io.Reader) error {
		missing--
		content := &firstBytes{most: merge.MaxText}
		r = io.TeeReader(r, content)
		if p.o.Check {
			_, err := io.Copy(io.Discard, r)
			return errors.Join(err, p.count(e.Name, content.b))
		}
		if err := p.a.Stage(e.Name, r); err != nil {
			return err
		}
		p.kept.keep(content.b)
		return p.count(e.Name, content.b)
	})
	if err == nil && missing != 0 {
		err = errors.New("files of the session were removed meanwhile: try again")
	}
	return err
}

// firstBytes is a writer that keeps the first bytes, one more than most of what is longer.
type firstBytes struct {
	b    []byte
	most int
}

func (s *firstBytes) Write(p []byte) (int, error) {
	s.b = append(s.b, p[:min(len(p), s.most+1-len(s.b))]...)
	return len(p), nil
}

// count counts the lines that change in a file that gets a content.
func (p *applying) count(name string, content []byte) error {
	if !p.o.Count {
		return nil
	}
	c := LineCount{Path: name}
	was, err := p.a.ReadHere(name, merge.MaxText)
	switch {
	case errors.Is(err, transfer.ErrTooLarge) || len(content) > merge.MaxText:
		c.Note = "too large to be counted"
	case err != nil && !p.a.HasNoFile(name):
		return err
	case !merge.IsText(was) || !merge.IsText(content):
		c.Note = "binary"
	default:
		_, c.Added, c.Removed = merge.Unified(was, content)
	}
	if p.counts == nil {
		p.counts = map[string]LineCount{}
	}
	p.counts[name] = c
	return nil
}

// counted returns the counts of all changes but directories.
func (p *applying) counted(base, now transfer.State) []LineCount {
	if !p.o.Count {
		return nil
	}
	var out []LineCount
	for _, c := range p.plan.Changes {
		was, _ := base.Find(c.Path)
		if is, ok := now.Find(c.Path); is.Kind == transfer.Dir || !ok && was.Kind == transfer.Dir {
			continue
		}
		if n, ok := p.counts[c.Path]; ok {
			out = append(out, n)
			continue
		}
		if c.Kind == "deleted" && was.Kind == transfer.File {
			if err := p.count(c.Path, nil); err == nil {
				out = append(out, p.counts[c.Path])
				continue
			}
		}
		out = append(out, LineCount{Path: c.Path}) // a link, or permissions alone
	}
	return out
}

func (p *applying) applied(ctx context.Context) Applied {
	done := Applied{Changes: p.plan.Changes, Kept: p.plan.Kept}
	for _, l := range p.plan.LeftOut {
		done.LeftOut = append(done.LeftOut, l.String())
	}
	var written []string
	for _, c := range p.plan.Changes {
		if c.Kind != "deleted" {
			written = append(written, c.Path)
		}
	}
	done.Runs = runHere(ctx, p.dir, written)
	return done
}

// runHere returns the names of files that programs of this machine may run.
func runHere(ctx context.Context, dir string, names []string) (out []string) {
	if len(names) == 0 {
		return nil
	}
	hooks := hostgit.Hooks(ctx, dir)
	for _, name := range names {
		if transfer.RunsHere(name) || hooks != "" && (hooks == "." || strings.HasPrefix(name, hooks+"/")) {
			out = append(out, name)
		}
	}
	return out
}

// merge merges the texts that both sides have changed, and notes a conflict for each file
// that cannot be merged.
func (s *Session) merge(ctx context.Context, p *applying) error {
	left, was := p.plan.Merge, map[string]transfer.Sum{}
	for _, m := range left {
		was[m.Name] = *m.Was.Sum
	}
	former, err := s.former(ctx, p.dir, was)
	if err != nil {
		return err
	}
	var fetch []string
	for _, m := range left {
		switch {
		case m.Now.Size > merge.MaxText:
			p.conflict(m.Name, "changed on both sides, and too large to be merged")
		case former[m.Name] == nil && (m.Now.Size != m.Was.Size || *m.Now.Sum != *m.Was.Sum):
			p.conflict(m.Name, "changed on both sides, and what it was before is neither in git here nor, as only small texts are, kept in the session")
		default:
			fetch = append(fetch, m.Name)
		}
	}
	err = s.pickFor(ctx, p, fetch, func(e transfer.Entry, r io.Reader) error {
		theirs, err := io.ReadAll(io.LimitReader(r, merge.MaxText+1))
		if err != nil {
			return err
		}
		i := slices.IndexFunc(left, func(m transfer.Merging) bool { return m.Name == e.Name })
		return p.mergeOne(left[i], former[e.Name], theirs)
	})
	slices.SortFunc(p.plan.Conflicts, func(x, y transfer.Conflict) int { return strings.Compare(x.Name, y.Name) })
	return err
}

func (p *applying) conflict(name, why string) {
	p.plan.Conflicts = append(p.plan.Conflicts, transfer.Conflict{Name: name, Why: why})
}

// mergeOne merges a file. was is nil if the session has changed its permissions alone.
func (p *applying) mergeOne(m transfer.Merging, was, theirs []byte) error {
	if sha256.Sum256(theirs) != *m.Now.Sum {
		return errors.New("it was changed in the session meanwhile: try again")
	}
	ours, err := p.a.ReadHere(m.Name, merge.MaxText)
	if err == nil && sha256.Sum256(ours) != *m.Here.Sum {
		err = errors.New("it was changed here meanwhile: try again")
	}
	if errors.Is(err, transfer.ErrTooLarge) {
		p.conflict(m.Name, "changed on both sides, and too large to be merged")
		return nil
	}
	if err != nil {
		return err
	}
	if was == nil {
		was = theirs
	}
	merged, ok := merge.Merge(was, ours, theirs)
	if !ok {
		p.conflict(m.Name, "changed on both sides, in the same lines or not as text")
		return nil
	}
	if err := p.count(m.Name, merged); err != nil || p.o.Check {
		return err
	}
	p.kept.keep(theirs)
	return p.a.Merge(m.Name, merged)
}
