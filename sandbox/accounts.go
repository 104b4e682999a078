package sandbox

import "github.com/sandboxbash/sandboxbash/engine"

// The session's user has a name in passwd and group, because whoami, ssh and the standard
// libraries of many languages need one. If an image has no entry for the user, as most
// images do not, the engine mounts a copy of its /etc with the entry added, read-only. See
// docs/adr/0030.

// userName is the name of the session's user if the image has none for its uid.
const userName = "agent"

func (s *Spec) account() engine.Account {
	return engine.Account{UID: s.User.UID, GID: s.User.GID, Name: userName, Home: strictHome}
}
