package main

import (
	"context"
	"os/exec"
	"slices"

	"golang.org/x/sync/errgroup"
)

// leftOut is the reason for not running a slow scenario.
const leftOut = "slow; --slow asks it"

// askTarget runs all scenarios on one target, and calls tell with each result.
func askTarget(ctx context.Context, t *Target, groups []Group, o options, tell func(Result)) map[string]Result {
	results := make(chan Result)
	go func() {
		defer close(results)
		unable := t.prepare(ctx)
		var asked []Scenario
		for _, g := range groups {
			for _, s := range g.Scenarios {
				switch {
				case unable != "":
					results <- Result{ID: s.ID, Outcome: NotRun, Detail: unable}
				case s.Slow && !o.slow:
					results <- Result{ID: s.ID, Outcome: NotRun, Detail: leftOut}
				default:
					asked = append(asked, s)
				}
			}
		}
		t.askAll(ctx, asked, o.jobs, results)
		t.tidy(ctx)
	}()
	all := make(map[string]Result)
	for res := range results {
		all[res.ID] = res
		tell(res)
	}
	return all
}

// askAll runs the scenarios, jobs of them at once. The slow ones come first, because they wait most.
// Those that list all things of the tool come last and one at a time, because others start and stop such
// things.
func (t *Target) askAll(ctx context.Context, asked []Scenario, jobs int, results chan<- Result) {
	turn := func(s Scenario) int {
		switch {
		case s.Left.Things:
			return 2
		case s.Slow:
			return 0
		}
		return 1
	}
	slices.SortStableFunc(asked, func(a, b Scenario) int { return turn(a) - turn(b) })
	var pool errgroup.Group
	pool.SetLimit(jobs)
	for _, s := range asked {
		if s.Left.Things {
			_ = pool.Wait() // of nil
			results <- try(ctx, t, s)
			continue
		}
		pool.Go(func() error {
			results <- try(ctx, t, s)
			return nil
		})
	}
	_ = pool.Wait() // of nil
}

// prepare makes the target ready. It returns why the target cannot run on this machine, or "".
func (t *Target) prepare(ctx context.Context) string {
	for _, program := range t.Needs {
		if _, err := exec.LookPath(program); err != nil {
			return "this machine has no " + program
		}
	}
	if t.Prepare == "" {
		return ""
	}
	argv, err := t.expand(t.Prepare, nil, nil)
	if err != nil {
		return err.Error()
	}
	if a := do(ctx, call{argv: argv, environ: t.Environ, bound: housekeeping}); a.problem != nil || a.late || a.code != 0 {
		return "it does not run on this machine: " + a.seen()
	}
	return ""
}

// tidy removes what prepare has created, even if prepare failed.
func (t *Target) tidy(ctx context.Context) {
	if t.Tidy == "" {
		return
	}
	argv, err := t.expand(t.Tidy, nil, nil)
	if err == nil { // an error is about this machine, not about the tool
		_ = do(context.WithoutCancel(ctx), call{argv: argv, environ: t.Environ, bound: housekeeping})
	}
}
