package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/e2e/engines"
)

// fullDisk is the size of the disk of the engine in this test. It has room for an image and a
// volume of the host's programs, and for some sessions.
const fullDisk = "size=2g"

// Row L22, scenario 77: the engine's disk is full. No session is created in part. The existing
// session goes on and reports what it cannot do. When there is room again, everything works.
func TestEngineDiskFull(t *testing.T) {
	t.Parallel()
	needEngine(t)
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, fullDisk); err != nil {
		t.Skipf("a small disk for an engine: mount: %v", err)
	}
	t.Cleanup(func() { // when the engine is closed
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	e := newOwnEngine(t, engines.Options{DataRoot: filepath.Join(disk, "data")})
	l := newLedger(t, e.seat)
	if err := l.goesOn(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := e.things(t)
	filler := filepath.Join(disk, "filler")
	if err := fill(filler); err != nil {
		t.Fatal(err)
	}
	out, err := e.try(t.Context(), "session", "start", "--quiet=false")
	if got := status(errors.Unwrap(err)); got != 125 {
		t.Errorf("session start on a full disk = %q, %v; want exit status 125", out, err)
	}
	t.Logf("session start on a full disk: %v", err)
	d := e.tell(t, l.session, "echo works")
	if d.reason() != "exited" || d.Stdout != "works\n" {
		t.Errorf("a command on a full disk: %s, %q; want it to work", d.reason(), d.Stdout)
	}
	d = e.tell(t, l.session, "head -c 8M /dev/zero >/workspace/more || echo no room")
	if d.reason() != "exited" || d.Stdout != "no room\n" {
		t.Errorf("a command that needs the disk: %s, %q; want it told", d.reason(), d.Stdout)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := l.goesOn(t.Context()); err != nil {
		t.Error(err)
	}
	next := newLedger(t, e.seat)
	if err := next.goesOn(t.Context()); err != nil {
		t.Error(err)
	}
	next.stop(t)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Second) {
		e.run(t, "session", "reap")
		left := e.things(t)
		if slices.Equal(left, before) {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("there are %q; want what there was, %q", left, before)
			break
		}
	}
}

// fill writes until there is no room.
func fill(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	for _, size := range []int{1 << 20, 4 << 10} {
		block := bytes.Repeat([]byte{1}, size)
		for err == nil {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return errors.Join(err, f.Close())
		}
		err = nil
	}
	return f.Close()
}

// things are the names of the containers and volumes of an engine.
func (e *ownEngine) things(t *testing.T) []string {
	t.Helper()
	containers, err := e.Docker(t.Context(), "ps", "-a", "--format", "container {{.Names}}")
	volumes, err2 := e.Docker(t.Context(), "volume", "ls", "--format", "volume {{.Name}}")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	all := strings.Split(containers+"\n"+volumes, "\n")
	slices.Sort(all)
	return all
}

// tell runs a command and returns its outcome.
func (s seat) tell(t *testing.T, session, script string) (d told) {
	t.Helper()
	out, err := s.try(t.Context(), "session", "exec", "--json", session, script)
	if jsonErr := json.Unmarshal([]byte(out), &d); jsonErr != nil {
		t.Fatal(fmt.Errorf("%w, %w", jsonErr, err))
	}
	return d
}
