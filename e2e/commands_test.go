package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// past is a deadline that is over.
var past = time.Unix(1, 0)

// commands of scripts, in addition to testscript's own:
//
//	status CODE PROGRAM [ARG...]    runs it; it must exit with just this status
//	took MIN MAX                    the last status or elapsed took so long
//	elapsed MAX PROGRAM [ARG...]    runs it; it must exit with 0 and not take longer
//	until MAX PROGRAM [ARG...]      runs it again and again until it exits with 0
//	session NAME [FLAG...]          starts a session; $NAME is its id
//	save NAME                       $NAME is the standard output without its last newline
//	[!] json KEY [[~|<|>] WANT]     the JSON on standard output has the key, with this value
//	json-save NAME KEY              $NAME is what is there
//	[!] no-processes PATTERN        no process in any container has it in its arguments or
//	                                environment; with ! waits for one
//	gone MAX PATTERN                as no-processes, but it may take so long
//	[!] asked PATTERN               the engine was asked for "METHOD PATH"
//	[!] docker ARG...               runs docker
//	sha256 FILE FILE|HASH           both are the same
//	kill-process SIGNAL PATTERN     signals the processes on the host that this script started; what it kills
//	                                has ended when it returns
//	workdir DIR                     makes a directory that commands can write as workspace
//	collector NAME FILE             $NAME is the address of a collector that writes what it gets to FILE
//	old-engine NAME VERSION         $NAME is the address of an engine of that API version
//	size FILE MIN [MAX]             a file's size in bytes
var commands = map[string]func(*testscript.TestScript, bool, []string){
	"status":       cmdStatus,
	"took":         cmdTook,
	"elapsed":      cmdElapsed,
	"until":        cmdUntil,
	"session":      cmdSession,
	"collector":    cmdCollector,
	"save":         cmdSave,
	"json":         cmdJSON,
	"json-save":    cmdJSONSave,
	"no-processes": cmdNoProcesses,
	"gone":         cmdGone,
	"asked":        cmdAsked,
	"docker":       cmdDocker,
	"sha256":       cmdSHA256,
	"kill-process": cmdKillProcess,
	"workdir":      cmdWorkdir,
	"size":         cmdSize,
	"old-engine":   cmdOldEngine,
}

type lastRun struct{}

// run is what the last status or elapsed has measured.
type run struct{ took time.Duration }

func usage(ts *testscript.TestScript, neg, ok bool, text string) {
	if neg || !ok {
		ts.Fatalf("usage: %s", text)
	}
}

// timed runs a program and returns its exit status, -1 if a signal ended it.
func timed(ts *testscript.TestScript, args []string) int {
	start := time.Now()
	err := ts.Exec(args[0], args[1:]...)
	last, ok := ts.Value(lastRun{}).(*run)
	if !ok {
		ts.Fatalf("the script runs without setup")
	}
	last.took = time.Since(start)
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return 0
	case !ended:
		ts.Fatalf("%s: %v", args[0], err)
	}
	return exit.ExitCode()
}

func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 2, "status CODE PROGRAM [ARG...]")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if got := timed(ts, args[1:]); got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

func cmdElapsed(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 2, "elapsed MAX PROGRAM [ARG...]")
	if got := timed(ts, args[1:]); got != 0 {
		ts.Fatalf("exit status %d, want 0", got)
	}
	cmdTook(ts, false, []string{"0s", args[0]})
}

func cmdTook(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "took MIN MAX")
	least, most := duration(ts, args[0]), duration(ts, args[1])
	last, _ := ts.Value(lastRun{}).(*run)
	if last.took < least || last.took > most {
		ts.Fatalf("took %v, want %v to %v", last.took, least, most)
	}
	ts.Logf("took %v", last.took)
}

func duration(ts *testscript.TestScript, text string) time.Duration {
	d, err := time.ParseDuration(text)
	ts.Check(err)
	return d
}

func cmdUntil(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 2, "until MAX PROGRAM [ARG...]")
	deadline := time.Now().Add(duration(ts, args[0]))
	for {
		err := ts.Exec(args[1], args[2:]...)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("not within %s: %v", args[0], err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func cmdSession(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 1, "session NAME [FLAG...]")
	ts.Check(ts.Exec("sandboxbash", append([]string{"session", "start"}, args[1:]...)...))
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

func cmdSave(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "save NAME")
	ts.Setenv(args[0], strings.TrimSuffix(ts.ReadFile("stdout"), "\n"))
}

func cmdNoProcesses(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: [!] no-processes PATTERN")
	}
	pattern, err := regexp.Compile(args[0])
	ts.Check(err)
	found := inContainers(pattern)
	if !neg {
		if len(found) > 0 {
			ts.Fatalf("still there: %v", found)
		}
		return
	}
	for deadline := time.Now().Add(time.Minute); len(found) == 0; found = inContainers(pattern) {
		if time.Now().After(deadline) {
			ts.Fatalf("no process matches %s", pattern)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func cmdGone(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "gone MAX PATTERN")
	pattern, err := regexp.Compile(args[1])
	ts.Check(err)
	deadline := time.Now().Add(duration(ts, args[0]))
	for found := inContainers(pattern); len(found) > 0; found = inContainers(pattern) {
		if time.Now().After(deadline) {
			ts.Fatalf("still there after %s: %v", args[0], found)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func cmdAsked(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: [!] asked PATTERN")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	p, ok := ts.Value(proxyKey{}).(*proxy)
	if !ok {
		ts.Fatalf("this script has no engine")
	}
	if calls := p.asked(); pattern.MatchString(calls) == neg {
		ts.Fatalf("the engine was asked:\n%s", calls)
	}
}

func cmdDocker(ts *testscript.TestScript, neg bool, args []string) {
	if err := ts.Exec("docker", args...); (err != nil) != neg {
		ts.Fatalf("docker: %v", err)
	}
}

func cmdSHA256(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "sha256 FILE FILE|HASH")
	want := args[1]
	if len(want) != 2*sha256.Size {
		want = hashFile(ts, want)
	}
	if got := hashFile(ts, args[0]); got != want {
		ts.Fatalf("sha256(%s) = %s; want %s", args[0], got, want)
	}
}

func hashFile(ts *testscript.TestScript, name string) string {
	h := sha256.New()
	if name == "stdout" || name == "stderr" {
		_, _ = io.WriteString(h, ts.ReadFile(name))
		return hex.EncodeToString(h.Sum(nil))
	}
	f, err := os.Open(ts.MkAbs(name))
	ts.Check(err)
	defer f.Close()
	_, err = io.Copy(h, f)
	ts.Check(err)
	return hex.EncodeToString(h.Sum(nil))
}

func cmdKillProcess(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "kill-process SIGNAL PATTERN")
	signals := map[string]syscall.Signal{
		"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL,
		"STOP": 19, "CONT": 18, // of linux, where engines run; other hosts' packages do not name them
	}
	sig, ok := signals[args[0]]
	usage(ts, neg, ok, "kill-process TERM|INT|HUP|KILL|STOP|CONT PATTERN")
	pattern, err := regexp.Compile(args[1])
	ts.Check(err)
	work := ts.Getenv("WORK")
	found := running(func(p process) bool { return p.of(work) && pattern.MatchString(p.Command()) })
	if len(found) == 0 {
		ts.Fatalf("this script runs no process that matches %s", pattern)
	}
	for _, p := range found {
		process, err := os.FindProcess(p.PID)
		ts.Check(err)
		ts.Check(process.Signal(sig))
	}
	for deadline := time.Now().Add(20 * time.Second); sig == syscall.SIGKILL && slices.ContainsFunc(found, process.holds); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("what was killed is still there after 20 s: %v", found)
		}
	}
}

// holds reports whether a process still has files and locks. A thread that was killed lets go of them at its own
// pace, and only then has it ended.
func (p process) holds() bool {
	dir := fmt.Sprintf("/proc/%d/", p.PID)
	stat, err := os.ReadFile(dir + "stat")
	threads, _ := os.ReadDir(dir + "task") // gone: none
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && (len(threads) > 1 || !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X"))
}

// workspaceUser is the default user of sessions.
const workspaceUser = 1000

func cmdWorkdir(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "workdir DIR")
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	if os.Getuid() != 0 {
		return // it is ours, and commands run as its owner
	}
	ts.Check(filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, workspaceUser, workspaceUser)
	}))
}

func cmdSize(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2 || len(args) == 3, "size FILE MIN [MAX]")
	info, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	least, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	most := least
	if len(args) == 3 {
		most, err = strconv.ParseInt(args[2], 10, 64)
		ts.Check(err)
	}
	if got := info.Size(); got < least || got > most {
		ts.Fatalf("%s has %d bytes; want %d to %d", args[0], got, least, most)
	}
}

// cmdOldEngine answers as an engine of an API version, and nothing else.
func cmdOldEngine(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "old-engine NAME VERSION")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Api-Version", args[1])
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"ApiVersion": %q, "MinAPIVersion": "1.12"}`, args[1])
	}))
	ts.Defer(server.Close)
	ts.Setenv(args[0], "tcp://"+server.Listener.Addr().String())
}
