package holder

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/serve"
	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// The connections of a session that outlives the call that started it are carried by a process
// of its own, too: the holder of the session's network. It listens on a socket whose name is the end
// of the session's id, because the path of a socket is short: 48 bits of it are random.

// idEnd is how much of a session's id the name of its socket has, in characters.
const idEnd = 12

// NetworkSocket returns the name of the socket of a session's network, without its suffix.
func NetworkSocket(session string) string { return session[max(0, len(session)-idEnd):] }

// NetworkDir returns the directory of the sockets of sessions' networks.
func NetworkDir(env Environment) (string, error) {
	if !Keeps {
		return "", exit.Misuse("use run or serve, which carry the connections of their own sessions", "the network of a session that outlives a call needs a Unix system")
	}
	return socketDir(env, "net", "sessions' networks", strings.Repeat("0", idEnd))
}

var (
	// ErrNotHeld means that there is no holder of a session's network.
	ErrNotHeld = errors.New("no process carries the session's connections")
	// ErrKilled means that there was one, which has died without having ended.
	ErrKilled = errors.New("the process that carried the session's connections was killed")
)

// DialNetwork connects to the holder of a session's network. The error is an ErrNotHeld or an
// ErrKilled if there is none. The client's Close is the caller's.
func DialNetwork(ctx context.Context, dir, session string) (*Client, error) {
	if err := OwnOnly(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotHeld
	} else if err != nil {
		return nil, exit.Misuse("remove it, or make it yours alone with chown and `chmod 700`", "the directory for the sockets of sessions' networks: %v", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, connectTime, errSilent(session))
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, NetworkSocket(session)+SocketSuffix))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNotHeld
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, ErrKilled
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("the network of session %s: %w", session, err)
	}
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("no Unix socket"), conn.Close())
	}
	if err := CheckPeer(unix); err != nil {
		return nil, errors.Join(fmt.Errorf("the network of session %s: %w", session, err), conn.Close())
	}
	c := &Client{dir: dir, ID: session, conn: unix, lines: bufio.NewReader(unix)}
	c.lost = func(_ context.Context, err error) error {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return errSilent(session)
		}
		return ErrKilled
	}
	if err := c.Call(ctx, connectTime, "initialize", map[string]any{"protocol": serve.RPCVersion}, nil); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func errSilent(session string) error {
	return &exec.Error{Outcome: exec.NotStarted, Cause: CauseNoAnswer, Err: fmt.Errorf("the process that carries the connections of session %s does not answer", session)}
}

// useTime bounds the question what connections did: the holder may have to ask the runner for
// a sign of life.
const useTime = 5 * time.Second

// WatchNetwork has the holder watch the session's connections from now on. The returned function
// returns what they did. The errors are those of DialNetwork.
func WatchNetwork(ctx context.Context, dir, session string) (used func() *sandbox.NetworkUse, err error) {
	c, err := DialNetwork(ctx, dir, session)
	if err != nil {
		return nil, err
	}
	if err := c.Call(ctx, connectTime, "network/watch", nil, nil); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return func() *sandbox.NetworkUse {
		defer c.Close() //nolint:errcheck // all was said
		var answer serve.NetworkUsed
		// The command has ended, perhaps because ctx has.
		if err := c.Call(context.WithoutCancel(ctx), useTime, "network/use", nil, &answer); err != nil {
			return &sandbox.NetworkUse{Lost: true} // what was open went with the holder
		}
		return answer.Use
	}, nil
}

// EndNetwork ends the holder of a session's network, if there is one, and waits for it to be gone;
// the rules that it had are forgotten. The session has ended, or never gets a network again.
func EndNetwork(ctx context.Context, env Environment, session string) {
	ForgetRules(env, session)
	dir, err := NetworkDir(env)
	if err != nil {
		return
	}
	c, err := DialNetwork(ctx, dir, session)
	if errors.Is(err, ErrKilled) {
		_ = os.Remove(filepath.Join(dir, NetworkSocket(session)+SocketSuffix))
	}
	if err != nil {
		return
	}
	defer c.Close() //nolint:errcheck // all was said
	if c.Call(ctx, connectTime, "network/end", nil, nil) == nil {
		_ = c.conn.SetReadDeadline(time.Now().Add(endTime))
		_, _ = c.lines.ReadByte() // it ends with the holder
	}
}

// Networks lists the sessions whose networks have a holder, and removes the sockets of holders
// that have died, which it counts.
func Networks(ctx context.Context, env Environment) (held []serve.NetworkStatus, died int, err error) {
	dir, err := NetworkDir(env)
	if err != nil {
		return nil, 0, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), SocketSuffix)
		if !ok || e.Type() != fs.ModeSocket {
			continue
		}
		var status serve.NetworkStatus
		c, err := DialNetwork(ctx, dir, name)
		if err == nil {
			err = errors.Join(c.Call(ctx, lookTime, "network/status", nil, &status), c.Close())
		}
		switch {
		case errors.Is(err, ErrKilled):
			_ = os.Remove(filepath.Join(dir, e.Name()))
			died++
		case err == nil:
			held = append(held, status)
		}
	}
	return held, died, nil
}

// savedRules are the rules of a session that were changed, as a file holds them: they hold after
// a restart of the holder too.
type savedRules struct {
	Engine string         `json:"engine"` // its address
	Allow  []network.Rule `json:"allow"`
	Deny   []network.Rule `json:"deny"`
}

func rulesDir(env Environment) string {
	if env.StateDir() == "" {
		return ""
	}
	return filepath.Join(env.StateDir(), "sandboxbash", "network")
}

const rulesSuffix = ".json"

// SaveRules keeps the changed rules of a session. They hold no secret.
func SaveRules(env Environment, engine, session string, allow, deny []network.Rule) error {
	dir := rulesDir(env)
	if dir == "" {
		return errors.New("there is no directory for them: set XDG_STATE_HOME or HOME")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := OwnOnly(dir); err != nil {
		return err
	}
	text, err := json.Marshal(savedRules{engine, allow, deny})
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, session+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, session+rulesSuffix))
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// LoadRules returns the changed rules of a session. The error is an fs.ErrNotExist if they were
// not changed.
func LoadRules(env Environment, session string) (allow, deny []network.Rule, err error) {
	dir := rulesDir(env)
	if dir == "" {
		return nil, nil, fs.ErrNotExist
	}
	if err := OwnOnly(dir); err != nil {
		return nil, nil, err
	}
	path := filepath.Join(dir, session+rulesSuffix)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	var saved savedRules
	if err := json.Unmarshal(text, &saved); err != nil {
		return nil, nil, fmt.Errorf("the rules in %s: %w", path, err)
	}
	return saved.Allow, saved.Deny, nil
}

// ForgetRules removes the changed rules of a session that has ended.
func ForgetRules(env Environment, session string) {
	if dir := rulesDir(env); dir != "" {
		_ = os.Remove(filepath.Join(dir, session+rulesSuffix)) // it may not be there
	}
}

// SweepRules forgets the changed rules of the sessions of an engine that are not among those that
// it has.
func SweepRules(env Environment, engine string, has func(session string) bool) {
	dir := rulesDir(env)
	if dir == "" {
		return
	}
	entries, _ := os.ReadDir(dir) // without it there are none
	for _, e := range entries {
		session, ok := strings.CutSuffix(e.Name(), rulesSuffix)
		if !ok || has(session) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		var saved savedRules
		if err == nil && json.Unmarshal(text, &saved) == nil && saved.Engine == engine {
			ForgetRules(env, session)
		}
	}
}
