package sessioncmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/hostgit"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// excludes say what of a directory is not copied: flags.
type excludes struct {
	patterns []string
	files    []string // of patterns
	git      bool     // what git ignores

	matcher *patternmatcher.PatternMatcher // nil: nothing is excluded
}

func (x *excludes) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&x.patterns, "exclude", nil, "leave out what matches `PATTERN`, as in .dockerignore; may be repeated")
	cmd.Flags().StringArrayVar(&x.files, "exclude-from", nil, "leave out what matches a pattern in `FILE`, such as .dockerignore; may be repeated")
	cmd.Flags().BoolVar(&x.git, "gitignore", false, "leave out what git here ignores")
}

// read reads the patterns.
func (x *excludes) read() error {
	var all []string
	for _, name := range x.files {
		f, err := os.Open(name)
		if err != nil {
			return exit.Misuse("name a file of patterns, such as .dockerignore", "--exclude-from: %v", err)
		}
		list, err := ignorefile.ReadAll(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return exit.Misuse("name a file of patterns, such as .dockerignore", "--exclude-from %s: %v", name, err)
		}
		if _, err := patternmatcher.New(list); err != nil {
			return exit.Misuse("write it as in .dockerignore", "--exclude-from %s: %v", name, err)
		}
		all = append(all, list...)
	}
	all = append(all, x.patterns...)
	if len(all) == 0 {
		return nil
	}
	m, err := patternmatcher.New(all)
	if err != nil {
		return exit.Misuse("write it as in .dockerignore: *.log, **/node_modules, !keep.log", "--exclude: %v", err)
	}
	x.matcher = m
	return nil
}

// skip is what the patterns say; nil if there are none.
func (x *excludes) skip() sandbox.Skip {
	if x.matcher == nil {
		return nil
	}
	return func(name string, _ bool) (bool, bool) {
		unwanted, err := x.matcher.MatchesOrParentMatches(name)
		return err == nil && unwanted, !x.matcher.Exclusions() // read has tried the patterns
	}
}

// skipOf is what the patterns, and git for a directory of this machine, say.
func (x *excludes) skipOf(ctx context.Context, dir string) (sandbox.Skip, error) {
	patterns := x.skip()
	if !x.git {
		return patterns, nil
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return patterns, nil //nolint:nilerr // a file is named; and the copy says what is missing
	}
	ignored, err := hostgit.Ignored(ctx, dir)
	if errors.Is(err, hostgit.ErrNoRepository) {
		return nil, exit.Misuse("leave out --gitignore, or use --exclude-from "+path.Join(dir, ".gitignore"), "--gitignore: git here has no repository for %s", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("what git ignores in %s: %w", dir, err)
	}
	return func(name string, isDir bool) (bool, bool) {
		for at := name; at != "."; at = path.Dir(at) {
			if ignored[at] {
				return true, true
			}
		}
		if patterns == nil {
			return false, false
		}
		return patterns(name, isDir)
	}, nil
}
