//go:build linux

package user

import (
	"os"
	"path/filepath"
	"testing"
)

// A home is made, is its user's alone, and lets git commit; what an image has put there
// stays.
func TestHome(t *testing.T) {
	const own = "[user]\n\tname = image\n"
	for _, row := range []struct {
		name    string
		prepare func(home string) error
		git     string // of .gitconfig; "" for an error
	}{
		{"none", func(string) error { return nil }, gitIdentity},
		{"open to all", func(home string) error { return os.MkdirAll(home, 0o777) }, gitIdentity},
		{"with settings", func(home string) error {
			if err := os.MkdirAll(home, 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(own), 0o600)
		}, own},
		{"a file", func(home string) error { return os.WriteFile(home, nil, 0o600) }, ""},
		{"below a file", func(home string) error { return os.WriteFile(filepath.Dir(home), nil, 0o600) }, ""},
	} {
		parent := filepath.Join(t.TempDir(), "parent")
		home := filepath.Join(parent, "home")
		if row.name != "below a file" {
			if err := os.Mkdir(parent, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := row.prepare(home); err != nil {
			t.Fatal(err)
		}
		t.Setenv("HOME", home)
		temporary := t.TempDir()
		t.Setenv("TMPDIR", temporary)
		err := Home()
		if row.git == "" {
			if err == nil {
				t.Errorf("%s: Home() = nil; want an error", row.name)
			}
			continue
		}
		info, statErr := os.Stat(home)
		got, readErr := os.ReadFile(filepath.Join(home, ".gitconfig"))
		if err != nil || statErr != nil || info.Mode().Perm() != 0o700 || readErr != nil || string(got) != row.git {
			t.Errorf("%s: Home() = %v; mode %v, .gitconfig %q; want 0700 and %q", row.name, err, info.Mode(), got, row.git)
		}
		for _, dir := range []string{home, temporary} {
			if list, _ := filepath.Glob(filepath.Join(dir, "[0-9]*")); len(list) != 0 {
				t.Errorf("%s: it has left %v; want nothing", row.name, list)
			}
		}
	}
	// Where no temporary files can be made, most programs fail later and say less.
	t.Setenv("HOME", t.TempDir())
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	if err := Home(); err == nil {
		t.Error("Home() without a directory for temporary files = nil; want an error")
	}
}
