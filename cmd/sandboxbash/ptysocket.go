package main

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
)

// A terminal that outlives the call that has started it is kept by a process of
// its own, its holder, which listens on a socket: DIR/ID.sock. What there is in
// DIR is what terminals there are.
const (
	socketSuffix = ".sock"
	// newSuffix is of a socket that nobody listens to yet: it gets its name when
	// somebody does, so that one that refuses is one whose holder has died.
	newSuffix = ".new"
	// maxSocketPath is sizeof(sun_path) of macOS less its NUL; Linux has 107.
	maxSocketPath = 103
)

// terminalDir is where the sockets are: below the user's runtime directory, which
// ends with the user's last login or the machine, else below the state directory.
func (a *app) terminalDir() (string, error) {
	if !keepsTerminals {
		return "", misuse("keep a terminal with `sandboxbash serve rpc`, for as long as that runs", "terminals that outlive a call need a Unix system")
	}
	base := a.getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(base) || !ownedByUs(base) {
		base = a.userDir("XDG_STATE_HOME", ".local/state")
	}
	if base == "" {
		return "", misuse("set XDG_RUNTIME_DIR, XDG_STATE_HOME or HOME", "there is no directory for the sockets of terminals")
	}
	dir := filepath.Join(base, "sandboxbash", "pty")
	if n := len(filepath.Join(dir, terminalPrefix+"00000000"+socketSuffix)); n > maxSocketPath {
		return "", misuse("set XDG_RUNTIME_DIR to a shorter directory of yours",
			"a socket in %s would have a path of %d bytes, and the system takes %d", dir, n, maxSocketPath)
	}
	return dir, nil
}

// makeTerminalDir makes the directory, for this user only.
func makeTerminalDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return checkTerminalDir(dir)
}

// checkTerminalDir refuses one in which others may have put sockets.
func checkTerminalDir(dir string) error {
	if err := ownOnly(dir); err != nil {
		return misuse("remove it, or make it yours alone with chown and `chmod 700`", "the directory for the sockets of terminals: %v", err)
	}
	return nil
}

// terminalPrefix begins the ids of terminals, as those of JSON-RPC.
const terminalPrefix = "pty_"

// newTerminalID makes an id that no terminal had before.
func newTerminalID() string {
	b := make([]byte, 4)
	_, _ = rand.Read(b) // it never fails
	return terminalPrefix + hex.EncodeToString(b)
}

// terminalIDs lists the ids there are sockets for.
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
		if id, ok := strings.CutSuffix(e.Name(), socketSuffix); ok && e.Type() == fs.ModeSocket {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// errUnknownTerminal is an id that no terminal has, or the begin of more than one.
var errUnknownTerminal = errors.New("unknown terminal")

// findTerminal returns the id that begins so.
func findTerminal(dir, prefix string) (string, error) {
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
		return "", fmt.Errorf("terminal %q: %w", prefix, errUnknownTerminal)
	case 1:
		return ids[0], nil
	}
	return "", fmt.Errorf("terminal %q may be any of %s: %w", prefix, strings.Join(ids, ", "), errUnknownTerminal)
}

// causeHolder is the cause of what nobody knows because a holder has died.
const causeHolder exec.Cause = "holder-lost"

// errHolderLost says that a terminal's holder has died, and what that means.
func errHolderLost(id string) error {
	return &exec.Error{Outcome: exec.Unknown, Cause: causeHolder, Err: fmt.Errorf(
		"terminal %s is lost: the process that kept it has died, and what ran on it was killed with it", id)}
}

// connectTime bounds a connection to a holder.
const connectTime = 5 * time.Second

// connectHolder connects to the holder of a terminal.
func connectHolder(ctx context.Context, dir, id string) (*net.UnixConn, error) {
	if err := checkTerminalDir(dir); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, connectTime, fmt.Errorf("terminal %s: its holder does not answer", id))
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", filepath.Join(dir, id+socketSuffix))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("terminal %q: %w", id, errUnknownTerminal)
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
	if err := checkPeer(unix); err != nil {
		return nil, errors.Join(fmt.Errorf("terminal %s: %w", id, err), conn.Close())
	}
	return unix, nil
}

// newAge is how long a socket may be without a listener when it is made.
const newAge = time.Minute

// pruneTerminals removes the sockets of holders that have died, and returns the
// ids of their terminals.
func pruneTerminals(ctx context.Context, dir string) ([]string, error) {
	ids, err := terminalIDs(dir)
	var lost []string
	for _, id := range ids {
		conn, connectErr := connectHolder(ctx, dir, id)
		if connectErr == nil {
			_ = conn.Close() // nothing was written
			continue
		}
		if e, ok := errors.AsType[*exec.Error](connectErr); ok && e.Cause == causeHolder {
			err = errors.Join(err, os.Remove(filepath.Join(dir, id+socketSuffix)))
			lost = append(lost, id)
		}
	}
	begun, _ := filepath.Glob(filepath.Join(dir, "*"+newSuffix)) // the pattern is good
	for _, path := range begun {
		if info, statErr := os.Lstat(path); statErr == nil && time.Since(info.ModTime()) > newAge {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return lost, err
}
