//go:build unix

package servecmd_test

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/servecmd"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// What a server that was killed has left is removed by the next one; what belongs to one
// that runs, or has just begun, is not, and neither is what is not ours alone.
func TestScratchOfTheKilled(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	serve := func() (end func(kill bool)) {
		cmd := clitest.Process(t, "serve", "rpc")
		cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// When it answers, its directory is locked: one that is only made could be taken for a dead server's.
		if _, err := io.WriteString(in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocol":"1"}}`+"\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		return func(kill bool) {
			if kill {
				_ = cmd.Process.Kill()
			}
			_ = in.Close()
			_ = cmd.Wait() // killed, or at the end of its input
		}
	}
	dirs := func() []string {
		all, err := filepath.Glob(filepath.Join(tmp, "*"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	until := func(n int) []string {
		t.Helper()
		for range 6000 { // a minute
			if all := dirs(); len(all) == n {
				return all
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("there are %q; want %d", dirs(), n)
		return nil
	}
	age := func(dirs ...string) {
		t.Helper()
		hourAgo := time.Now().Add(-time.Hour)
		for _, dir := range dirs {
			if err := os.Chtimes(dir, hourAgo, hourAgo); err != nil {
				t.Fatal(err)
			}
		}
	}
	killed := serve()
	left := until(1)
	killed(true)
	if err := os.WriteFile(filepath.Join(left[0], "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	shared := filepath.Join(tmp, servecmd.ScratchPrefix+"shared")
	if err := os.Mkdir(shared, 0o755); err != nil { //nolint:gosec // others can reach it
		t.Fatal(err)
	}
	if err := os.Symlink(shared, filepath.Join(tmp, servecmd.ScratchPrefix+"link")); err != nil {
		t.Fatal(err)
	}
	running := serve()
	all := until(4) // the first is too young to be judged
	age(all...)
	last := serve()
	for range 6000 { // a minute; it has removed what it would when it has made its own
		if _, err := os.Stat(left[0]); err != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	until(4) // the one that runs, the last, and what is not ours alone
	last(false)
	if got := until(3); got[0] == left[0] || got[1] == left[0] || got[2] == left[0] {
		t.Errorf("%s is still there", left[0])
	}
	running(false)
	until(2)
}
