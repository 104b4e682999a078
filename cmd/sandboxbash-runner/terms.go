//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// terminfoDirs are where terminfo(5) keeps its files.
var terminfoDirs = []string{"/etc/terminfo", "/lib/terminfo", "/usr/lib/terminfo", "/usr/share/terminfo", "/usr/local/share/terminfo"}

// knownTerms prints those of the names on standard input, one a line, that the
// image has a terminfo file for. It runs as the session's user.
func knownTerms(stdin io.Reader, stdout io.Writer) error {
	names := bufio.NewScanner(io.LimitReader(stdin, 4<<10))
	for names.Scan() {
		if name := names.Text(); knowsTerm(name) {
			if _, err := fmt.Fprintln(stdout, name); err != nil {
				return err
			}
		}
	}
	return names.Err()
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
