//go:build !linux

// Command sandboxbash-runner is the program inside a session's container; it
// runs on linux only.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "sandboxbash-runner runs inside a linux container only")
	os.Exit(1)
}
