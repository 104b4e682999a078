//go:build linux

package user

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTerms(t *testing.T) {
	dir := t.TempDir()
	for _, file := range []string{"x/xterm", "76/vt100"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	defer func(old []string) { terminfoDirs = old }(terminfoDirs)
	terminfoDirs = []string{dir}
	var out bytes.Buffer
	names := "unknown\nxterm\n../x/xterm\nx/xterm\n\n.\n..\nvt100\n"
	if err := Terms(strings.NewReader(names), &out); err != nil || out.String() != "xterm\nvt100\n" {
		t.Errorf("Terms() = %q, %v; want xterm and vt100", out.String(), err)
	}
}
