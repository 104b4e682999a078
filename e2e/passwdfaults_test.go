package e2e

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// passwdBound is how long a command may take whose runner the engine cannot start:
// its timeout of 5 s, what the pool waits for a runner, and slack for a busy machine.
const passwdBound = 30 * time.Second

// maxGrowth is what an engine may grow by through a session's files, in KiB.
const maxGrowth = 50 << 10

// underPasswd is row L19: a session of profile dev, whose commands are its root,
// replaces /etc/passwd, which the engine reads at each exec. A call ends in bounded
// time with the true outcome, the engine does not grow, and the session can be
// stopped.
func underPasswd(t *testing.T, e *ownEngine) {
	t.Helper()
	for _, tt := range []struct{ name, make string }{
		{"nothing", `rm /etc/passwd`},
		{"a FIFO", `rm /etc/passwd && mkfifo /etc/passwd`},
		{"1 GiB without a line end", `truncate -s 1G /etc/passwd`},
		{"64 MiB of users", `yes someone:x:1:1::/:/bin/sh | head -c 64M >/etc/passwd`},
		{"garbage", `head -c 1M /dev/urandom >/etc/passwd`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id := e.run(t, "session", "start", "--profile", "dev")
			e.run(t, "session", "exec", id, tt.make)
			before := resident(t, e.PID())
			ctx, cancel := context.WithTimeout(t.Context(), passwdBound)
			defer cancel()
			out, err := e.try(ctx, "session", "exec", "--timeout", "5s", id, "echo here")
			if ctx.Err() != nil || (out != "here" || err != nil) && (out != "" || status(err) != 125) {
				t.Errorf("the command after it: %q, %v; want its output, or status 125, within %v", out, err, passwdBound)
			}
			if grown := resident(t, e.PID()) - before; grown > maxGrowth {
				t.Errorf("the engine has grown by %d KiB; want at most %d", grown, maxGrowth)
			}
			e.run(t, "session", "stop", id)
		})
	}
}

var residentLine = regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`)

// resident is what a process holds of memory, in KiB.
func resident(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := residentLine.FindSubmatch(text)
	if m == nil {
		t.Fatalf("no VmRSS in %q", text)
	}
	kib, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib
}
