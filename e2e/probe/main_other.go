//go:build !linux

// Command probe runs in Linux containers only.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "probe: this program runs in Linux containers; build it with GOOS=linux")
	os.Exit(2)
}
