package doctorcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// othersWrite are the permissions with which other users can change a file.
const othersWrite fs.FileMode = 0o022

// fileFindings tells of a configuration file that other users can change: it decides what runs,
// what is mounted and which secrets are read. name is "" if there is no file.
func fileFindings(name string) []finding {
	if name == "" || runtime.GOOS == "windows" { // where such permissions mean nothing
		return nil
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode()&othersWrite == 0 {
		return nil // if it cannot be read, it was an error before
	}
	f := warn("config", fmt.Sprintf("other users can change %s (mode %04o)", name, info.Mode().Perm()), "run `chmod go-w` on it")
	f.repair = &repair{
		what: fmt.Sprintf("set the mode of %s to %04o", name, info.Mode().Perm()&^othersWrite),
		do: func(context.Context) (string, error) {
			return "only its owner can change " + name, os.Chmod(name, info.Mode().Perm()&^othersWrite)
		},
	}
	return []finding{f}
}

// namedBy says where the address of an engine comes from.
func namedBy(source string) string {
	switch {
	case source == "":
		return "named by the caller"
	case source == "the default":
		return "at the default socket"
	case strings.HasSuffix(source, "'s"):
		return "found at " + source + " socket: nothing names an engine, and the default socket is not there"
	}
	return "named by " + source
}

// leftovers tells of what ended sessions have left on the engine.
func (a *doctor) leftovers(ctx context.Context, r *images.Resolver) []finding {
	ids, err := a.connection.Unobserved(r, sandbox.Options{}).Leftovers(ctx)
	return leftoverFindings(ids, err, func(ctx context.Context) ([]string, error) {
		sessions, err := a.connection.Sessions(ctx, nil, nil) // as session reap: with the bounds of what is kept
		if err != nil {
			return nil, err
		}
		reaped, err := sessions.Reap(ctx)
		return reaped, errors.Join(err, sessions.Close(context.WithoutCancel(ctx)))
	})
}

// leftoverFindings words what was found of sessions that have ended; reap removes it, and returns
// the ids of those it has removed.
func leftoverFindings(ids []string, err error, reap func(context.Context) ([]string, error)) []finding {
	const topic = "leftovers"
	if err != nil {
		return []finding{warn(topic, err.Error(), "")}
	}
	if len(ids) == 0 {
		return []finding{ok(topic, "there are none of ended sessions")}
	}
	short := make([]string, len(ids))
	for i, id := range ids {
		short[i] = sandbox.ShortID(id)
	}
	f := warn(topic, fmt.Sprintf("there are some of %d ended sessions: %s", len(ids), strings.Join(short, ", ")),
		"the next session that starts removes them; so does `sandboxbash session reap`")
	f.repair = &repair{
		what: fmt.Sprintf("remove what is left of %d sessions", len(ids)),
		do: func(ctx context.Context) (string, error) {
			_, err := reap(ctx)
			return "nothing is left of them but workspaces that are kept", err
		},
	}
	return []finding{f}
}
