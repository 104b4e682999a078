package sandbox

import "errors"

// Hint is a code for what the caller can do about an error. Errors of this package do not
// name flags or commands of a command line. A program that has such words gets the hint
// with HintOf and words it.
type Hint string

// Hints.
const (
	HintCopy      Hint = "copy"           // give the session a copy of the directory
	HintMapped    Hint = "mapped"         // the engine maps users: give the session a copy of the directory
	HintMount     Hint = "mount"          // copy the directory into the session
	HintOwner     Hint = "owner"          // change the directory's owner, name another user, give a copy, or use profile dev
	HintDev       Hint = "profile-dev"    // use profile dev
	HintStrict    Hint = "profile-strict" // use profile strict
	HintUnlimited Hint = "unlimited"      // see why the engine lacks a limit, or use profile dev knowingly
	HintMemory    Hint = "memory"         // give the session more memory
	HintForce     Hint = "force"          // overwrite all the same
	HintSecretEnv Hint = "secret-env"     // configure the variable as a secret, or give it to single commands
	HintKept      Hint = "kept"           // look at the kept workspace, or get it
	HintResolver  Hint = "resolver"       // end the program that listens at the resolver's port
)

// hinted is an error with a hint. Its text is that of the error.
type hinted struct {
	error
	hint  Hint
	about string // the directory or the session's id, if it is about one
}

func (h *hinted) Unwrap() error { return h.error }

func (h *hinted) helps() (Hint, string) { return h.hint, h.about }

// HintOf returns the hint of an error, "" if it has none, and the directory or session
// that it is about.
func HintOf(err error) (hint Hint, about string) {
	var h interface{ helps() (Hint, string) }
	if errors.As(err, &h) {
		return h.helps()
	}
	return "", ""
}
