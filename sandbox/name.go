package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sandboxbash/sandboxbash/engine"
)

// A session has an id, which no other has, and a name for people. A name that was not given is
// made up from the id, so it costs nothing and is known wherever the id is. See docs/adr/0049.

// LastStarted is the reference of the session of this user that was started last and lives.
const LastStarted = "last"

// nameForm is what Spec.Name may be.
var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// checkName returns an error for a name that a session cannot have.
func checkName(name string) error {
	switch {
	case name == "":
		return nil
	case !nameForm.MatchString(name):
		return fmt.Errorf("name %q: it can have up to 63 of a-z, 0-9 and -, and does not start with -", name)
	case name == LastStarted:
		return fmt.Errorf("name %q: it stands for the session that was started last", name)
	case engine.ValidID(name):
		return fmt.Errorf("name %q: it has the form of an id", name)
	}
	return nil
}

// MadeUpName returns the name of a session that was given none. Two ids may have the same.
func MadeUpName(id string) string {
	tail, err := strconv.ParseUint(ShortID(id), 16, 64)
	if err != nil {
		return ""
	}
	return adjectives[tail%uint64(len(adjectives))] + "-" + nouns[tail/uint64(len(adjectives))%uint64(len(nouns))]
}

// shortStart and shortEnd are the part of an id that ShortID returns.
const shortStart, shortEnd = 24, 32

// ShortID returns the part of an id that people are shown: 8 random digits. The start of an id is
// a time, which sessions that were started together share.
func ShortID(id string) string {
	if len(id) < shortEnd {
		return id
	}
	return id[shortStart:shortEnd]
}

// userKey identifies the user of this process, on this host.
var userKey = sync.OnceValue(func() string {
	uid := strconv.Itoa(os.Getuid())
	if u, err := user.Current(); os.Getuid() < 0 && err == nil {
		uid = u.Uid // Windows has no numbers
	}
	return self().host + "/" + uid
})

// Mine reports whether this process's user has started the session, on this machine.
func (i Info) Mine() bool {
	if i.labels.By == "" { // of a version that did not say so
		by, ok := parseOwner(i.Owner)
		return ok && by.host == self().host
	}
	return i.labels.By == userKey()
}

// Lives reports whether the session has not ended.
func (i Info) Lives() bool { return i.Kept == nil && lives(i.Status) }

func lives(s engine.Status) bool {
	switch s {
	case engine.StatusCreated, engine.StatusRunning, engine.StatusPaused, engine.StatusRestarting:
		return true
	default:
		return false
	}
}

// named describes a session for references. What cannot be read of the labels of another version
// is left out.
func named(s engine.Session) Info {
	info, _ := describeLabels(s.ID, s.Labels)
	info.Status = s.Status
	if info.Name == "" {
		info.Name = MadeUpName(s.ID)
	}
	return info
}

// The least that a reference must have of a name or an id, unless it is a whole name.
const (
	leastOfName = 3
	leastOfID   = 4
)

// refers reports whether part is a part of the session's name or id.
func (i Info) refers(part string) bool {
	return len(part) >= leastOfID && strings.Contains(i.ID, part) || len(part) >= leastOfName && strings.Contains(i.Name, part)
}

// match returns the session that a reference names. A whole name comes before a part, sessions of
// this user before those of others, and with a whole name sessions that live before those that
// have ended.
func match(all []engine.Session, ref string) (engine.Session, error) {
	if !nameForm.MatchString(ref) {
		return engine.Session{}, unknown(ref)
	}
	at := map[string]engine.Session{}
	var list []Info
	for _, s := range all {
		if isSession(s) {
			at[s.ID] = s
			list = append(list, named(s))
		}
	}
	sortByCreated(list)
	mine := func(i Info) bool { return i.Mine() }
	if ref == LastStarted {
		list = keep(list, func(i Info) bool { return i.Mine() && lives(i.Status) })
		if len(list) == 0 {
			return engine.Session{}, fmt.Errorf("session %q: %w: none of yours is running", ref, ErrUnknownSession)
		}
		return at[list[len(list)-1].ID], nil
	}
	found := keep(list, func(i Info) bool { return i.Name == ref })
	if some := keep(found, func(i Info) bool { return i.Mine() && lives(i.Status) }); len(some) > 0 {
		found = some
	}
	if len(found) == 0 {
		found = keep(list, func(i Info) bool { return i.refers(ref) })
	}
	if some := keep(found, mine); len(some) > 0 {
		found = some
	}
	switch len(found) {
	case 0:
		return engine.Session{}, unknown(ref)
	case 1:
		return at[found[0].ID], nil
	}
	return engine.Session{}, fmt.Errorf("session %q: %w: %d match: %s", ref, ErrUnknownSession, len(found), Described(found))
}

// mostDescribed is how many sessions an error names.
const mostDescribed = 8

// Described names sessions in one line, each by its name and the short form of its id.
func Described(list []Info) string {
	var words []string
	for _, i := range list[:min(len(list), mostDescribed)] {
		words = append(words, i.Name+" ("+ShortID(i.ID)+")")
	}
	if more := len(list) - len(words); more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return strings.Join(words, ", ")
}

func keep(list []Info, want func(Info) bool) []Info {
	return slices.DeleteFunc(slices.Clone(list), func(i Info) bool { return !want(i) })
}

// untaken returns an error if another session of this user that lives has the name. except is the
// id of the session that is to have it, "" before it is there.
func (e *Engine) untaken(ctx context.Context, name, except string) error {
	if name == "" {
		return nil
	}
	all, err := e.backend.List(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if info := named(s); isSession(s) && lives(s.Status) && s.ID != except && info.Name == name && info.Mine() {
			return badInput("name", "name %q: session %s has it", name, s.ID)
		}
	}
	return nil
}

// claim gives up s if another session has its name: of two that are started at the same time, each
// looks for the other when it can itself be seen.
func (e *Engine) claim(ctx context.Context, s *Session, name string) error {
	err := e.untaken(ctx, name, s.ID())
	if err != nil {
		err = errors.Join(err, s.Stop(ctx))
	}
	return err
}
