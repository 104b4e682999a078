package wire

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// RunnerDir is where a session mounts the runner, and RunnerPath is its program.
const (
	RunnerDir  = "/.sandboxbash"
	RunnerPath = RunnerDir + "/runner"
)

// Verb is the first argument of the runner: what the process is for. A command's
// script, arguments and environment are never among the arguments, which the engine
// logs and every process of the session can read: they travel in a Request.
type Verb string

// Verbs. The arguments that follow are those of the type named here, or none.
const (
	VerbInit     Verb = "init"     // InitArgs; PID 1: reaps, keeps the lease
	VerbServe    Verb = "serve"    // runs commands that the host sends as frames on stdio
	VerbPTY      Verb = "pty"      // runs one command on the exec's terminal
	VerbAttend   Verb = "attend"   // carries frames between the host and a terminal's runner
	VerbNet      Verb = "net"      // carries connections between the host and the session
	VerbTrust    Verb = "trust"    // reads certificates, at most MaxTrust; the session's programs trust the first from then on
	VerbJobs     Verb = "jobs"     // answers one JobQuery; a runner that serves does it itself
	VerbPush     Verb = "push"     // TransferArgs; unpacks a tar stream, answers with a Sum
	VerbPull     Verb = "pull"     // TransferArgs; packs a tar stream
	VerbManifest Verb = "manifest" // TransferArgs; answers with the hashes of a directory's files
	VerbPick     Verb = "pick"     // TransferArgs; reads names, packs those files of a directory into a tar stream
	VerbUpdate   Verb = "update"   // TransferArgs; changes files of a directory that are as the host says, answers with verdicts
	VerbAccounts Verb = "accounts" // AccountsArgs; copies an image's /etc and names the session's user in it
	VerbClear    Verb = "clear"    // ClearArgs; empties a directory
	VerbHome     Verb = "home"     // prepares the home of the session's user
	VerbPosture  Verb = "posture"  // PostureArgs; answers with a Posture
	VerbReach    Verb = "reach"    // ReachArgs; answers with a Posture of the kind FactReach
	VerbPS       Verb = "ps"       // answers with Processes; a runner that serves does it itself
	VerbPorts    Verb = "ports"    // answers with Ports; only a runner that serves does it
	VerbSurvey   Verb = "survey"   // SurveyArgs; answers with Surveys
	VerbLease    Verb = "lease"    // LeaseArgs; changes when the session ends because it is idle
	VerbTerms    Verb = "terms"    // reads Terms, answers with those that the image describes
)

// TrustDir is where a session has the certificate that its programs trust besides the image's,
// if requests inside TLS are read. Its files are root's.
const TrustDir = "/run/sandboxbash-ca"

// MaxTrust bounds what VerbTrust reads, and a file of certificates of the image, in bytes.
const MaxTrust = 4 << 20

// Trusted reports whether the verb's answers count as the runner's own word although
// the process is started like a command.
func (v Verb) Trusted() bool { return v == VerbAttend }

// Exit codes of a session's PID 1 that ends for a reason of its own. An engine invents
// neither for a PID 1 that was killed, or whose end it has missed.
const (
	ExitLeaseOver = 75  // EX_TEMPFAIL, sysexits(3): no contact for the length of the lease
	ExitStopped   = 143 // 128+SIGTERM: it was told to end
)

// ExitUsage is the exit code of a runner that does not know a verb: EX_USAGE of sysexits(3).
const ExitUsage = 64

// ExitNoInput is the exit code of VerbPull, VerbManifest, VerbPick and VerbUpdate for a path that does not exist:
// EX_NOINPUT, sysexits(3).
const ExitNoInput = 66

// Exit codes of VerbAccounts, which say why there is no copy.
const (
	ExitAccountsThere = 80 // the image has entries for the user and the group
	ExitAccountsOdd   = 81 // its /etc, or one of the two files, is a link or not a plain file
	ExitAccountsLarge = 82 // its /etc exceeds the bounds of what is copied
)

// InitArgs are the arguments of VerbInit.
type InitArgs struct {
	Lease time.Duration // how long to live without contact
	User  uint32        // uid of the session's commands
}

// TransferArgs are the arguments of VerbPush, VerbPull, VerbManifest, VerbPick and VerbUpdate.
type TransferArgs struct {
	UID, GID uint32 // the transfer can read and write what this user can
	Path     string // pull: a directory or a file; others: a directory
}

// AccountsArgs are the arguments of VerbAccounts.
type AccountsArgs struct {
	From, To   string // directories
	UID, GID   uint32
	Name, Home string // of the entry in passwd(5), where one is needed
}

// ClearArgs are the arguments of VerbClear.
type ClearArgs struct{ Dir string }

// PostureArgs are the arguments of VerbPosture.
type PostureArgs struct {
	Masked []string // paths whose content must not be readable
}

// ReachArgs are the arguments of VerbReach. A target is HOST:PORT, or HOST:PORT, a space and the host that
// an HTTP request is sent for.
type ReachArgs struct{ Targets []string }

// What VerbLease can do.
const (
	LeaseKeep   = "keep"   // the session does not end within For, or within its lease if that is longer
	LeasePause  = "pause"  // the session is about to be paused: its lease starts again afterwards
	LeaseResume = "resume" // it has been resumed, or was not paused
)

// LeaseArgs are the arguments of VerbLease.
type LeaseArgs struct {
	Do  string
	For time.Duration // with LeaseKeep; 0: its lease alone counts again
}

// SurveyArgs are the arguments of VerbSurvey.
type SurveyArgs struct {
	Limit time.Duration // per directory
	Dirs  []string
}

func (a *InitArgs) words(l *argList) {
	l.literal("--lease")
	l.duration(&a.Lease)
	l.literal("--user")
	l.id(&a.User)
}

func (a *TransferArgs) words(l *argList) {
	l.user(&a.UID, &a.GID)
	l.string(&a.Path)
}

func (a *AccountsArgs) words(l *argList) {
	l.string(&a.From)
	l.string(&a.To)
	l.id(&a.UID)
	l.id(&a.GID)
	l.string(&a.Name)
	l.string(&a.Home)
}

func (a *ClearArgs) words(l *argList) { l.string(&a.Dir) }

func (a *PostureArgs) words(l *argList) { l.rest(&a.Masked) }

func (a *ReachArgs) words(l *argList) { l.rest(&a.Targets) }

func (a *LeaseArgs) words(l *argList) {
	l.string(&a.Do)
	l.duration(&a.For)
}

func (a *SurveyArgs) words(l *argList) {
	l.duration(&a.Limit)
	l.rest(&a.Dirs)
}

// arguments is a verb's argument list. words visits every argument once, in order, for
// both directions, as fields does for a message.
type arguments interface {
	words(l *argList)
}

// Command returns the arguments of a runner: the verb, and what args says. A verb
// without arguments takes no args.
func (v Verb) Command(args ...arguments) []string {
	l := argList{list: []string{string(v)}}
	for _, a := range args {
		a.words(&l)
	}
	return l.list
}

// ParseArgs sets args to what follows the verb. Too few, too many or malformed
// arguments are an error.
func ParseArgs(list []string, args arguments) error {
	l := argList{list: list, reading: true}
	if args.words(&l); l.err == nil && len(l.list) > 0 {
		l.fail(fmt.Sprintf("%d arguments too many", len(l.list)))
	}
	return l.err
}

// argList visits arguments, either to append them to list or to take them off it.
type argList struct {
	list    []string // when appending: so far; when reading: the rest
	reading bool
	err     error // of reading, the first one
}

func (l *argList) fail(what string) {
	if l.err == nil {
		l.err = fmt.Errorf("arguments: %s", what)
	}
	l.list = nil
}

func (l *argList) string(v *string) {
	switch {
	case !l.reading:
		l.list = append(l.list, *v)
	case len(l.list) == 0:
		*v = ""
		l.fail("one is missing")
	default:
		*v, l.list = l.list[0], l.list[1:]
	}
}

func (l *argList) literal(word string) {
	got := word
	if l.string(&got); l.err == nil && got != word {
		l.fail(fmt.Sprintf("%q instead of %s", got, word))
	}
}

// parsed visits an argument that is written as text and read by parse.
func (l *argList) parsed(text string, parse func(string) error) {
	if l.string(&text); l.err != nil || !l.reading {
		return
	}
	if err := parse(text); err != nil {
		l.fail(err.Error())
	}
}

func (l *argList) duration(v *time.Duration) {
	l.parsed(v.String(), func(text string) (err error) {
		*v, err = time.ParseDuration(text)
		return err
	})
}

func (l *argList) id(v *uint32) {
	l.parsed(idText(*v), func(text string) (err error) {
		*v, err = parseID(text)
		return err
	})
}

// user visits UID:GID, one argument.
func (l *argList) user(uid, gid *uint32) {
	l.parsed(idText(*uid)+":"+idText(*gid), func(text string) (err error) {
		first, second, _ := strings.Cut(text, ":")
		if *uid, err = parseID(first); err == nil {
			*gid, err = parseID(second)
		}
		return err
	})
}

func (l *argList) rest(v *[]string) {
	if !l.reading {
		l.list = append(l.list, *v...)
		return
	}
	*v, l.list = l.list, nil
}

func idText(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

// parseID refuses (uid_t)-1, which means "unchanged" to the kernel.
func parseID(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err == nil && n == math.MaxUint32 {
		err = fmt.Errorf("%s is not an id", text)
	}
	return uint32(n), err
}
