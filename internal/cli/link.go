package cli

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxbash/sandboxbash/internal/cli/shellcmd"
)

// shellNames are names of this program under which it is a shell: that of a link, for what takes
// one path and no arguments.
var shellNames = []string{"sandboxbash-shell", "bash", "sh"}

// Words returns the words of a command line, of all that the process was started with. If it was
// started as a shell, by the name of a link to it, they are those of the command shell.
func Words(argv []string) []string {
	if len(argv) == 0 {
		return nil
	}
	name := strings.TrimPrefix(argv[0], "-") // login(1), sshd(8) and tmux(1) start a login shell so
	if !slices.Contains(shellNames, strings.TrimSuffix(filepath.Base(name), ".exe")) {
		return argv[1:]
	}
	return append([]string{"shell", shellcmd.LinkFlag + "=" + argv[0]}, argv[1:]...)
}
