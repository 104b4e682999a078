package transfer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// An Apply brings what a session has changed to a directory of this machine, in addition to what
// the user has changed there: Plan, then Stage or Merge for each name that they want, then
// Commit, and Close in any case. Nothing in the directory changes before Commit. An Apply
// is not safe for concurrent use.
type Apply struct {
	Only func(Delta) bool // if it is not nil: Plan leaves all other changes as they are

	tree   Tree
	dir    string // without links
	stage  *stage // nil if nothing is to be written: see OpenCheck
	theirs State
	steps  []step          // in the order of Commit, once there is a plan
	makes  map[string]bool // the directories that Commit makes
	at     map[string]int  // the step that puts a file of that name
}

// Applying is the plan of an Apply.
type Applying struct {
	Changes []Change   // what would be done, or has been
	Fetch   []string   // files whose content Stage wants, sorted
	Merge   []Merging  // files that both have changed, sorted
	LeftOut []Omission // what is never written
	Kept    []string   // directories that were deleted and hold something of the user's
	State   State      // what is alike on both sides once all is done

	Conflicts []Conflict
}

// Merging is a file that both sides have changed.
type Merging struct {
	Name      string
	Was, Here Entry // as both had it, and as it is here
	Now       Entry // as the session has it
}

// Conflict is what both sides have changed, in ways that cannot be had together.
type Conflict struct {
	Name string
	Why  string
}

// ClashError is returned for an apply that would lose something of the user's. Nothing was
// written.
type ClashError struct{ Conflicts []Conflict }

func (e *ClashError) Error() string {
	var some []string
	for _, c := range e.Conflicts[:min(len(e.Conflicts), fewNames)] {
		some = append(some, shown(c.Name)+" ("+c.Why+")")
	}
	text := strings.Join(some, ", ")
	if more := len(e.Conflicts) - len(some); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "nothing was written: changed here and in the session: " + text
}

// ErrBusy is returned if another process applies changes to the directory.
var ErrBusy = errors.New("another apply to this directory is under way: try again when it has ended")

// errMoved is returned if a file has changed between the plan and its turn.
var errMoved = errors.New("it was changed here meanwhile; everything is as it was before, try again")

// OpenApply opens a directory to apply changes to. It ends what an interrupted apply has
// left. The error is ErrBusy if another process applies changes there.
func OpenApply(dir string) (*Apply, error) {
	a, err := OpenCheck(dir)
	if err != nil {
		return nil, err
	}
	if a.stage, err = openStage(a.tree.Root); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// OpenCheck opens a directory to plan only: nothing is written there, and Stage, Merge and
// Commit are not to be called.
func OpenCheck(dir string) (*Apply, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &Apply{tree: Tree{Root: root, Leave: IsCredential, Clean: Clean}, dir: dir, makes: map[string]bool{}}, nil
}

// Close ends the apply. What Commit has not done is undone.
func (a *Apply) Close() error {
	var err error
	if a.stage != nil {
		err = a.stage.close()
	}
	return errors.Join(err, a.tree.Root.Close())
}

// Plan decides what is to be done with each change of the session at paths and below them;
// without paths, with all.
func (a *Apply) Plan(base, theirs State, paths []string) (*Applying, error) {
	p := &planner{a: a, base: base, plan: &Applying{}, guard: newGuard(a.tree.Root, a.dir, theirs), state: map[string]*Entry{}}
	a.theirs = theirs
	p.links = &resolver{root: a.tree.Root, pending: map[string]string{}, made: p.made}
	for _, e := range theirs {
		if e.Kind == Link {
			p.links.pending[e.Name] = e.Target
		}
	}
	for _, d := range Deltas(base, theirs) {
		if !wanted(d, paths) || a.Only != nil && !a.Only(d) {
			continue
		}
		if repository := repositoryOf(d.Name); repository != "" {
			p.leaveOut(repository, InGit)
			continue
		}
		if SkipTree(d.Name) {
			p.leaveOut(d.Name, Credential)
			continue
		}
		if err := p.decide(d); err != nil {
			return nil, fmt.Errorf("%s: %w", shown(d.Name), err)
		}
	}
	if err := p.emptied(); err != nil {
		return nil, err
	}
	p.oneName()
	p.plan.State = p.newState()
	a.at = map[string]int{}
	for i, s := range a.steps {
		if s.Do == doPut {
			a.at[s.Name] = i
		}
	}
	return p.plan, nil
}

// wanted reports whether a change is at one of the paths, below it, or makes a directory on
// the way to it.
func wanted(d Delta, paths []string) bool {
	return len(paths) == 0 || slices.ContainsFunc(paths, func(p string) bool {
		return p == "." || d.Name == p || strings.HasPrefix(d.Name, p+"/") || d.Now.Kind == Dir && strings.HasPrefix(p, d.Name+"/")
	})
}

// planner is one Plan.
type planner struct {
	a     *Apply
	base  State
	plan  *Applying
	guard *guard
	links *resolver
	state map[string]*Entry // names whose entry in the state changes; nil: it goes
}

func (p *planner) made(name string) (Kind, bool) {
	e, ok := p.a.theirs.Find(name)
	if !ok || e.Kind == Link {
		return 0, false
	}
	return e.Kind, true
}

func (p *planner) leaveOut(name string, why Reason) {
	if n := len(p.plan.LeftOut); n > 0 && strings.HasPrefix(name+"/", p.plan.LeftOut[n-1].Name+"/") {
		return
	}
	p.plan.LeftOut = append(p.plan.LeftOut, Omission{name, why})
}

func (p *planner) conflict(name, why string) {
	p.plan.Conflicts = append(p.plan.Conflicts, Conflict{name, why})
}

// decide decides on one change.
func (p *planner) decide(d Delta) error {
	if why := p.refusal(d); why != "" {
		p.leaveOut(d.Name, why)
		return nil
	}
	blocked, nothing, err := p.blocked(d.Name)
	if err != nil {
		return err
	}
	if blocked != "" && d.Now.Kind != 0 {
		p.conflict(d.Name, shown(blocked)+" is not a directory here")
		return nil
	}
	here, info, err := p.here(d.Name, nothing)
	if err != nil {
		return err
	}
	switch {
	case d.Was.Kind == 0 && here.Kind != 0 && !p.spelled(d.Name):
		p.conflict(d.Name, "here it is another spelling of a name that is there")
	case sameOrGone(here, d.Now): // both have it, or have deleted it
		p.settle(d)
	case sameOrGone(here, d.Was):
		if nothing && d.Now.Kind != 0 {
			p.makeAbove(d.Name)
		}
		p.take(d, here, info)
	case d.Was.Kind == File && d.Now.Kind == File && here.Kind == File:
		p.plan.Merge = append(p.plan.Merge, Merging{Name: d.Name, Was: d.Was, Here: here, Now: d.Now})
		p.a.steps = append(p.a.steps, step{Do: doPut, Name: d.Name, Had: true, Mode: mergedMode(d, here), info: info})
		p.plan.Changes = append(p.plan.Changes, Change{Path: d.Name, Kind: "modified", By: Both})
		p.settle(d)
	default:
		p.conflict(d.Name, clashText(d, here))
	}
	return nil
}

// spelled reports whether there is something of exactly that name: some file systems find it
// by others, too.
func (p *planner) spelled(name string) bool {
	list, err := fs.ReadDir(p.a.tree.Root.FS(), path.Dir(name))
	return err != nil || slices.ContainsFunc(list, func(d fs.DirEntry) bool { return d.Name() == path.Base(name) })
}

// oneName looks for new names that are one here. Without it, Commit would find the second one taken.
func (p *planner) oneName() {
	seen := map[string]string{}
	folds := sync.OnceValue(p.folds)
	for _, s := range p.a.steps {
		if s.Do != doPut && s.Do != doMkdir {
			continue
		}
		name := strings.Join(foldAll(s.Name), "/")
		if other, ok := seen[name]; ok && other != s.Name && folds() {
			p.conflict(s.Name, "it and "+shown(other)+" are one name on this file system")
		}
		seen[name] = s.Name
	}
}

// folds reports whether the file system finds something of the directory by another spelling. It does not
// know in a directory without letters in its names.
func (p *planner) folds() bool {
	root := p.a.tree.Root
	list, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return false
	}
	for _, d := range list {
		other := strings.ToUpper(d.Name())
		if other == d.Name() {
			other = strings.ToLower(other)
		}
		if slices.ContainsFunc(list, func(d fs.DirEntry) bool { return d.Name() == other }) {
			continue
		}
		_, err := root.Lstat(other)
		return err == nil
	}
	return false
}

// makeAbove plans the directories on the way to a name that the user has deleted.
func (p *planner) makeAbove(name string) {
	dir := path.Dir(name)
	if dir == "." || p.a.makes[dir] {
		return
	}
	if _, err := p.a.tree.Root.Lstat(filepath.FromSlash(dir)); err == nil {
		return
	}
	p.makeAbove(dir)
	mode := fs.FileMode(0o755)
	if e, ok := p.a.theirs.Find(dir); ok {
		mode = e.Mode | 0o700
	}
	p.a.makes[dir] = true
	p.a.steps = append(p.a.steps, step{Do: doMkdir, Name: dir, Mode: mode})
}

// refusal says why a change is never brought here, or "".
func (p *planner) refusal(d Delta) Reason {
	e := d.Now
	if e.Kind == 0 {
		e = d.Was
	}
	switch {
	case p.guard.refuses(e) || p.guard.outer != nil || p.guard.inRepository(e):
		return RunByTools
	case d.Now.Kind == Link && !(plainTarget(e.Name, e.Target) && p.links.inside(e.Name, e.Target)):
		return LeadsOut
	}
	return ""
}

// inRepository reports whether an entry lies in a directory that git takes for a bare
// repository.
func (g *guard) inRepository(e Entry) bool {
	for at := path.Dir(e.Name); ; at = path.Dir(at) {
		if g.isBare(at) {
			return true
		}
		if at == "." {
			return false
		}
	}
}

// clashText says what both sides have done.
func clashText(d Delta, here Entry) string {
	switch {
	case here.Kind == 0:
		return "deleted here, changed in the session"
	case d.Now.Kind == 0:
		return "changed here, deleted in the session"
	case d.Was.Kind == 0:
		return "made on both sides, and not alike"
	}
	return "changed on both sides"
}

// mergedMode merges the permissions of a file.
func mergedMode(d Delta, here Entry) fs.FileMode {
	if sameMode(here.Mode, d.Was.Mode) {
		return d.Now.Mode
	}
	return here.Mode
}

// sameOrGone is Same that knows of entries that are not there.
func sameOrGone(a, b Entry) bool {
	if a.Kind == 0 || b.Kind == 0 {
		return a.Kind == b.Kind
	}
	return a.Same(b)
}

// blocked returns what is on the way to a name and is not a directory, unless Commit makes it
// one, and whether nothing can be at the name.
func (p *planner) blocked(name string) (at string, nothing bool, err error) {
	var above []string
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		above = append(above, dir)
	}
	for _, dir := range slices.Backward(above) {
		info, err := p.a.tree.Root.Lstat(filepath.FromSlash(dir))
		switch {
		case missing(err):
			return "", true, nil
		case err != nil:
			return "", false, err
		case !info.IsDir() && p.a.makes[dir]:
			return "", true, nil
		case !info.IsDir():
			return dir, true, nil
		}
	}
	return "", false, nil
}

// here returns what is at a name on this machine, with the hash of a file.
func (p *planner) here(name string, nothing bool) (Entry, fs.FileInfo, error) {
	e := Entry{Name: name}
	if nothing {
		return e, nil, nil
	}
	file := filepath.FromSlash(name)
	info, err := p.a.tree.Root.Lstat(file)
	if missing(err) {
		return e, nil, nil
	}
	if err != nil {
		return e, nil, err
	}
	e.Kind, e.Mode = kindOf(info), info.Mode().Perm()
	switch e.Kind {
	case Link:
		e.Target, err = p.a.tree.Root.Readlink(file)
		e.Target = filepath.ToSlash(e.Target)
	case File:
		e.Sum, e.Size, err = p.sum(name)
	case Dir, Other:
	}
	return e, info, err
}

func (p *planner) sum(name string) (*Sum, int64, error) {
	f, err := openRegular(p.a.tree.Root, name)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	sum, size, err := sumOf(f)
	return &sum, size, err
}

// settle notes that both sides will have what the session has.
func (p *planner) settle(d Delta) {
	if d.Now.Kind == 0 {
		p.state[d.Name] = nil
		return
	}
	p.state[d.Name] = &d.Now
}

// take plans that the session's version replaces what is here.
func (p *planner) take(d Delta, here Entry, info fs.FileInfo) {
	do := func(s step) {
		s.Name, s.info = d.Name, info
		p.a.steps = append(p.a.steps, s)
	}
	switch {
	case d.Now.Kind == File && here.Kind == File && here.Size == d.Now.Size && *here.Sum == *d.Now.Sum:
		do(step{Do: doMode, Mode: d.Now.Mode, Was: here.Mode})
	case d.Now.Kind == File, d.Now.Kind == Link:
		if here.Kind == Dir {
			do(step{Do: doRmdir, Was: here.Mode, Must: true})
		}
		do(step{Do: doPut, Had: here.Kind == File || here.Kind == Link, Mode: d.Now.Mode, Target: d.Now.Target, Link: d.Now.Kind == Link})
		if d.Now.Kind == File {
			p.plan.Fetch = append(p.plan.Fetch, d.Name)
		}
	case d.Now.Kind == Dir:
		if here.Kind != 0 {
			do(step{Do: doRemove})
		}
		do(step{Do: doMkdir, Mode: d.Now.Mode | 0o700})
		p.a.makes[d.Name] = true
	case here.Kind == Dir:
		do(step{Do: doRmdir, Was: here.Mode})
	default:
		do(step{Do: doRemove})
	}
	p.plan.Changes = append(p.plan.Changes, d.Change())
	p.settle(d)
}

// emptied looks at directories that are to go: one that will not be empty stays, with
// those above it, or is a conflict if something is to stand in its place.
func (p *planner) emptied() error {
	gone := map[string]bool{}
	for _, s := range p.a.steps {
		if s.Do == doRemove {
			gone[s.Name] = true
		}
	}
	slices.SortStableFunc(p.a.steps, order)
	kept := p.a.steps[:0]
	for _, s := range p.a.steps {
		if s.Do != doRmdir {
			kept = append(kept, s)
			continue
		}
		list, err := fs.ReadDir(p.a.tree.Root.FS(), s.Name)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(list, func(d fs.DirEntry) bool { return !gone[path.Join(s.Name, d.Name())] }) {
			gone[s.Name] = true
			kept = append(kept, s)
			continue
		}
		if s.Must {
			p.conflict(s.Name, "a directory here with files of yours, no directory in the session")
			continue
		}
		p.plan.Kept = append(p.plan.Kept, s.Name)
		p.plan.Changes = slices.DeleteFunc(p.plan.Changes, func(c Change) bool { return c.Path == s.Name })
	}
	p.a.steps = kept
	return nil
}

// newState is the state with what changes in it.
func (p *planner) newState() State {
	var out State
	for _, e := range p.base {
		if _, ok := p.state[e.Name]; !ok {
			out = append(out, e)
		}
	}
	for _, e := range p.state {
		if e != nil {
			out = append(out, *e)
		}
	}
	return NewState(out)
}

// ReadHere returns the content of a file of the directory. The error is ErrTooLarge if it is
// longer than most.
func (a *Apply) ReadHere(name string, most int64) ([]byte, error) {
	return ReadHere(a.tree.Root, name, most)
}

// HasNoFile reports whether there is no regular file at a name.
func (a *Apply) HasNoFile(name string) bool {
	info, err := a.tree.Root.Lstat(filepath.FromSlash(name))
	return err != nil || !info.Mode().IsRegular()
}

// ReadHere returns the content of a regular file. The error is ErrTooLarge if it is longer
// than most.
func ReadHere(root *os.Root, name string, most int64) ([]byte, error) {
	f, err := openRegular(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = ErrTooLarge
	}
	return b, err
}

// runNames are files that programs of this machine run by themselves or at a common command,
// and that are part of a user's work all the same.
var runNames = map[string]bool{
	".envrc": true, "makefile": true, "gnumakefile": true, "justfile": true, "taskfile.yml": true, "package.json": true, "setup.py": true,
	"conftest.py": true, "build.rs": true, ".pre-commit-config.yaml": true, ".lefthook.yml": true, "lefthook.yml": true, ".gitattributes": true,
	".gitmodules": true, ".mise.toml": true, "mise.toml": true, ".tool-versions": true, "gradlew": true, "mvnw": true, "vagrantfile": true,
}

// runDirs are directories of such files.
var runDirs = map[string]bool{".husky": true, ".vscode": true, ".idea": true, ".devcontainer": true, ".githooks": true, ".github": true, ".cargo": true}

// RunsHere reports whether programs of this machine may run what a file says when the user
// works next to it.
func RunsHere(name string) bool {
	parts := foldAll(name)
	return len(parts) > 0 && (runNames[parts[len(parts)-1]] || slices.ContainsFunc(parts[:len(parts)-1], func(p string) bool { return runDirs[p] }))
}
