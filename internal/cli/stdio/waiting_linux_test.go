package stdio

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/sandboxbash/sandboxbash/sink"
)

func noSecrets() *sink.Secrets { return nil }

// terminal is one whose other side is not read.
func terminal(t *testing.T) *os.File {
	t.Helper()
	keys, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = tty.Close()
		_ = keys.Close()
	})
	return tty
}

// seen is what a terminal of 30 columns has shown.
type seen struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (s *seen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func watch(t *testing.T) (tty *os.File, all *seen) {
	t.Helper()
	keys, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = tty.Close()
		_ = keys.Close()
	})
	if err := pty.Setsize(keys, &pty.Winsize{Rows: 10, Cols: 30}); err != nil {
		t.Fatal(err)
	}
	read := &seen{}
	go func() {
		buf := make([]byte, 1<<10)
		for {
			n, err := keys.Read(buf)
			read.mu.Lock()
			read.text.Write(buf[:n])
			read.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return tty, read
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what + " has not come")
		}
	}
}

// A line says what is waited for, from the first second on, makes room for other lines, and goes.
func TestWaiting(t *testing.T) {
	t.Parallel()
	tty, all := watch(t)
	s := New(nil, &bytes.Buffer{}, tty, noSecrets)
	began := time.Now()
	w := s.Waiting("copying\x1b[31m a directory with a long name")
	if s.Waiting("something else") != nil {
		t.Error("two waits are shown at once")
	}
	eventually(t, "the line", func() bool { return strings.Contains(all.String(), "\r\x1b[Kcopying a directory with a l…") })
	if took := time.Since(began); took < waitPatience {
		t.Errorf("it is shown after %v", took)
	}
	w.Say("copying 2 of 3")
	eventually(t, "the change", func() bool { return strings.HasSuffix(all.String(), "\r\x1b[Kcopying 2 of 3…") })
	fmt.Fprintln(s.Stderr, "a note")
	if err := s.Stderr.(*Masked).End(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the note", func() bool { return strings.Contains(all.String(), "copying 2 of 3…\r\x1b[Ka note\r\n") })
	eventually(t, "the line below it", func() bool { return strings.HasSuffix(all.String(), "a note\r\n\r\x1b[Kcopying 2 of 3…") })
	w.Done()
	w.Done()
	w.Say("too late")
	if _, err := tty.WriteString("."); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end", func() bool { return strings.HasSuffix(all.String(), "…\r\x1b[K.") })
	again := s.Waiting("again")
	if again == nil {
		t.Error("no other wait can begin")
	}
	again.Done()
}

// What is over within a second is not shown, and nothing is without a terminal.
func TestWaitingShort(t *testing.T) {
	t.Parallel()
	tty, all := watch(t)
	s := New(nil, &bytes.Buffer{}, tty, noSecrets)
	s.Waiting("soon over").Done()
	if _, err := tty.WriteString("."); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end", func() bool { return all.String() == "." })
	var errs bytes.Buffer
	w := New(nil, &bytes.Buffer{}, &errs, noSecrets).Waiting("x")
	if w != nil {
		t.Error("a wait is shown in a pipe")
	}
	w.Say("y")
	w.Done()
}
