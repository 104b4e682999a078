//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/creack/pty"
)

// maxPipe is the most that a pipe holds: /proc/sys/fs/pipe-max-size, which few raise.
const maxPipe = 1 << 20

// readRest reads what is in a pipe, without waiting for more.
func readRest(r *os.File, w io.Writer) {
	conn, err := r.SyscallConn()
	if err != nil {
		return
	}
	buffer := make([]byte, 64<<10)
	for rest := maxPipe; rest > 0; {
		n := 0
		err := conn.Read(func(fd uintptr) bool {
			n, err = syscall.Read(int(fd), buffer) // Go's pipes are non-blocking
			return true
		})
		if err != nil || n <= 0 {
			return
		}
		_, _ = w.Write(buffer[:n]) // never fails
		rest -= n
	}
}

// ownGroup gives a tool a process group, so that all of it can be killed.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills a tool with its process group.
func killGroup(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }

// interruptGroup sends SIGINT to a tool's process group, as Ctrl-C does.
func interruptGroup(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGINT) }

func exitCode(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}

// keyTimeout bounds the wait for the text before keys.
const keyTimeout = 20 * time.Second

// onTerminal makes a call on a terminal of 24 rows and 80 columns. All that the terminal shows is stdout.
func onTerminal(ctx context.Context, cmd *exec.Cmd, c call) answer {
	begin := time.Now()
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80}) // a session of its own, and so a group
	if err != nil {
		return answer{problem: err}
	}
	out := newStream()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(out, terminal) // EIO is its end
	}()
	stop := c.interrupt(cmd.Process)
	problem := typeKeys(ctx, terminal, out, c.typed)
	err = cmd.Wait()
	stop()
	a := ended(ctx, cmd, err, time.Since(begin))
	select {
	case <-done:
	case <-time.After(5 * drain): // its hang-up ends most of those who would hold it
	}
	terminal.Close()
	<-done
	a.take(out, newStream())
	if problem != nil {
		a.problem = fmt.Errorf("%w; it shows %s", problem, brief(a.stdout))
	}
	return a
}

// typeKeys types keys like a person at the terminal. If an awaited text does not come, it hangs up.
func typeKeys(ctx context.Context, terminal *os.File, out *stream, typed []Keys) error {
	from := 0
	for _, k := range typed {
		for deadline := time.Now().Add(keyTimeout); ; time.Sleep(20 * time.Millisecond) {
			shown := out.bytes()
			if at := bytes.Index(shown[from:], []byte(k.Wait)); at >= 0 {
				from += at + len(k.Wait)
				break
			}
			if time.Now().After(deadline) || ctx.Err() != nil {
				terminal.Close()
				return fmt.Errorf("the terminal does not show %q", k.Wait)
			}
		}
		if len(k.Resize) == 2 {
			if err := pty.Setsize(terminal, &pty.Winsize{Rows: uint16(k.Resize[0]), Cols: uint16(k.Resize[1])}); err != nil {
				return err
			}
		}
		if _, err := io.WriteString(terminal, k.Send); err != nil {
			return err
		}
	}
	return nil
}
