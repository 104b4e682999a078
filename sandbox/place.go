package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/transfer"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Home returns the home directory of the session's user.
func (s *Session) Home() string { return s.info.labels.home() }

// placedDir is where the host puts files for commands to read: on the volume that
// only uid 0 writes to. In profile dev that is every command.
const placedDir = wire.JobsDir + "/placed"

// PlacedPath returns the path that Place gives what it puts there.
func PlacedPath(at, as string) string { return path.Join(placedDir, at, as) }

// ErrTooLarge is returned by Place for more than it may copy.
var ErrTooLarge = transfer.ErrTooLarge

// Place copies a file or a directory of the host, name of tree, into the session
// for commands to read, and returns where they find it: PlacedPath of at, which is
// one word, and as. In profile strict no command can change it. Links that lead
// out of what is copied are left out, and so is what is not a file. What is there
// already is replaced, never removed. It returns an error wrapping ErrTooLarge if
// there are more than limit bytes.
func (s *Session) Place(ctx context.Context, at, as string, tree Tree) (string, error) {
	if !filepath.IsLocal(at) || !filepath.IsLocal(as) || path.Base(at) != at || path.Base(as) != as {
		return "", badInput("path", "place: %q and %q must be names", printable(at), printable(as))
	}
	to := PlacedPath(at, as)
	_, err := s.sendAs(ctx, User{}, path.Dir(to), func(t *transfer.Packer) error { return t.Placed(transfer.Placing(tree), as) })
	if err != nil {
		return "", fmt.Errorf("session %s: place %s: %w", s.ID(), to, err)
	}
	return to, nil
}

// Tree is what Place copies. Its FS must not follow links out of itself, as that of
// an os.Root does not.
type Tree struct {
	FS    fs.FS
	Name  string // "." for all of it
	Limit int64  // bytes
}

// Replace makes a directory of the session a copy of one of the host. What else is
// in it is removed.
func (s *Session) Replace(ctx context.Context, src, dir string) error {
	dir = s.inside(dir)
	err := s.send(ctx, dir, func(*transfer.Packer) error { return nil }) // it is there now
	if err == nil {
		_, err = s.helper(ctx, wire.VerbClear.Command(&wire.ClearArgs{Dir: dir}))
	}
	if err == nil {
		err = s.send(ctx, dir, func(t *transfer.Packer) error { return t.Tree(src) })
	}
	if err != nil {
		return fmt.Errorf("session %s: copy %s to %s: %w", s.ID(), src, dir, err)
	}
	return nil
}

// Ask runs a command of the program's own: its standard output, at most 4 MiB, is
// an answer and no agent's. Nothing of it is kept as an artifact. Errors are those
// of Run.
func (s *Session) Ask(ctx context.Context, c Command) ([]byte, exec.Status, error) {
	if err := c.Check(); err != nil {
		return nil, exec.Status{}, err
	}
	var out bytes.Buffer
	command := s.command(c)
	command.Stdout, command.Stderr = &limited{w: &out, left: maxHelperOutput}, io.Discard
	st, err := s.pool.Run(ctx, command)
	if err != nil {
		return nil, st, fmt.Errorf("session %s: %w", s.ID(), err)
	}
	return out.Bytes(), st, st.Write
}
