//go:build linux

// Command probe tries, from inside a container, what a confined command must not
// be able to do, and prints one line for each attempt: row, name, outcome. It is
// one half of the containment tests; the other is package expect, which says on
// the host what each outcome must be.
//
// It tests whether a thing can be reached and goes no further: system calls get
// arguments that the kernel refuses once it looks at them, files are opened and
// never written, signals are signal 0. An outcome is "allowed", the name of an
// errno such as EPERM, or a value without spaces.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// An attempt is one thing to try. Row is that of the threat model.
type attempt struct {
	row  string
	name string
	try  func() string
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	switch strings.Join(args, " ") {
	case "all":
		return all(stdout)
	case "true": // what attempts start to see whether they can
		return 0
	case "status": // the confinement of a child, for the attempts below
		fmt.Fprintf(stdout, "euid=%d,%s,%s,%s", os.Geteuid(), status("self", "CapEff"), status("self", "NoNewPrivs"), status("self", "Seccomp"))
		return 0
	default:
		fmt.Fprintln(stderr, "usage: probe all")
		return 2
	}
}

func all(stdout io.Writer) int {
	inherited := inheritedFiles() // before anything is opened here
	out := bufio.NewWriter(stdout)
	for _, a := range attempts(inherited) {
		outcome := a.try()
		if outcome == "" || strings.ContainsAny(outcome, " \t\r\n") {
			outcome = strings.Join(strings.Fields("odd: "+outcome), "_")
		}
		fmt.Fprintln(out, a.row, a.name, outcome)
		if err := out.Flush(); err != nil { // one line at a time: a killed probe shows where it was
			return 1
		}
	}
	return 0
}

// attempts are all there are, in the order of their lines.
func attempts(inherited string) []attempt {
	return slices.Concat(
		[]attempt{{"E19", "inherited-files", func() string { return inherited }}},
		identity(), kernel(), mounting(), spaces(), devices(), terminals(),
		sockets(), files(), processes(), limits(), network(),
	)
}
