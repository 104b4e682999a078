// Command sandboxbash runs shell commands in hardened, long-lived containers.
package main

import (
	"os"

	"github.com/sandboxbash/sandboxbash/internal/cli"
)

// version is set by the linker in releases; otherwise the module's is taken.
var version string

func main() { os.Exit(cli.Main(version, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr)) }
