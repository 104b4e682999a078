//go:build linux

// Command sandboxbash-runner is the program inside a session's container. It is
// static, needs nothing of the image, and is the only code of ours that runs
// beside hostile code.
//
//	runner init --lease 15s   PID 1: reaps, keeps the lease
//	runner serve              runs commands that the host sends as frames on stdio
//	runner pty                runs one command on the exec's terminal
//	runner clear DIR          empties a directory, as uid 0 of a container made for it
//	runner attend             carries frames between the host and a terminal's runner
//	runner jobs               answers a question about jobs, as uid 0
//	runner home               makes the session user's home, as that user
//	runner posture PATH…      reports what confines it, as the session's user
//	runner push DIR           unpacks a tar stream, as the session's user
//	runner pull PATH          packs a tar stream, as the session's user
//	runner ps                 lists processes
//	runner terms              tells which kinds of terminals the image knows
//
// init, serve, pty, attend and jobs run as uid 0 with CAP_KILL, CAP_SETUID and CAP_SETGID and are
// are not dumpable; everything else runs as the session's user. Argument lists are
// constant: what a command is travels in the stream, never in an argument.
package main

import (
	"fmt"
	"os"
)

// exitUsage is EX_USAGE of sysexits(3).
const exitUsage = 64

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) == 0 {
		return usage()
	}
	verb, rest := args[0], args[1:]
	var err error
	switch verb {
	case "init":
		var code int
		if code, err = runInit(rest); err == nil {
			return code
		}
	case "serve":
		err = serve(os.Stdin, os.Stdout)
	case "pty":
		var code int
		if code, err = runTerminal(); err == nil {
			return code
		}
	case "attend":
		err = attend(os.Stdin, os.Stdout)
	case "clear":
		err = clearDir(rest)
	case "home":
		err = settleHome()
	case "jobs":
		err = jobs(os.Stdin, os.Stdout)
	case "posture":
		err = posture(os.Stdout, rest)
	case "push":
		err = push(rest, os.Stdin, os.Stdout)
	case "pull":
		err = pull(rest, os.Stdout)
	case "ps":
		err = listProcesses(os.Stdout)
	case "terms":
		err = knownTerms(os.Stdin, os.Stdout)
	default:
		return usage()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "runner %s: %v\n", verb, err)
		return 1
	}
	return 0
}

func usage() int {
	fmt.Fprintln(os.Stderr, "usage: runner init|serve|pty|attend|clear|home|jobs|posture|push|pull|ps|terms")
	return exitUsage
}
