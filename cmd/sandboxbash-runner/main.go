//go:build linux

// Command sandboxbash-runner is the program inside a session's container. It is static
// and needs nothing of the image. This package is the part that runs as uid 0 in the same
// container as hostile commands; the verbs that run no commands are in internal/runner.
//
//	runner init …             PID 1: reaps, keeps the lease
//	runner serve              runs commands that the host sends as frames on stdio
//	runner pty                runs one command on the exec's terminal
//	runner attend             carries frames between the host and a terminal's runner
//	runner net                carries connections between the host and the session
//	runner trust              writes the certificates that the session's programs trust
//	runner push, pick, pull   unpack a tar stream, or pack files into one
//	runner manifest           hashes the files of a directory
//	runner update             changes files of a directory that are as the host says
//	runner home               prepares the home of the session's user
//	runner terms              reports which kinds of terminals the image describes
//	runner posture PATH…      reports what confines the session
//	runner reach TARGET…      reports which targets accept connections
//	runner lease DO TIME      changes when the session ends because it is idle
//	runner survey TIME DIR…   reports the size of directories, and whether they have changed
//	runner accounts, clear    copy the image's /etc with the session's user; empty a directory
//
// init, serve, pty, attend, net, trust, push, pull, manifest, pick and update run as uid 0, with
// CAP_KILL, CAP_SETUID and CAP_SETGID at most, and are not dumpable; the last five act for
// the session's user. accounts, clear and survey run as uid 0 of a container that was made
// for them. lease runs as uid 0. All others run as the session's user. The verbs jobs, ps and ports start no
// process: see answer.go. Package wire describes the arguments of each verb. The engine
// logs them, so a command's script, arguments and environment travel in the stream.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/sandboxbash/sandboxbash/internal/runner/jobs"
	"github.com/sandboxbash/sandboxbash/internal/runner/network"
	"github.com/sandboxbash/sandboxbash/internal/runner/prepare"
	"github.com/sandboxbash/sandboxbash/internal/runner/user"
	"github.com/sandboxbash/sandboxbash/internal/transfer"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// The main thread's capabilities are those that /proc shows of a process, and the main goroutine
// keeps that thread: forker must not take the mark from it.
func init() { runtime.LockOSThread() }

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) == 0 {
		return usage()
	}
	code, err := dispatch(wire.Verb(args[0]), args[1:])
	switch {
	case errors.Is(err, errUsage):
		return usage()
	case err != nil:
		fmt.Fprintf(os.Stderr, "runner %s: %v\n", args[0], err)
		if _, ok := errors.AsType[transfer.MissingError](err); ok {
			return wire.ExitNoInput
		}
		return 1
	}
	return code
}

// errUsage is the error of a verb that does not exist.
var errUsage = errors.New("unknown verb")

func dispatch(verb wire.Verb, args []string) (code int, err error) {
	switch verb {
	case wire.VerbInit:
		return runInit(args)
	case wire.VerbServe:
		err = serve(os.Stdin, os.Stdout)
	case wire.VerbPTY:
		return runTerminal()
	case wire.VerbAttend:
		err = attend(os.Stdin, os.Stdout)
	case wire.VerbNet:
		err = carry(os.Stdin, os.Stdout)
	case wire.VerbTrust:
		err = network.Trust(os.Stdin)
	case wire.VerbPush:
		err = user.Push(args, os.Stdin, os.Stdout)
	case wire.VerbPull:
		err = user.Pull(args, os.Stdout)
	case wire.VerbManifest:
		err = user.Manifest(args, os.Stdout)
	case wire.VerbPick:
		err = user.Pick(args, os.Stdin, os.Stdout)
	case wire.VerbUpdate:
		err = user.Update(args, os.Stdin, os.Stdout)
	case wire.VerbAccounts:
		return prepare.Accounts(args)
	case wire.VerbClear:
		err = prepare.Clear(args)
	case wire.VerbHome:
		err = user.Home()
	case wire.VerbPosture:
		err = user.Posture(os.Stdout, args)
	case wire.VerbReach:
		err = user.Reach(os.Stdout, args)
	case wire.VerbSurvey:
		err = user.Survey(args, os.Stdout)
	case wire.VerbLease:
		err = jobs.Dir(wire.JobsDir).NoteLease(args)
	case wire.VerbTerms:
		err = user.Terms(os.Stdin, os.Stdout)
	default:
		err = errUsage
	}
	return 0, err
}

func usage() int {
	fmt.Fprintln(os.Stderr, "usage: runner init|serve|pty|accounts|attend|clear|home|lease|manifest|net|pick|posture|push|pull|reach|survey|terms|trust|update")
	return wire.ExitUsage
}
