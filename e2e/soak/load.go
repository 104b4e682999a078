package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// loadServers is how many servers share the sessions of the load. A server has at most 16
// sessions and 256 requests under way.
const loadServers = 5

// spoken is what a command of the load prints: lines that only it can have
// written, and a checksum of them.
const spoken = `n=%s; for i in {1..%d}; do t+="$n $i"$'\n'; done; printf %%s "$t"; printf %%s "$t" | sha256sum; exit %d`

const spokenLines = 40

// said returns the output that spoken must have.
func said(nonce string) string {
	var b strings.Builder
	for i := range spokenLines {
		fmt.Fprintf(&b, "%s %d\n", nonce, i+1)
	}
	return b.String() + fmt.Sprintf("%x  -\n", sha256.Sum256([]byte(b.String())))
}

// answer is the result of one command.
type answer struct {
	took    time.Duration
	problem string // "" if it had exactly its own output and its own code
	lost    bool   // there was no outcome
}

// ask runs a command of the load and checks its result.
func ask(ctx context.Context, s *server, session, nonce string, code int) answer {
	start := time.Now()
	r, err := s.bash(ctx, session, fmt.Sprintf(spoken, nonce, spokenLines, code))
	a := answer{took: time.Since(start)}
	got, _, _ := strings.Cut(r.Text, "\n\nWall time: ")
	switch {
	case err != nil:
		a.problem, a.lost = fmt.Sprintf("%s: %v", nonce, err), true
	case r.Details.Reason != "exited" && r.Details.Reason != "":
		a.problem = fmt.Sprintf("%s: ended as %q", nonce, r.Details.Reason)
	case code != 0 && (r.Details.ExitCode == nil || *r.Details.ExitCode != code):
		a.problem = fmt.Sprintf("%s: exit code %v; want %d", nonce, r.Details.ExitCode, code)
	case code == 0 && r.IsError:
		a.problem = fmt.Sprintf("%s: an error: %q", nonce, cut(r.Text))
	case strings.TrimRight(got, "\n") != strings.TrimRight(said(nonce), "\n"):
		a.problem = fmt.Sprintf("%s: output %q", nonce, cut(got))
	}
	return a
}

// load runs many commands at once, and many one after the other.
func load(ctx context.Context, l *lab) (s section, err error) {
	s = section{title: "Load", text: fmt.Sprintf("Every command prints %d lines with a nonce of its own and their checksum, and exits with a code of its own; the answer must "+
		"have just these. Commands at once are asked for over %d connections of `serve rpc`, all before the first answer is read; a session runs eight at a time and queues the others. "+
		"Latencies are from request to answer, queue included.", spokenLines, loadServers)}
	if err := together(ctx, l, &s); err != nil {
		return s, err
	}
	if err := inOne(ctx, l, &s); err != nil {
		return s, err
	}
	return s, s.err()
}

// together loads many sessions.
func together(ctx context.Context, l *lab, s *section) (err error) {
	var servers []*server
	defer func() {
		for _, one := range servers {
			err = errors.Join(err, one.close())
		}
	}()
	type loaded struct {
		server  *server
		session string
	}
	var mu sync.Mutex
	var sessions []loaded
	var starting sync.WaitGroup
	for i := range loadServers {
		one, err := l.serve(ctx)
		if err != nil {
			return err
		}
		servers = append(servers, one)
		starting.Go(func() {
			for range l.sizes.sessions / loadServers {
				made, err := one.startSession(ctx)
				mu.Lock()
				if err != nil {
					s.fail("server %d: start a session: %v", i, err)
				} else {
					sessions = append(sessions, loaded{one, made.id})
				}
				mu.Unlock()
			}
		})
	}
	starting.Wait()
	if len(sessions) != l.sizes.sessions {
		return s.err()
	}
	idle := 0
	for _, one := range servers {
		idle += descriptors(one.cmd.Process.Pid)
	}
	peak := watch(func() int {
		open := 0
		for _, one := range servers {
			open += descriptors(one.cmd.Process.Pid)
		}
		return open
	})
	answers := all(l.sizes.concurrent, func(n int) answer {
		p := sessions[n%len(sessions)]
		return ask(ctx, p.server, p.session, fmt.Sprintf("load-%x-%d", l.seed, n), n%250)
	})
	most := peak()
	what := fmt.Sprintf("%d at once over %d sessions", l.sizes.concurrent, len(sessions))
	judgeAnswers(s, what, answers)
	s.limit(what+": descriptors of ours at the peak, a command", float64(most-idle)/float64(len(answers)), 8)
	for _, one := range servers {
		for _, odd := range one.odds() {
			s.fail("%s: a message that should not be: %s", what, odd)
		}
	}
	return nil
}

// inOne loads one session.
func inOne(ctx context.Context, l *lab, s *section) (err error) {
	one, err := l.serve(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, one.close()) }()
	made, err := one.startSession(ctx)
	if err != nil {
		return err
	}
	answers := all(l.sizes.single, func(n int) answer {
		return ask(ctx, one, made.id, fmt.Sprintf("one-%x-%d", l.seed, n), n%250)
	})
	judgeAnswers(s, fmt.Sprintf("%d at once in one session", l.sizes.single), answers)
	return nil
}

// all does something many times at once.
func all(n int, do func(n int) answer) []answer {
	answers := make([]answer, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { answers[i] = do(i) })
	}
	wait.Wait()
	return answers
}

// watch samples something until the returned function is called, which returns the largest
// sample.
func watch(sample func() int) func() int {
	stop, done := make(chan struct{}), make(chan int)
	go func() {
		most := sample()
		for {
			select {
			case <-stop:
				done <- most
				return
			case <-time.After(20 * time.Millisecond):
				most = max(most, sample())
			}
		}
	}()
	return func() int {
		close(stop)
		return <-done
	}
}

func judgeAnswers(s *section, what string, answers []answer) {
	lost, wrong := 0, 0
	var times []time.Duration
	for _, a := range answers {
		times = append(times, a.took)
		if a.lost {
			lost++
		}
		if a.problem != "" {
			wrong++
			s.fail("%s: %s", what, a.problem)
		}
	}
	s.count(what+": without an outcome", lost, 0)
	s.count(what+": another's output, or not all of its own, or another code", wrong-lost, 0)
	s.tell(what+": p50, p99", "%s, %s", percentile(times, 50).Round(time.Millisecond), percentile(times, 99).Round(time.Millisecond))
}

// percentile returns a percentile by the nearest-rank method, 0 without times. It sorts its
// argument.
func percentile(times []time.Duration, p int) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[min(len(times)-1, len(times)*p/100)]
}
