//go:build linux

package user

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// terminfoDirs are where terminfo(5) keeps its files.
var terminfoDirs = []string{"/etc/terminfo", "/lib/terminfo", "/usr/lib/terminfo", "/usr/share/terminfo", "/usr/local/share/terminfo"}

// Terms answers with those of the names in the question that the image has a terminfo
// file for.
func Terms(stdin io.Reader, stdout io.Writer) error {
	b, err := io.ReadAll(io.LimitReader(stdin, wire.MaxTerms))
	if err != nil {
		return err
	}
	known := slices.DeleteFunc(wire.ParseTerms(b), func(name string) bool { return !knowsTerm(name) })
	_, err = stdout.Write(wire.AppendTerms(nil, known))
	return err
}

// knowsTerm looks for x/xterm, and for 78/xterm as systems have it whose file
// names know no case.
func knowsTerm(name string) bool {
	if name == "" || name != filepath.Base(name) || name[0] == '.' {
		return false
	}
	for _, dir := range terminfoDirs {
		for _, first := range []string{name[:1], fmt.Sprintf("%02x", name[0])} {
			if info, err := os.Stat(filepath.Join(dir, first, name)); err == nil && info.Mode().IsRegular() {
				return true
			}
		}
	}
	return false
}
