package sandbox

import "github.com/sandboxbash/sandboxbash/engine"

// The session's user has a name in passwd and group, which whoami, ssh and the standard
// libraries of many languages want. Most images have no entry for it: then the engine
// lays a copy of their /etc over them, read-only. See docs/adr/0030.

// userName is the name of the session's user where the image does not give it one.
const userName = "agent"

func (s *Spec) account() engine.Account {
	return engine.Account{UID: s.User.UID, GID: s.User.GID, Name: userName, Home: strictHome}
}
