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

// placedDir is where the host puts files for commands to read. It is on a volume that only
// uid 0 can write to. In profile dev every command is uid 0.
const placedDir = wire.JobsDir + "/placed"

// PlacedPath returns the path in the session of what Place copies with the same arguments.
func PlacedPath(at, as string) string { return path.Join(placedDir, at, as) }

// ErrTooLarge is returned by Place for a tree that is larger than its limit.
var ErrTooLarge = transfer.ErrTooLarge

// Place copies a file or a directory of the host into the session, for commands to read. It
// returns the path in the session, which is PlacedPath(at, as); at is a single path element.
// In profile strict no command can change the copy. Place leaves out links that lead out of
// the tree, and special files. It overwrites files of earlier calls and removes none. It
// returns an error wrapping ErrTooLarge if the tree has more than tree.Limit bytes.
func (s *Session) Place(ctx context.Context, at, as string, tree Tree) (string, error) {
	if !filepath.IsLocal(at) || !filepath.IsLocal(as) || path.Base(at) != at || path.Base(as) != as {
		return "", badInput("path", "place: %q and %q must be names", printable(at), printable(as))
	}
	to := PlacedPath(at, as)
	_, err := s.sendAs(ctx, User{}, path.Dir(to), func(t *transfer.Packer) error { return t.Placed(transfer.Placing(tree), as) })
	if err != nil {
		return "", fmt.Errorf("session %s: write %s: %w", s.ID(), to, err)
	}
	return to, nil
}

// Tree is what Place copies. Its FS must not follow links that lead out of it. The FS of an
// os.Root does not.
type Tree struct {
	FS    fs.FS
	Name  string // "." for all of it
	Limit int64  // bytes
}

// Replace makes a directory of the session a copy of one of the host. It removes everything
// else from it.
func (s *Session) Replace(ctx context.Context, src, dir string) error {
	dir = s.inside(dir)
	err := s.send(ctx, dir, func(*transfer.Packer) error { return nil }) // creates dir if it is missing
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

// Ask runs a command for the calling program, not for an agent, and returns its standard
// output. The output is limited to 4 MiB and does not become an artifact. Errors are those
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
