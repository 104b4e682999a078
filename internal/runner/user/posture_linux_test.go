package user

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// What is masked has nothing in it; a file that is not written to does not hold
// the report up.
func TestLook(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{"full": "x", "empty": ""} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(at("bare"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(at("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		at("full"): "something", at("empty"): "nothing", at("bare"): "nothing", dir: "something", at("fifo"): "nothing",
		at("none"): "nothing", "/dev/null": "nothing", "/dev/zero": "something",
	} {
		if got := readable(path); got != want {
			t.Errorf("readable(%s) = %s; want %s", path, got, want)
		}
	}
	if os.Getuid() == 0 {
		return // nothing is closed to uid 0
	}
	if err := os.Chmod(at("full"), 0); err != nil {
		t.Fatal(err)
	}
	if got := readable(at("full")); got != "closed" {
		t.Errorf("readable(a file without permissions) = %s; want closed", got)
	}
}
