package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

const (
	treeFiles   = 10000
	treePer     = 100 // files in a directory
	treeChanges = 100 // of an apply
)

// Goals for files.
const (
	diffGoal  = 300 // ms
	applyGoal = 300
	syncGoal  = 150 // more than the start of the program
)

// files measures the commands that compare a copied directory with a session's copy.
func files(ctx context.Context, l *lab) (rows []row, err error) {
	dir, err := os.MkdirTemp("", "bench-files")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := plantTree(dir); err != nil {
		return nil, err
	}
	// What has just been written is read again by the next sync, as by git.
	if err := pause(ctx, 3*time.Second); err != nil {
		return nil, err
	}
	spec := l.spec()
	spec.Workspace = sandbox.Workspace{Kind: sandbox.WorkspaceCopy, Dir: dir}
	s, err := l.engine(sandbox.Options{}).Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop(context.WithoutCancel(ctx))) }()
	ours := func(args ...string) func(context.Context) error {
		return func(ctx context.Context) error { return quietly(ctx, l.binary, args...) }
	}
	round := 0
	apply := func(ctx context.Context) (time.Duration, error) {
		round++
		script := fmt.Sprintf("for d in */; do echo %d >$d/f1; done", round)
		if res, err := s.Run(ctx, sandbox.Command{Script: script, Timeout: time.Minute}); err != nil || res.Code != 0 {
			return 0, fmt.Errorf("change files: exit code %d, %w", res.Code, err)
		}
		return timed(ours("session", "apply", s.ID()))(ctx)
	}
	got, err := interleave(ctx, l.sizes.starts,
		contender{name: "sync", take: timed(ours("session", "sync", s.ID())), settle: teardown},
		contender{name: "diff", take: timed(ours("session", "diff", s.ID())), settle: teardown},
		contender{name: "apply", take: apply, settle: teardown},
		contender{name: "start", take: timed(ours("version")), settle: teardown},
	)
	begin := got["start"].median()
	inMillis := func(figure string, d time.Duration, limit float64) row {
		return bounded(figure, millis(d), float64(d)/float64(time.Millisecond), limit, fmt.Sprintf("≤ %g ms", limit))
	}
	sync := inMillis("`session sync` without changes, p50", got["sync"].median()-begin, syncGoal)
	sync.ours, sync.baseline, sync.unit = millis(got["sync"].median()), "`version` "+millis(begin), " ms more"
	return []row{
		inMillis("`session diff`, p50", got["diff"].median(), diffGoal),
		inMillis(fmt.Sprintf("`session apply` of %d changes, p50", treeChanges), got["apply"].median(), applyGoal),
		sync,
	}, err
}

// plantTree makes the files that are copied.
func plantTree(dir string) error {
	text := []byte(strings.Repeat("a line of a text that is not long\n", 60))
	for i := range treeFiles {
		at := filepath.Join(dir, fmt.Sprintf("d%d", i/treePer))
		if i%treePer == 0 {
			if err := os.Mkdir(at, 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(at, fmt.Sprintf("f%d", i%treePer)), fmt.Appendf(slices.Clip(text), "%d\n", i), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// quietly runs a program.
func quietly(ctx context.Context, name string, args ...string) error {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, said.Bytes())
	}
	return nil
}
