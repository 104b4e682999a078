package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Outcome is the outcome of a scenario for a target.
type Outcome string

// The outcomes. A tool fails only at what it offers and does wrong.
const (
	Pass Outcome = "pass"
	Fail Outcome = "fail"
	// NotOffered: the target has no template for it; or it was asked all the same, was not as it should be,
	// and is one of Target.Unclaimed.
	NotOffered Outcome = "not offered"
	// CannotAsk: it would harm this machine, or its outcome cannot be seen from here.
	CannotAsk Outcome = "cannot be asked"
	// NotRun: it was not tried, for a reason outside the scenario.
	NotRun Outcome = "not run"
)

// Result is the outcome of one scenario for a target, with the observation or the reason.
type Result struct {
	ID      string        `json:"id"`
	Outcome Outcome       `json:"outcome"`
	Detail  string        `json:"detail,omitempty"`
	Elapsed time.Duration `json:"elapsedNs"`
}

// askedAnyway separates the reason why a target does not offer a scenario from what it did.
const askedAnyway = "; asked all the same: "

// stepBound bounds a step that names no bound itself.
const stepBound = 60 * time.Second

// unasked is the error of a step that cannot be run on the target.
type unasked string

func (u unasked) Error() string { return string(u) }

// unoffered is the error of a step that needs a template which the target does not have.
type unoffered string

func (u unoffered) Error() string { return string(u) }

// failed is the error of a step whose result was wrong. Any error besides these two counts as such.
func failed(format string, args ...any) error { return fmt.Errorf(format, args...) }

// trial is one run of a scenario on a target.
type trial struct {
	target   *Target
	scenario Scenario
	marker   marker
	dir      string // of its own, on the host
	port     *port  // nil unless a step needs it
	watching func() bool

	mu       sync.Mutex
	sessions map[string]string // by the scenario's name for them; guarded by mu
	frozen   map[string]bool   // those that have been paused, by {session}; guarded by mu
	put      []byte            // the content of the last Put; guarded by mu
}

// try runs a scenario on a target. It ends everything that it has started or that the tool has left.
func try(ctx context.Context, t *Target, s Scenario) Result {
	begin := time.Now()
	err := attempt(ctx, t, s)
	r := Result{ID: s.ID, Outcome: Pass, Elapsed: time.Since(begin)}
	if lacks, ok := errors.AsType[unoffered](err); ok {
		r.Outcome, r.Detail = NotOffered, string(lacks)
	} else if cannot, ok := errors.AsType[unasked](err); ok {
		r.Outcome, r.Detail = CannotAsk, string(cannot)
	} else if ctx.Err() != nil {
		r.Outcome, r.Detail = NotRun, "interrupted"
	} else if err != nil {
		r.Outcome, r.Detail = Fail, err.Error()
		if why, ok := t.Unclaimed[s.ID]; ok {
			r.Outcome, r.Detail = NotOffered, why+askedAnyway+r.Detail
		}
	}
	return r
}

func attempt(ctx context.Context, t *Target, s Scenario) (err error) {
	if err := t.canAsk(s); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	tr := &trial{target: t, scenario: s, marker: newMarker(), dir: dir, sessions: make(map[string]string), frozen: make(map[string]bool)}
	if usesPort(s) {
		if tr.port, err = listen(); err != nil {
			return err
		}
		defer tr.port.close()
	}
	before, err := tr.list(ctx)
	if err != nil {
		return err
	}
	if s.watched() {
		tr.watching = tr.marker.watch()
	}
	defer tr.marker.end()
	err = tr.programs(ctx)
	for i, step := range s.Steps {
		if err != nil {
			break
		}
		if err = tr.repeat(ctx, step); err != nil && len(s.Steps) > 1 {
			err = fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	if stopping := tr.stopAll(ctx); err == nil {
		err = stopping
	}
	if tr.watching != nil {
		tr.watching()
	}
	if err == nil {
		err = tr.left(ctx, before)
	}
	return err
}

// canAsk returns an error that says what a target lacks for a scenario.
func (t *Target) canAsk(s Scenario) error {
	for _, b := range s.Bounds {
		if !slices.Contains(t.Bounds, b) {
			return unasked("the target does not bound its " + b + "; without that it would harm this machine")
		}
	}
	if s.Left.Things && t.List == "" {
		return unoffered("no template: list")
	}
	for _, step := range s.flat() {
		for name, template := range t.needs(step) {
			if template == "" {
				return unoffered("no template: " + name)
			}
		}
		for _, name := range []string{step.Want.Ended, step.Want.NotEnded} {
			if name != "" && t.Ends[name] == "" {
				return unoffered("the target does not say how it tells of this end: " + name)
			}
		}
		if step.Session != "" && t.Start == "" {
			return unoffered("no template: start")
		}
		if strings.Contains(step.Script, "{refused}") && t.Refuses == "" {
			return unoffered("the target refuses no command")
		}
		if t.JSON.Always && step.Want.SHA256+step.Want.Match != "" {
			return unasked("the target prints its output as text in JSON only")
		}
	}
	if len(s.Steps) > 1 && t.Start == "" {
		return unoffered("no template: start; each command has a session of its own")
	}
	return nil
}

// needs returns the templates that a step requires.
func (t *Target) needs(s Step) map[string]string {
	n := map[string]string{"run": t.Run}
	need := func(is bool, name, template string) {
		if is {
			n[name] = template
		}
	}
	need(s.Stop, "stop", t.Stop)
	need(s.Pause || s.Unpause, "pause", t.Pause)
	need(s.Pause || s.Unpause, "thaw", t.Thaw)
	need(s.Put != "", "put", t.Put)
	need(s.Get != "", "get", t.Get)
	need(s.Full, "full", t.Full)
	need(s.Timeout > 0, "timeout", t.Timeout)
	need(s.Stdin != nil, "stdin", t.Stdin)
	need(s.Type != nil, "tty", t.TTY)
	need(s.Env != nil, "env", t.Env)
	need(s.Cwd != "", "cwd", t.Cwd)
	if s.Args != nil && !strings.Contains(t.Run, "{args}") {
		n["args"] = ""
	}
	return n
}

// list returns the output of Target.List, or nil if the scenario does not need it.
func (tr *trial) list(ctx context.Context) ([]string, error) {
	if !tr.scenario.Left.Things {
		return nil, nil
	}
	a, err := tr.ask(ctx, tr.target.List, nil)
	if err != nil {
		return nil, err
	}
	lines := strings.Fields(string(a.stdout))
	slices.Sort(lines)
	return lines, nil
}

// ask makes a call other than a command. The call must succeed.
func (tr *trial) ask(ctx context.Context, template string, values map[string]string) (answer, error) {
	argv, err := tr.target.expand(template, values, nil)
	if err != nil {
		return answer{}, err
	}
	a := do(ctx, call{argv: argv, environ: tr.environ(), bound: housekeeping})
	if a.problem != nil || a.late || a.code != 0 {
		return a, failed("%s: %s", strings.Join(argv[:min(3, len(argv))], " "), a.seen())
	}
	return a, nil
}

func (tr *trial) environ() map[string]string {
	env := make(map[string]string)
	maps.Copy(env, tr.target.Environ)
	maps.Copy(env, tr.scenario.Plant)
	return env
}

// programs checks that the session has the programs that the scenario needs.
func (tr *trial) programs(ctx context.Context) error {
	if len(tr.scenario.Programs) == 0 {
		return nil
	}
	a, err := tr.command(ctx, Step{Script: "type " + strings.Join(tr.scenario.Programs, " ") + " >/dev/null 2>&1 && echo all || echo some"})
	switch {
	case err != nil || bytes.Contains(a.stdout, []byte("all")):
		return err
	case bytes.Contains(a.stdout, []byte("some")):
		return unasked("the session does not have all of: " + strings.Join(tr.scenario.Programs, " "))
	}
	return failed("cannot ask which programs there are: %s", a.seen())
}

// left checks what remains after the end of all sessions.
func (tr *trial) left(ctx context.Context, before []string) error {
	if tr.scenario.Left.Processes {
		if err := tr.gone(5 * time.Second); err != nil {
			return fmt.Errorf("after the end of the session: %w", err)
		}
	}
	if !tr.scenario.Left.Things {
		return nil
	}
	var more []string
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		after, err := tr.list(ctx)
		if err != nil {
			return err
		}
		more = slices.DeleteFunc(after, func(line string) bool { return slices.Contains(before, line) })
		if len(more) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return failed("left behind: %s", strings.Join(more, " "))
		}
	}
}

// gone judges by the processes with the marker.
func (tr *trial) gone(within time.Duration) error {
	left := tr.marker.gone(within)
	if tr.watching == nil || !tr.watching() {
		return unasked("its processes cannot be seen in this host's /proc")
	}
	if len(left) > 0 {
		return failed("still there: %d processes, as %q", len(left), left[sortedKeys(left)[0]])
	}
	return nil
}

// fillIn is like fill, and also replaces {work} by Target.Work of a session.
func (tr *trial) fillIn(s, session string) string {
	work := strings.ReplaceAll(cmp.Or(tr.target.Work, "/tmp"), "{session}", session)
	return tr.fill(strings.ReplaceAll(s, "{work}", work))
}

var letters = regexp.MustCompile(`\{x:([0-9]+)\}`)

// fill replaces {marker}, {x:N}, {port}, {hosts} and {refused} in a text of the scenario.
func (tr *trial) fill(s string) string {
	s = strings.ReplaceAll(s, "{marker}", string(tr.marker))
	s = strings.ReplaceAll(s, "{refused}", tr.target.Refuses)
	if tr.port != nil {
		s = strings.NewReplacer("{port}", tr.port.number, "{hosts}", strings.Join(tr.port.addresses, " ")).Replace(s)
	}
	return letters.ReplaceAllStringFunc(s, func(m string) string {
		n, _ := strconv.Atoi(letters.FindStringSubmatch(m)[1]) // it has digits only
		return strings.Repeat("x", n)
	})
}

func file(dir, name string, content []byte) (string, error) {
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, content, 0o644)
}
