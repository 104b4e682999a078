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
	"os"
	"path"
	"slices"
	"strings"

	"github.com/sandboxbash/sandboxbash/internal/merge"
	"github.com/sandboxbash/sandboxbash/internal/transfer"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// ErrNotRecorded is returned if there is no record of what a session and a directory of this
// machine once had in common, so that what the session has changed is not known.
var ErrNotRecorded = errors.New("there is no record of what was copied")

// Changes is what a session has changed of a directory that was copied into it.
type Changes struct {
	// Files are sorted by path. What lies below a deleted directory is not listed. By is
	// ChangedByBoth if it was changed on this machine, too.
	Files []Change
	// Repository sums up what changed in the repository of git that the directory is.
	Repository Repository

	session *Session
	src     string
	dir     string
	deltas  []transfer.Delta
}

// FileDiff is one changed file with its contents.
type FileDiff struct {
	Change
	Was, Now       *FileState // nil if there is no file
	Hunks          []byte     // of a unified diff; nil if Note says why
	Added, Removed int        // lines
	Note           string     // why there are no hunks

	was, now transfer.Entry // as both had it, and as the session has it; its Kind is 0 if it was deleted
	texts    *[2][]byte     // the contents of both, while Patch shows the file
	part     *filePart      // what was chosen of it; nil: all
}

// filePart is a file with some of the changes that a session has made to it.
type filePart struct {
	transfer.Entry
	text []byte
}

// EachHunk returns Hunks one by one.
func (f FileDiff) EachHunk() []string { return merge.Hunks(f.Hunks) }

// Part returns the file for ApplyOptions.Shown with nothing of what has changed but those hunks, in the order of
// EachHunk, and the permissions if mode is set. What is left out stays a change of the session. It is to be called while
// Patch shows the file, which must be one that was modified.
func (f FileDiff) Part(mode bool, hunks []bool) (FileDiff, error) {
	if f.Kind != "modified" || f.Note != "" || f.texts == nil || f.texts[0] == nil {
		return FileDiff{}, fmt.Errorf("%s is not shown, or not by hunks", f.Path)
	}
	f.part = &filePart{Entry: f.now, text: merge.Choose(f.texts[0], f.texts[1], hunks)}
	sum := transfer.Sum(sha256.Sum256(f.part.text))
	f.part.Sum, f.part.Size = &sum, int64(len(f.part.text))
	if !mode {
		f.part.Mode = f.was.Mode
	}
	f.Hunks = nil
	return f, nil
}

// FileState describes a file or link as it was at one time.
type FileState struct {
	Mode   fs.FileMode // of a link: with fs.ModeSymlink
	Target string      // of a link
	Size   int64
}

// Changes returns what the session has changed in src since it was copied from dir, and
// nothing that was changed in dir. The error is ErrNotRecorded if that is not known.
func (s *Session) Changes(ctx context.Context, src, dir string) (*Changes, error) {
	c, err := s.changes(ctx, s.inside(src), dir)
	if err != nil {
		return nil, s.explain("diff", err)
	}
	return c, nil
}

func (s *Session) changes(ctx context.Context, src, dir string) (*Changes, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, badInput("path", "%v", err)
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	base, now, err := s.both(ctx, src, s.pairOf(dir, src))
	if err != nil {
		return nil, err
	}
	c := &Changes{session: s, src: src, dir: dir}
	tree := transfer.Tree{Root: root, Leave: transfer.IsCredential, Clean: transfer.Clean}
	var inside []transfer.Delta
	for _, d := range transfer.Deltas(base, now) {
		switch {
		case transfer.Repository(d.Name):
			inside = append(inside, d)
		case !transfer.SkipTree(d.Name):
			c.deltas = append(c.deltas, d)
			if err := c.note(tree, d); err != nil {
				return nil, err
			}
		}
	}
	c.Repository, err = s.repository(ctx, src, inside)
	return c, err
}

// note lists one change.
func (c *Changes) note(tree transfer.Tree, d transfer.Delta) error {
	change := d.Change()
	if n := len(c.Files); change.Kind == "deleted" && n > 0 && c.Files[n-1].Kind == "deleted" && strings.HasPrefix(d.Name, c.Files[n-1].Path+"/") {
		return nil
	}
	touched, err := touched(tree, d)
	if touched {
		change.By = ChangedByBoth
	}
	c.Files = append(c.Files, change)
	return err
}

// touched reports whether what a session has changed is here neither as it was nor as the
// session has it.
func touched(tree transfer.Tree, d transfer.Delta) (bool, error) {
	for _, e := range []transfer.Entry{d.Was, d.Now} {
		if e.Kind == 0 { // it was not there, or is not any more
			_, exists, err := tree.Is(transfer.Entry{Name: d.Name, Kind: transfer.Other})
			if !exists || err != nil {
				return false, err
			}
			continue
		}
		if same, _, err := tree.Is(e); same || err != nil {
			return false, err
		}
	}
	return true, nil
}

// both returns the recorded state of a pair, and the session's. It asks for both at once.
func (s *Session) both(ctx context.Context, src string, of pair) (base, now transfer.State, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type listing struct {
		state transfer.State
		err   error
	}
	listed := make(chan listing, 1)
	go func() {
		state, err := s.manifest(ctx, src)
		listed <- listing{state, err}
	}()
	known, err := s.recall(ctx, of)
	if err == nil && known == nil {
		err = ErrNotRecorded
	}
	if err != nil {
		cancel()
	}
	got := <-listed
	if err != nil {
		return nil, nil, err
	}
	return s.info.labels.withoutHome(src, known.Below(of.below)), s.info.labels.withoutHome(src, got.state), got.err
}

// withoutHome returns the state of a directory of the session without the home that lies in it.
func (l labelSpec) withoutHome(src string, state transfer.State) transfer.State {
	name, inside := strings.CutPrefix(l.home(), strings.TrimSuffix(src, "/")+"/")
	if !l.HomeInside || !inside {
		return state
	}
	return slices.DeleteFunc(slices.Clone(state), func(e transfer.Entry) bool { return below(e.Name, name) })
}

// manifest returns the state of a directory of the session.
func (s *Session) manifest(ctx context.Context, src string) (transfer.State, error) {
	if strings.IndexByte(src, 0) >= 0 {
		return nil, badInput("path", "the path has a NUL byte")
	}
	ctx, moves, end := s.watchTransfer(ctx)
	defer end()
	var list bytes.Buffer
	streams := helperStreams{in: movingReader{strings.NewReader(""), moves}, out: movingWriter{&limited{w: &list, left: maxCopiedRecord}, moves}}
	if err := s.transfer(ctx, s.info.labels.User, streams, wire.VerbManifest, src); err != nil {
		return nil, err
	}
	return transfer.ParseManifest(list.Bytes(), transfer.DefaultLimits)
}

// pick calls take with files of a directory of the session, in the order of names.
func (s *Session) pick(ctx context.Context, src string, names []string, take func(transfer.Entry, io.Reader) error) error {
	return s.pickAs(ctx, s.info.labels.User, src, names, take)
}

// pickAs is pick with the rights of another user.
func (s *Session) pickAs(ctx context.Context, user User, src string, names []string, take func(transfer.Entry, io.Reader) error) error {
	if len(names) == 0 {
		return nil
	}
	asked := make(map[string]bool, len(names))
	for _, name := range names {
		asked[name] = true
	}
	return s.take(ctx, user, arriving{
		verb: wire.VerbPick, src: src, in: strings.Join(names, "\x00") + "\x00",
		take: func(e transfer.Entry, r io.Reader) error {
			if !asked[e.Name] || e.Kind != transfer.File {
				return errors.New("it was not asked for")
			}
			delete(asked, e.Name)
			return take(e, r)
		},
	})
}

// Patch calls take with each changed file, sorted by path. It holds the contents of one file
// at a time.
func (c *Changes) Patch(ctx context.Context, take func(FileDiff) error) error {
	p := &patching{c: c, take: take, left: c.deltas}
	var names, former []string
	for _, d := range c.deltas {
		if d.Now.Kind == transfer.File && d.Now.Size <= merge.MaxText {
			names = append(names, d.Name)
		}
		if d.Was.Kind == transfer.File && d.Was.Size <= merge.MaxText {
			former = append(former, d.Name)
		}
	}
	var err error
	if p.root, err = os.OpenRoot(c.dir); err != nil {
		return err
	}
	defer p.root.Close()
	if err := p.former(ctx, former); err != nil {
		return err
	}
	if err := c.session.pick(ctx, c.src, names, p.arrived); err != nil {
		return c.session.explain("diff", err)
	}
	return p.upTo("")
}

// patching is one Patch.
type patching struct {
	c    *Changes
	root *os.Root
	take func(FileDiff) error
	was  map[string][]byte // former contents that are not in the directory
	left []transfer.Delta
}

// former finds the former contents that are no longer in the directory.
func (p *patching) former(ctx context.Context, names []string) error {
	sums := map[string]transfer.Sum{}
	for _, d := range p.c.deltas {
		if d.Was.Kind == transfer.File {
			sums[d.Name] = *d.Was.Sum
		}
	}
	gone := map[string]transfer.Sum{}
	for _, name := range names {
		if p.here(name, sums[name]) == nil {
			gone[name] = sums[name]
		}
	}
	var err error
	p.was, err = p.c.session.former(ctx, p.c.dir, gone)
	return err
}

// here returns the content of a file of the directory that is as it was, nil if it is not.
func (p *patching) here(name string, sum transfer.Sum) []byte {
	b, err := transfer.ReadHere(p.root, name, merge.MaxText)
	if err != nil || sha256.Sum256(b) != sum {
		return nil
	}
	return append([]byte{}, b...)
}

// arrived takes one file of the session.
func (p *patching) arrived(e transfer.Entry, r io.Reader) error {
	if err := p.upTo(e.Name); err != nil {
		return err
	}
	if len(p.left) == 0 || p.left[0].Name != e.Name {
		return errors.New("it comes out of order")
	}
	now, err := io.ReadAll(io.LimitReader(r, merge.MaxText+1))
	if err != nil {
		return err
	}
	d := p.left[0]
	p.left = p.left[1:]
	return p.show(d, now)
}

// upTo shows the files before a name that have no content to come; "": all that are left.
func (p *patching) upTo(name string) error {
	for len(p.left) > 0 && (name == "" || cmp.Compare(p.left[0].Name, name) < 0) {
		d := p.left[0]
		p.left = p.left[1:]
		if err := p.show(d, nil); err != nil {
			return err
		}
	}
	return nil
}

// show compares one file. now is nil if its content has not come.
func (p *patching) show(d transfer.Delta, now []byte) error {
	f := FileDiff{Change: d.Change(), Was: fileState(d.Was), Now: fileState(d.Now), was: d.Was, now: d.Now}
	if i, ok := slices.BinarySearchFunc(p.c.Files, d.Name, func(c Change, name string) int { return cmp.Compare(c.Path, name) }); ok {
		f.Change = p.c.Files[i]
	}
	if f.Was == nil && f.Now == nil {
		return nil // directories
	}
	was, known := []byte(nil), true
	if d.Was.Kind == transfer.File {
		was = p.here(d.Name, *d.Was.Sum)
		if was == nil {
			was, known = p.was[d.Name]
		}
	}
	switch {
	case d.Now.Kind == transfer.File && d.Now.Size > merge.MaxText || d.Was.Kind == transfer.File && d.Was.Size > merge.MaxText:
		f.Note = "too large to be shown"
	case d.Now.Kind == transfer.File && now == nil:
		f.Note = "it was changed in the session meanwhile"
	case !known:
		f.Note = "what it was before is not known: it was changed here, too"
	case !merge.IsText(was) || !merge.IsText(now):
		f.Note = "binary"
	default:
		f.Hunks, f.Added, f.Removed = merge.Unified(was, now)
		f.texts = &[2][]byte{was, now}
		defer func() { *f.texts = [2][]byte{} }() // the caller may keep f
	}
	return p.take(f)
}

func fileState(e transfer.Entry) *FileState {
	switch e.Kind {
	case transfer.File:
		return &FileState{Mode: e.Mode, Size: e.Size}
	case transfer.Link:
		return &FileState{Mode: fs.ModeSymlink | 0o777, Target: e.Target}
	case transfer.Dir, transfer.Other:
	}
	return nil
}

// Repository sums up what a session has changed in a repository of git.
type Repository struct {
	Branches []Branch `json:"branches,omitempty"` // new, moved or deleted, sorted
	Other    bool     `json:"other,omitempty"`    // something else in it has changed: its index, its configuration
}

// Branch is a branch that a session has changed.
type Branch struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`    // as that of a Change
	Commits int    `json:"commits"` // that the session says it has made on it
}

const (
	headsDir = ".git/refs/heads/"
	logsDir  = ".git/logs/refs/heads/"
)

// repository reads which branches have changed, and from their logs how many commits were
// made.
func (s *Session) repository(ctx context.Context, src string, deltas []transfer.Delta) (Repository, error) {
	var r Repository
	logs := map[string]transfer.Delta{}
	for _, d := range deltas {
		name, ok := strings.CutPrefix(d.Name, headsDir)
		switch {
		case ok && (d.Now.Kind == transfer.File || d.Now.Kind == 0 && d.Was.Kind == transfer.File):
			r.Branches = append(r.Branches, Branch{Name: name, Kind: d.Change().Kind})
		case strings.HasPrefix(d.Name, logsDir) && d.Now.Kind == transfer.File && d.Now.Size <= merge.MaxText:
			logs[d.Name] = d
		default:
			r.Other = true
		}
	}
	var names []string
	for name := range logs {
		names = append(names, name)
	}
	slices.Sort(names)
	err := s.pick(ctx, src, names, func(e transfer.Entry, in io.Reader) error {
		b, err := io.ReadAll(io.LimitReader(in, merge.MaxText))
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(e.Name, logsDir)
		for i := range r.Branches {
			if r.Branches[i].Name == name {
				r.Branches[i].Commits = commits(b, logs[e.Name].Was)
			}
		}
		return nil
	})
	return r, err
}

// commits counts the commits that a log of a branch has more than it had.
func commits(log []byte, was transfer.Entry) int {
	if was.Kind == transfer.File {
		if was.Size > int64(len(log)) || sha256.Sum256(log[:was.Size]) != *was.Sum {
			return 0 // it was rewritten
		}
		log = log[was.Size:]
	}
	n := 0
	for line := range bytes.Lines(log) {
		_, what, _ := bytes.Cut(line, []byte("\t"))
		if bytes.HasPrefix(what, []byte("commit")) && !bytes.HasPrefix(what, []byte("commit (amend)")) {
			n++
		}
	}
	return n
}

func (r Repository) String() string {
	var parts []string
	added := 0
	for _, b := range r.Branches {
		switch {
		case b.Commits == 1:
			parts = append(parts, "1 commit on "+b.Name)
		case b.Commits > 1:
			parts = append(parts, fmt.Sprintf("%d commits on %s", b.Commits, b.Name))
		case b.Kind == "modified":
			parts = append(parts, b.Name+" moved")
		case b.Kind == "deleted":
			parts = append(parts, b.Name+" deleted")
		}
		if b.Kind == "added" {
			added++
		}
	}
	switch {
	case added == 1:
		parts = append(parts, "1 branch")
	case added > 1:
		parts = append(parts, fmt.Sprintf("%d branches", added))
	}
	if len(parts) == 0 && r.Other {
		return "changed, no branch"
	}
	return strings.Join(parts, ", ")
}

// under returns a path from a directory of the session, as the names of a state are.
func (s *Session) under(p string) (string, error) {
	name := path.Clean(p)
	if path.IsAbs(name) || name == ".." || strings.HasPrefix(name, "../") {
		return "", badInput("path", "%q is not below the workspace: write it as from there", p)
	}
	return name, nil
}
