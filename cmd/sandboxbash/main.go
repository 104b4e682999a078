// Command sandboxbash runs shell commands in hardened, long-lived containers.
package main

import (
	"log/slog"
	"os"

	"github.com/sandboxbash/sandboxbash/internal/cli"
)

// version is set by the linker in releases; otherwise the module's is taken.
var version string

func main() {
	silence()
	os.Exit(cli.Main(version, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}

// silence discards what packages write to the process's default logger. HTTP clients of the standard library
// write texts of servers there, unmasked: the start of an answer that was not asked for.
func silence() { slog.SetDefault(slog.New(slog.DiscardHandler)) }
