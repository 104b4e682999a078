package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sandboxbash/sandboxbash/internal/hostgit"
	"github.com/sandboxbash/sandboxbash/internal/transfer"
)

// CommitOptions say what ApplyCommits does.
type CommitOptions struct {
	Branch string // of the repository here: a new one, or one that the commits move forward
	From   string // the session's branch; "": the one that is checked out there
	Check  bool   // look, and write nothing
}

// AppliedCommits says what ApplyCommits did, or with CommitOptions.Check would do.
type AppliedCommits struct {
	Branch  string   `json:"branch"`
	From    string   `json:"from"`    // "" if the session has no branch checked out
	Tip     string   `json:"tip"`     // the commit that the branch is at now
	Was     string   `json:"was"`     // the commit that it was at; "" if it is new
	Commits int      `json:"commits"` // that were on no branch here; without any, no branch is made
	Runs    []string `json:"runs"`    // files that differ, and that programs of this machine may run once they are checked out
}

// ErrDiverged is returned by ApplyCommits if the branch has commits that the session's has not.
var ErrDiverged = hostgit.ErrDiverged

// ApplyCommits brings the commits of a branch of the session to a branch of the repository of git that
// dir is the top of. src is the copy of it. The working tree, the index and the branches that are
// checked out here are not touched. The session needs no git: its files of objects that are not here are
// read, and the git of this machine checks each object that is new. Nothing else of the session's
// repository is read, but for the commit that the branch is at. An *InputError says what cannot be
// had. The error is ErrDiverged if the branch cannot be moved forward.
func (s *Session) ApplyCommits(ctx context.Context, src, dir string, o CommitOptions) (done AppliedCommits, err error) {
	git := s.inside(src) + "/.git"
	err = s.observeTransfer(ctx, ModePull, git, dir, func() error {
		if done, err = s.applyCommits(ctx, git, dir, o); err != nil {
			err = s.explain("apply", err)
		}
		return err
	})
	return done, err
}

func (s *Session) applyCommits(ctx context.Context, git, dir string, o CommitOptions) (done AppliedCommits, err error) {
	in, err := hostgit.OpenImport(ctx, dir)
	if errors.Is(err, hostgit.ErrNoGit) || errors.Is(err, hostgit.ErrNoRepository) {
		return done, badInput("path", "%s: %v", dir, err)
	}
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	files, err := s.manifest(ctx, git)
	if _, missing := errors.AsType[missingError](err); missing {
		return done, badInput("path", "session %s: the workspace has no repository of git", s.ID())
	}
	if err != nil {
		return done, err
	}
	done = AppliedCommits{Branch: o.Branch, From: o.From, Runs: []string{}}
	if done.From, done.Tip, err = s.tip(ctx, git, files, o.From); err != nil {
		return done, err
	}
	if err := s.takeObjects(ctx, git, files, in); err != nil {
		return done, err
	}
	found, err := in.Look(ctx, o.Branch, done.Tip)
	switch {
	case errors.Is(err, hostgit.ErrBranchName) || errors.Is(err, hostgit.ErrCheckedOut):
		return done, badInput("branch", "%q: %v", o.Branch, err)
	case errors.Is(err, hostgit.ErrDiverged):
		return done, fmt.Errorf("%s: %w", o.Branch, err)
	case err != nil:
		return done, badInput("commits", "%s at %s: %v", branchText(done.From), done.Tip, err)
	}
	done.Was, done.Commits = found.Was, found.Commits
	done.Runs = append(done.Runs, runHere(ctx, dir, found.Files)...)
	if o.Check || found.Commits == 0 && found.Was == "" || found.Was == done.Tip {
		return done, nil
	}
	if err := in.Bring(ctx, o.Branch, done.Tip); err != nil {
		return done, badInput("commits", "%s at %s: %v", branchText(done.From), done.Tip, err)
	}
	return done, nil
}

// branchText is a branch of the session in a message.
func branchText(branch string) string {
	if branch == "" {
		return "HEAD"
	}
	return "branch " + branch
}

// Bounds of files of a repository that are read as text.
const (
	maxHead = 4 << 10 // bytes
	maxRefs = 8 << 20 // bytes
)

// tip returns the branch and its commit, as the session's repository has them.
func (s *Session) tip(ctx context.Context, git string, files transfer.State, branch string) (from, tip string, err error) {
	if _, ok := files.Find("reftable"); ok {
		return "", "", badInput("path", "session %s: its repository keeps branches in a reftable, which is not read; change that with `git refs migrate --ref-format=files`", s.ID())
	}
	texts, err := s.texts(ctx, git, files, map[string]int64{"HEAD": maxHead, "packed-refs": maxRefs})
	if err != nil {
		return "", "", err
	}
	if branch == "" {
		head := strings.TrimSpace(string(texts["HEAD"]))
		ref, ok := strings.CutPrefix(head, "ref: refs/heads/")
		if !ok {
			return "", head, nil // a commit
		}
		branch = ref
	}
	ref := "refs/heads/" + branch
	loose, err := s.texts(ctx, git, files, map[string]int64{ref: maxHead})
	if err != nil {
		return "", "", err
	}
	if text, ok := loose[ref]; ok {
		return branch, strings.TrimSpace(string(text)), nil
	}
	for l := range bytes.Lines(texts["packed-refs"]) {
		if tip, name, ok := strings.Cut(strings.TrimSuffix(string(l), "\n"), " "); ok && name == ref {
			return branch, tip, nil
		}
	}
	return branch, "", badInput("branch", "session %s: there is no commit on the branch %q of its repository", s.ID(), branch)
}

// texts returns the contents of those files that are there.
func (s *Session) texts(ctx context.Context, dir string, files transfer.State, most map[string]int64) (map[string][]byte, error) {
	var names []string
	for name, limit := range most {
		e, ok := files.Find(name)
		if ok && e.Kind == transfer.File && e.Size > limit {
			return nil, badInput("path", "session %s: %s of its repository has more than %d bytes", s.ID(), name, limit)
		}
		if ok && e.Kind == transfer.File {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	out := map[string][]byte{}
	err := s.pick(ctx, dir, names, func(e transfer.Entry, r io.Reader) error {
		b, err := io.ReadAll(io.LimitReader(r, most[e.Name]))
		out[e.Name] = b
		return err
	})
	return out, err
}

// takeObjects brings the files of objects that are not here.
func (s *Session) takeObjects(ctx context.Context, git string, files transfer.State, in *hostgit.Import) error {
	const objects = "objects"
	var names []string
	total := int64(0)
	for _, e := range files.Below(objects) {
		if e.Kind != transfer.File || !in.Wants(e.Name) {
			continue
		}
		if total += e.Size; total > hostgit.MaxObjects {
			return badInput("path", "session %s: its repository has more than %d MiB of objects that are not here", s.ID(), hostgit.MaxObjects>>20)
		}
		names = append(names, e.Name)
	}
	return s.pick(ctx, git+"/"+objects, names, func(e transfer.Entry, r io.Reader) error {
		return in.Take(ctx, e.Name, io.LimitReader(r, hostgit.MaxObjects))
	})
}
