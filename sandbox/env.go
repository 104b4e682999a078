package sandbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Variables of a session are kept in its label, so that every process that opens the session gives them
// to its commands. Every client of the engine can read a label, so no secret becomes one. See
// docs/adr/0054.

// maxSessionEnv bounds the variables of a session, in bytes of execve(2): they are a part of a label,
// which is read at each look at a session.
const maxSessionEnv = 64 << 10

// checkSessionEnv returns an error if a session cannot have these variables. It never holds a value.
func checkSessionEnv(env []string) error {
	total, err := checkEnv(env)
	if err == nil && total > maxSessionEnv {
		err = badInput("env", "the variables of a session take %d bytes together; the limit is %d: put them in a file of the workspace", total, maxSessionEnv)
	}
	return err
}

// unfitEnv returns an error if a variable of a session is or holds a secret. It never holds a value.
func (e *Engine) unfitEnv(env []string) error {
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if value != "" && (sink.SecretName(name) || e.opts.Secrets.Scrub(value) != value) {
			return &InputError{Field: "env", Text: fmt.Sprintf("%s is a secret, and the engine would show it to all of its clients", name), err: &hinted{
				error: errSecretEnv, hint: HintSecretEnv, about: name,
			}}
		}
	}
	return nil
}

// errSecretEnv carries a hint.
var errSecretEnv = errors.New("a secret cannot be a variable of a session")

// ownVariables are those that a session sets itself: what its image says of them does not count.
var ownVariables = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "HOSTNAME", "_"}

// withImageEnv returns the variables of an image's ENV that a session can have, and then its own. The
// notes name those that were left out, but for ownVariables.
func withImageEnv(image, own []string, scrub func(string) string) (env, notes []string) {
	leave := func(name, why string) {
		notes = append(notes, fmt.Sprintf("%s of the image's environment was left out: %s", printable(name), why))
	}
	for _, kv := range image {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case slices.Contains(ownVariables, name):
		case !EnvName(name) || strings.IndexByte(value, 0) >= 0:
			leave(name, "it is not a name or a value that bash can have")
		case policy.LoadsCode(name, value):
			leave(name, "it makes programs load or run something")
		case value != "" && scrub(kv) != kv:
			leave(name, "it holds a secret")
		default:
			env = append(env, kv)
		}
	}
	env = overlay(env, own)
	if err := checkSessionEnv(env); err != nil {
		return own, append(notes, "the image's environment was left out: "+err.Error())
	}
	return env, notes
}

// envNames are the names of the session's variables, sorted. Their values are not for listings.
func (l labelSpec) envNames() []string {
	var names []string
	for _, kv := range l.Env {
		name, _, _ := strings.Cut(kv, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
