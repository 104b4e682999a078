package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sandboxbash/sandboxbash/e2e/processes"
)

// leaks runs many commands one after the other in one session, and checks what has grown.
func leaks(ctx context.Context, l *lab) (s section, err error) {
	s = section{title: "Leaks: commands", text: "One `serve rpc` runs commands one after the other in one session; one command in ten leaves a child, and one in ten fails. " +
		lookedAt + " Within the process, the packages' own tests look for goroutines with goleak."}
	if err := sequence(ctx, l, &s); err != nil {
		return s, err
	}
	return s, s.err()
}

// lookedAt explains on the page how leaks are found.
const lookedAt = "Leaks are looked for from outside: in /proc, in the engine's own figures, and in the stacks that a server writes at SIGQUIT, compared with those of a server " +
	"that has done little. Memory is resident memory at rest, after a tenth of the work and after all of it; garbage collection and caches make it vary."

// growth bounds the ratio of a figure at the end to the same figure before.
const growth = 1.25

// pooled is how many idle connections to the engine a process of ours may keep; each
// has two goroutines.
const pooled = 12

// slackFiles is how many more descriptors than before an engine may have open.
const slackFiles = 10

// slackBytes is by how much a small amount of memory may grow. Heaps grow in such steps.
const slackBytes = 8 << 20

// footprint is what engine, server and session hold at one moment.
type footprint struct {
	execs              int // that the engine remembers of the container
	goroutines         int // of the engine
	engineFiles        kinds
	files              int // of the server
	engineRSS, oursRSS int64
	shimRSS, initRSS   int64
}

// look returns a footprint. session may be nil.
func (l *lab) look(ctx context.Context, one *server, session *session) (f footprint, err error) {
	info, err := l.docker(ctx, "info", "--format", "{{.NGoroutines}}")
	if err != nil {
		return f, err
	}
	if _, err := fmt.Sscan(info, &f.goroutines); err != nil {
		return f, fmt.Errorf("docker info: %q: %w", info, err)
	}
	if one != nil {
		f.files, f.oursRSS = descriptors(one.cmd.Process.Pid), memory(one.cmd.Process.Pid)
	}
	daemon := l.daemon(ctx)
	f.engineRSS, f.engineFiles = memory(daemon), descriptorKinds(daemon)
	if session == nil {
		return f, nil
	}
	state, err := l.docker(ctx, "inspect", "--format", "{{.State.Pid}} {{len .ExecIDs}}", session.container)
	if err != nil {
		return f, err
	}
	var init int
	if _, err := fmt.Sscan(state, &init, &f.execs); err != nil {
		return f, fmt.Errorf("docker inspect: %q: %w", state, err)
	}
	f.initRSS, f.shimRSS = memory(init), memory(processes.Status(init, "PPid"))
	if f.shimRSS == 0 || f.engineRSS == 0 {
		return f, errors.New("the engine's processes are not to be seen: does it run on this machine?")
	}
	return f, nil
}

// daemon returns the pid of the engine: the parent of the containerd that names its root
// directory, or else the process that its pid file names. It returns 0 if there is none.
func (l *lab) daemon(ctx context.Context) int {
	root, err := l.docker(ctx, "info", "--format", "{{.DockerRootDir}}")
	if err != nil {
		return 0
	}
	var unnamed int
	for _, p := range processes.All() {
		name, _, _ := strings.Cut(p.Command(), " ")
		if name[strings.LastIndexByte(name, '/')+1:] != "dockerd" {
			continue
		}
		if strings.Contains(p.Command(), root) {
			return p.PID
		}
		if !strings.Contains(p.Command(), "--data-root") {
			unnamed = p.PID
		}
	}
	return unnamed
}

// sequence runs commands one after the other.
func sequence(ctx context.Context, l *lab, s *section) (err error) {
	one, err := l.serve(ctx, "GOTRACEBACK=all")
	if err != nil {
		return err
	}
	defer one.kill() // it has ended by then, unless something failed
	made, err := one.startSession(ctx)
	if err != nil {
		return err
	}
	n, early := l.sizes.sequential, l.sizes.sequential/10
	var times []time.Duration
	var before footprint
	wrong := 0
	for i := range n {
		if i == early {
			if before, err = l.lookAtRest(ctx, one, made, nil); err != nil {
				return err
			}
		}
		if i%1000 == 999 {
			l.say("leaks: %d commands", i+1)
		}
		a, err := one.oneOfMany(ctx, made.id, fmt.Sprintf("seq-%x-%d", l.seed, i), i)
		if err != nil {
			return err
		}
		times = append(times, a.took)
		if a.problem != "" {
			wrong++
			s.fail("command %d: %s", i, a.problem)
		}
	}
	after, err := l.lookAtRest(ctx, one, made, &before)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%d commands: ", n)
	s.count(what+"with another outcome than the true one", wrong, 0)
	edge := max(1, min(1000, n/10))
	first, last := percentile(times[:edge:edge], 99), percentile(times[n-edge:], 99)
	s.tell(what+fmt.Sprintf("p99 of the first and of the last %d", edge), "%s, %s (× %.2f)",
		first.Round(10*time.Microsecond), last.Round(10*time.Microsecond), float64(last)/float64(first))
	s.limit(what+"exec ids that the engine remembers, more than before", float64(after.execs-before.execs), 2)
	s.compare(what, before, after, plainGrowth{})
	s.rss(what+"memory of the container's shim", before.shimRSS, after.shimRSS)
	s.rss(what+"memory of PID 1", before.initRSS, after.initRSS)
	stacks := one.stacks()
	fresh, err := l.freshStacks(ctx)
	if err != nil {
		return err
	}
	s.limit(what+fmt.Sprintf("goroutines of ours (after one command: %d)", fresh), float64(stacks), float64(fresh+2*pooled))
	if left, err := l.endSession(ctx, made); err != nil {
		return fmt.Errorf("%w: %s", err, left)
	}
	return nil
}

// endSession stops a session whose server was killed.
func (l *lab) endSession(ctx context.Context, made *session) (string, error) {
	return l.cli(ctx, "session", "stop", made.id)
}

// oneOfMany runs one command; of every ten one fails and one leaves a child.
func (s *server) oneOfMany(ctx context.Context, session, nonce string, i int) (answer, error) {
	script, code := "echo "+nonce, 0
	switch i % 10 {
	case 3:
		script, code = script+"; exit 7", 7
	case 6:
		script += "; sleep 0.2 >/dev/null 2>&1 &"
	}
	start := time.Now()
	r, err := s.bash(ctx, session, script)
	a := answer{took: time.Since(start)}
	if err != nil {
		return a, err
	}
	got, _, _ := strings.Cut(r.Text, "\n")
	if got != nonce || r.IsError != (code != 0) || code != 0 && (r.Details.ExitCode == nil || *r.Details.ExitCode != code) {
		a.problem = fmt.Sprintf("%q, exit code %v", cut(r.Text), r.Details.ExitCode)
	}
	return a, nil
}

// compare judges the growth of the engine and of our process, compared with how an engine
// grows without us. Each connection that we hold open also takes a descriptor of the engine.
func (s *section) compare(what string, before, after footprint, plain plainGrowth) {
	s.limit(what+"open descriptors of ours, more than before", float64(after.files-before.files), pooled)
	s.limit(what+"open descriptors of the engine, more than before"+after.engineFiles.since(before.engineFiles),
		float64(after.engineFiles.sum()-before.engineFiles.sum()), float64(plain.files+max(0, after.files-before.files)+slackFiles))
	s.limit(what+"goroutines of the engine, more than before", float64(after.goroutines-before.goroutines), float64(plain.goroutines+20))
	s.rss(what+"memory of ours", before.oursRSS, after.oursRSS)
	s.rss(what+"memory of the engine", before.engineRSS+plain.rss, after.engineRSS)
}

// rss judges a process's memory.
func (s *section) rss(what string, before, after int64) {
	const mib = 1 << 20
	text := fmt.Sprintf("%.1f MiB, before %.1f", float64(after)/mib, float64(before)/mib)
	most := max(float64(before)*growth, float64(before)+slackBytes)
	s.rows = append(s.rows, row{what, text, fmt.Sprintf("≤ %.1f MiB", most/mib)})
	if float64(after) > most {
		s.fail("%s: %s", what, text)
	}
}

var goroutine = regexp.MustCompile(`(?m)^goroutine (\d+) `)

// stacks makes the server write the stacks of its goroutines, which also ends it, and counts
// them.
func (s *server) stacks() int {
	_ = s.cmd.Process.Signal(syscall.SIGQUIT)
	<-s.done
	_ = s.cmd.Wait()
	seen := map[string]bool{}
	for _, m := range goroutine.FindAllStringSubmatch(s.stderr.String(), -1) {
		if n, err := strconv.Atoi(m[1]); err == nil && n > 0 { // 0 is the one of the signal
			seen[m[1]] = true
		}
	}
	return len(seen)
}

// freshStacks counts the goroutines of a server with one session that has run one command.
func (l *lab) freshStacks(ctx context.Context) (int, error) {
	one, err := l.serve(ctx, "GOTRACEBACK=all")
	if err != nil {
		return 0, err
	}
	defer one.kill()
	made, err := one.startSession(ctx)
	if err != nil {
		return 0, err
	}
	if _, err := one.bash(ctx, made.id, "echo hi"); err != nil {
		return 0, err
	}
	time.Sleep(2 * time.Second) // as before the other count
	n := one.stacks()
	if n == 0 {
		return 0, errors.New("a server shows no stacks at SIGQUIT")
	}
	_, err = l.endSession(ctx, made)
	return n, err
}
