// Package holder finds the terminals that processes of this machine keep, and speaks to
// those processes: each listens on a Unix socket in a directory that is the user's alone.
package holder

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/serve"
)

// A terminal that outlives the call that started it is kept by a process of its own, its
// holder, which listens on the socket DIR/ID.sock. The sockets in DIR are the list of
// terminals.
const (
	SocketSuffix = ".sock"
	// NewSuffix ends the name of a socket without a listener. It gets its final name when
	// it has one, so that a socket that refuses connections has lost its holder.
	NewSuffix = ".new"
	// maxSocketPath is sizeof(sun_path) of macOS less its NUL; Linux has 107.
	maxSocketPath = 103
)

// Environment says where a user's directories are.
type Environment interface {
	// Getenv returns a variable, or "".
	Getenv(name string) string
	// StateDir returns the user's directory for what programs keep; "" if there is none.
	StateDir() string
}

// Dir returns the directory of the sockets. It is below the user's runtime directory, which
// is removed at the end of the user's last login, or else below the state directory.
func Dir(env Environment) (string, error) {
	if !Keeps {
		return "", exit.Misuse("keep a terminal with `sandboxbash serve rpc`, for as long as that runs", "terminals that outlive a call need a Unix system")
	}
	return socketDir(env, "pty", "terminals", serve.TerminalPrefix+"00000000")
}

// socketDir returns the directory of a kind of sockets, whose names are as long as sample.
func socketDir(env Environment, kind, of, sample string) (string, error) {
	base := env.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(base) || !ownedByUs(base) {
		base = env.StateDir()
	}
	if base == "" {
		return "", exit.Misuse("set XDG_RUNTIME_DIR, XDG_STATE_HOME or HOME", "there is no directory for the sockets of %s", of)
	}
	dir := filepath.Join(base, "sandboxbash", kind)
	if n := len(filepath.Join(dir, sample+SocketSuffix)); n > maxSocketPath {
		return "", exit.Misuse("set XDG_RUNTIME_DIR to a shorter directory of yours",
			"a socket in %s would have a path of %d bytes, and the system takes %d", dir, n, maxSocketPath)
	}
	return dir, nil
}

// MakeDir makes the directory, for this user only.
func MakeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return checkTerminalDir(dir)
}

// checkTerminalDir refuses a directory in which other users may have put sockets.
func checkTerminalDir(dir string) error {
	if err := OwnOnly(dir); err != nil {
		return exit.Misuse("remove it, or make it yours alone with chown and `chmod 700`", "the directory for the sockets of terminals: %v", err)
	}
	return nil
}

// NewID makes an id that no terminal had before.
func NewID() string {
	b := make([]byte, 4)
	_, _ = rand.Read(b) // it never fails
	return serve.TerminalPrefix + hex.EncodeToString(b)
}

// terminalIDs returns the ids of all sockets.
func terminalIDs(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := checkTerminalDir(dir); err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), SocketSuffix); ok && e.Type() == fs.ModeSocket {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// ErrUnknown means that no terminal has an id, or that more than one id starts like that.
var ErrUnknown error = unknownTerminalError{}

type unknownTerminalError struct{}

func (unknownTerminalError) Error() string { return "unknown terminal" }

// Verdict says what to do about it.
func (unknownTerminalError) Verdict() exit.Verdict {
	return exit.Verdict{
		Status: exit.Usage, Outcome: exec.NotStarted, Cause: "unknown-terminal",
		Todo: "list the terminals with `sandboxbash pty ls`, or start one with `sandboxbash pty start`",
	}
}

// Find returns the one id that is prefix or, if there is none, starts with it. The error is
// an ErrUnknown if there is no such id, or more than one.
func Find(dir, prefix string) (string, error) {
	ids, err := terminalIDs(dir)
	if err != nil {
		return "", err
	}
	if slices.Contains(ids, prefix) {
		return prefix, nil
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return prefix == "" || !strings.HasPrefix(id, prefix) })
	switch len(ids) {
	case 0:
		return "", fmt.Errorf("terminal %q: %w", prefix, ErrUnknown)
	case 1:
		return ids[0], nil
	}
	return "", fmt.Errorf("terminal %q may be any of %s: %w", prefix, strings.Join(ids, ", "), ErrUnknown)
}

// CauseHolder is the cause of an unknown outcome when a holder has died.
const CauseHolder exec.Cause = "holder-lost"

// errHolderLost says that a terminal's holder has died, and what that means.
func errHolderLost(id string) error {
	return &exec.Error{Outcome: exec.Unknown, Cause: CauseHolder, Err: fmt.Errorf(
		"terminal %s is lost: the process that kept it has died, and what ran on it was killed with it", id)}
}

// connectTime bounds a connection to a holder.
const connectTime = 5 * time.Second

// Connect connects to the holder of a terminal.
func Connect(ctx context.Context, dir, id string) (*net.UnixConn, error) {
	if err := checkTerminalDir(dir); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, connectTime, fmt.Errorf("terminal %s: its holder does not answer", id))
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", filepath.Join(dir, id+SocketSuffix))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("terminal %q: %w", id, ErrUnknown)
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, errHolderLost(id)
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("terminal %s: %w", id, err)
	}
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("terminal %s: no Unix socket", id), conn.Close())
	}
	if err := CheckPeer(unix); err != nil {
		return nil, errors.Join(fmt.Errorf("terminal %s: %w", id, err), conn.Close())
	}
	return unix, nil
}

// newAge is how long a socket may be without a listener when it is made.
const newAge = time.Minute

// Sweep removes the sockets of holders that have died, and returns the
// ids of their terminals.
func Sweep(ctx context.Context, dir string) ([]string, error) {
	ids, err := terminalIDs(dir)
	var lost []string
	for _, id := range ids {
		conn, connectErr := Connect(ctx, dir, id)
		if connectErr == nil {
			_ = conn.Close() // nothing was written
			continue
		}
		if e, ok := errors.AsType[*exec.Error](connectErr); ok && e.Cause == CauseHolder {
			err = errors.Join(err, os.Remove(filepath.Join(dir, id+SocketSuffix)))
			lost = append(lost, id)
		}
	}
	begun, _ := filepath.Glob(filepath.Join(dir, "*"+NewSuffix)) // the pattern is good
	for _, path := range begun {
		if info, statErr := os.Lstat(path); statErr == nil && time.Since(info.ModTime()) > newAge {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return lost, err
}

// MaxClients is how many clients a terminal has at once; more are turned away.
const MaxClients = 64
