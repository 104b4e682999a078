package serve

import (
	"context"
	"errors"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Checkpoints keeps former states of a session's workspace: a *sandbox.Session.
type Checkpoints interface {
	Checkpoint(ctx context.Context, name string) (sandbox.Checkpoint, error)
	Checkpoints(ctx context.Context) (sandbox.Checkpoints, error)
	FindCheckpoint(ctx context.Context, ref string) (sandbox.Checkpoint, error)
	Undo(ctx context.Context, o sandbox.UndoOptions) (sandbox.Undone, error)
	Redo(ctx context.Context, o sandbox.UndoOptions) (sandbox.Undone, error)
	Restore(ctx context.Context, id int, o sandbox.RestoreOptions) (sandbox.Undone, error)
	DiffCheckpoints(ctx context.Context, from, to int) (*sandbox.CheckpointDiff, error)
}

func (p *peer) checkpoints(ctx context.Context, session string) (Checkpoints, error) {
	s, err := p.session(ctx, session)
	if err != nil {
		return nil, err
	}
	return part(s.Checkpoints, "checkpoints")
}

// checkpointed is the answer to a request about checkpoints. What is refused because files are open names the processes.
func checkpointed[T any](ctx context.Context, result T, err error) (any, error) {
	if open, ok := errors.AsType[*sandbox.OpenError](err); ok {
		return refusedOpen{Refused: open.Error(), Open: open.Processes}, nil
	}
	if err != nil {
		return nil, answerable(ctx, err)
	}
	return result, nil
}

// refusedOpen says that nothing was done, because something runs.
type refusedOpen struct {
	Refused string                `json:"refused"`
	Open    []sandbox.OpenProcess `json:"open"`
}

type takeCheckpoint struct {
	Session string `json:"session"`
	Name    string `json:"name"`
}

func doCheckpointTake(ctx context.Context, p *peer, c takeCheckpoint) (any, error) {
	k, err := p.checkpoints(ctx, c.Session)
	if err != nil {
		return nil, err
	}
	made, err := k.Checkpoint(ctx, c.Name)
	return checkpointed(ctx, made, err)
}

func doCheckpointList(ctx context.Context, p *peer, n named) (any, error) {
	k, err := p.checkpoints(ctx, n.Session)
	if err != nil {
		return nil, err
	}
	all, err := k.Checkpoints(ctx)
	return checkpointed(ctx, all, err)
}

type goBack struct {
	Session string `json:"session"`
	Steps   int    `json:"steps"`
	DryRun  bool   `json:"dryRun"`
	Force   bool   `json:"force"`
}

func (b goBack) options() (sandbox.UndoOptions, error) {
	if b.Steps < 0 {
		return sandbox.UndoOptions{}, badParams("steps is %d: it must be 1 or more", b.Steps)
	}
	return sandbox.UndoOptions{Steps: b.Steps, DryRun: b.DryRun, Force: b.Force}, nil
}

func doCheckpointUndo(ctx context.Context, p *peer, b goBack) (any, error) {
	o, err := b.options()
	if err != nil {
		return nil, err
	}
	k, err := p.checkpoints(ctx, b.Session)
	if err != nil {
		return nil, err
	}
	done, err := k.Undo(ctx, o)
	return checkpointed(ctx, done, err)
}

func doCheckpointRedo(ctx context.Context, p *peer, b goBack) (any, error) {
	o, err := b.options()
	if err != nil {
		return nil, err
	}
	k, err := p.checkpoints(ctx, b.Session)
	if err != nil {
		return nil, err
	}
	done, err := k.Redo(ctx, o)
	return checkpointed(ctx, done, err)
}

type restoreCheckpoint struct {
	Session    string   `json:"session"`
	Checkpoint string   `json:"checkpoint"` // its number or name
	Paths      []string `json:"paths"`
	DryRun     bool     `json:"dryRun"`
	Force      bool     `json:"force"`
}

func doCheckpointRestore(ctx context.Context, p *peer, r restoreCheckpoint) (any, error) {
	if r.Checkpoint == "" {
		return nil, badParams("checkpoint is required: the number or the name of one")
	}
	k, err := p.checkpoints(ctx, r.Session)
	if err != nil {
		return nil, err
	}
	c, err := k.FindCheckpoint(ctx, r.Checkpoint)
	if err != nil {
		return nil, answerable(ctx, err)
	}
	done, err := k.Restore(ctx, c.ID, sandbox.RestoreOptions{Paths: r.Paths, DryRun: r.DryRun, Force: r.Force})
	return checkpointed(ctx, done, err)
}

type diffCheckpoints struct {
	Session string `json:"session"`
	From    string `json:"from"`
	To      string `json:"to"` // "": the workspace as it is
}

type checkpointDiff struct {
	Files []sandbox.Change `json:"files"`
}

func doCheckpointDiff(ctx context.Context, p *peer, d diffCheckpoints) (any, error) {
	if d.From == "" {
		return nil, badParams("from is required: the number or the name of a checkpoint")
	}
	k, err := p.checkpoints(ctx, d.Session)
	if err != nil {
		return nil, err
	}
	from, err := k.FindCheckpoint(ctx, d.From)
	to := sandbox.Checkpoint{ID: sandbox.CheckpointNow}
	if err == nil && d.To != "" {
		to, err = k.FindCheckpoint(ctx, d.To)
	}
	if err != nil {
		return nil, answerable(ctx, err)
	}
	diff, err := k.DiffCheckpoints(ctx, from.ID, to.ID)
	if err != nil {
		return nil, answerable(ctx, err)
	}
	return checkpointDiff{diff.Files}, nil
}
