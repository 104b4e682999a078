package sandbox

import (
	"cmp"
	"fmt"

	"github.com/sandboxbash/sandboxbash/engine"
)

// The session's user has a name in passwd and group, because whoami, ssh and the standard
// libraries of many languages need one. If an image has no entry for the user, as most
// images do not, the engine mounts a copy of its /etc with the entry added, read-only. See
// docs/adr/0030.

// userName is the name of the session's user if neither the caller nor the image names its uid.
const userName = "agent"

// isUserName reports whether programs that read passwd take a text for a name.
func isUserName(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', c == '_':
		case i > 0 && ('0' <= c && c <= '9' || c == '-'):
		default:
			return false
		}
	}
	return name != "" && len(name) <= 32 && name != "root"
}

// checkUserName checks a name for the session's user.
func (s *Spec) checkUserName() error {
	switch {
	case s.UserName == "":
		return nil
	case s.Profile == Dev:
		return &hinted{hint: HintStrict, error: fmt.Errorf("user name %q: commands of profile dev run as root, whose name does not change", s.UserName)}
	case !isUserName(s.UserName):
		return fmt.Errorf("user name %q: a name has up to 32 of a-z, 0-9, _ and -, begins with a letter or _, and is not root", s.UserName)
	}
	return nil
}

func (s *Spec) account() engine.Account {
	return engine.Account{UID: s.User.UID, GID: s.User.GID, Name: cmp.Or(s.UserName, userName), Home: s.home()}
}

// accountNotes returns a note if the user has not got the name that was asked for.
func (s *Spec) accountNotes(l labelSpec) []string {
	if s.UserName == "" || l.Accounts {
		return nil
	}
	return []string{fmt.Sprintf("the image's own name for uid %d, if it has one, stays: programs that look it up do not find %s; USER and LOGNAME are %[2]s", s.User.UID, s.UserName)}
}

// userName is what USER and LOGNAME say.
func (l labelSpec) userName() string {
	if l.User.UID == 0 {
		return "root"
	}
	return cmp.Or(l.UserName, userName)
}
