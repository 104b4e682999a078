package main

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

const (
	// rare says that slow baselines take part in every 30th round only.
	rare = 30
	// teardown is how long an engine needs to remove an exec or a container.
	teardown = 100 * time.Millisecond
)

// echo compares a command in a warm session with a local bash and with an exec of the engine.
func echo(ctx context.Context, l *lab) (rows []row, err error) {
	err = l.with(ctx, sandbox.Options{}, func(s *sandbox.Session) error {
		got, err := interleave(ctx, l.sizes.echoes,
			contender{name: "ours", take: timed(greeting(s))},
			contender{name: "local", take: timed(local)},
			contender{name: "raw", take: timed(l.rawGreeting), every: rare, settle: teardown},
			contender{name: "cli", take: timed(dockerCLI("exec", l.plain, "bash", "-c", greet)), every: rare, settle: teardown},
		)
		ours, local, raw, cli := got["ours"], got["local"], got["raw"], got["cli"]
		rows = []row{
			slower("p50", ours.median(), local.median(), "local bash", goal{sense: atMost, limit: 1.3}),
			slower("p90", ours.quantile(0.9), local.quantile(0.9), "local bash", goal{}),
			slower("p99", ours.quantile(0.99), local.quantile(0.99), "local bash", goal{sense: atMost, limit: 3}),
			faster("p50", ours.median(), raw.median(), "raw exec API", goal{sense: atLeast, limit: 10}),
			faster("p50", ours.median(), cli.median(), "`docker exec`", goal{sense: atLeast, limit: 20}),
			slower("raw exec API, p50", raw.median(), local.median(), "local bash", goal{}),
			slower("docker CLI, p50", cli.median(), local.median(), "local bash", goal{}),
		}
		return err
	})
	return rows, err
}

// oneshot compares our command line with docker's, both in a running container.
func oneshot(ctx context.Context, l *lab) (rows []row, err error) {
	err = l.with(ctx, sandbox.Options{}, func(s *sandbox.Session) error {
		ours := func(ctx context.Context) error { return program(ctx, l.binary, "session", "exec", s.ID(), greet) }
		got, err := interleave(ctx, l.sizes.oneshots,
			contender{name: "ours", take: timed(ours), settle: teardown},
			contender{name: "cli", take: timed(dockerCLI("exec", l.plain, "bash", "-c", greet)), settle: teardown},
		)
		rows = []row{slower("`session exec ID 'echo hi'`, p50", got["ours"].median(), got["cli"].median(),
			"`docker exec`", goal{sense: atMost, limit: 1})}
		return err
	})
	return rows, err
}

// dockerRun is a docker command that starts a container for one greeting.
func (l *lab) dockerRun(network string) []string {
	return []string{
		"run", "--rm", "--label", label + "=" + l.mark, "--network", network, "--entrypoint", "bash", string(l.img.ID), "-c", greet,
	}
}

// answered returns the time until docker shows the container's output. Docker then also waits
// for the removal of the container, which is not counted.
func (l *lab) answered(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	at, err := firstOutput(ctx, "docker", l.dockerRun("bridge")...)
	return at.Sub(begin), err
}

// started returns the time from nothing to the first result. The end of the session is not
// counted.
func (l *lab) started(e *sandbox.Engine) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (d time.Duration, err error) {
		begin := time.Now()
		s, err := l.session(ctx, e)
		if err != nil {
			return 0, err
		}
		err = greeting(s)(ctx)
		d = time.Since(begin)
		if stop := s.Stop(context.WithoutCancel(ctx)); err == nil {
			err = stop
		}
		return d, err
	}
}

// start compares sessions with `docker run`. That command returns after its container was
// removed, while the library answers before. So the library is also compared with the time
// of docker's output.
func start(ctx context.Context, l *lab) ([]row, error) {
	e := l.engine(sandbox.Options{})
	ours := func(ctx context.Context) error { return program(ctx, l.binary, "run", "--image", l.image, greet) }
	got, err := interleave(ctx, l.sizes.starts,
		contender{name: "library", take: l.started(e), settle: teardown},
		contender{name: "run", take: timed(ours), settle: teardown},
		contender{name: "docker", take: timed(dockerCLI(l.dockerRun("bridge")...)), settle: teardown},
		contender{name: "output", take: l.answered, settle: teardown},
		contender{name: "no network", take: timed(dockerCLI(l.dockerRun("none")...)), settle: teardown},
	)
	library, run := got["library"].median(), got["run"].median()
	docker, output, none := got["docker"].median(), got["output"].median(), got["no network"].median()
	g := goal{sense: atMost, limit: 1.3}
	return []row{
		slower("library, start and first result, p50", library, docker, "`docker run --rm`", g),
		slower("library, start and first result, p50", library, output, "`docker run --rm`, until its output", goal{}),
		slower("`sandboxbash run`, p50", run, docker, "`docker run --rm`", g),
		slower("`sandboxbash run`, p50", run, none, "`docker run --rm --network none`", goal{}),
	}, err
}

// warm compares the start of a prepared session with `docker run`.
func warm(ctx context.Context, l *lab) ([]row, error) {
	e := l.engine(sandbox.Options{Ahead: 1, Warm: 1})
	ours := func(ctx context.Context) (time.Duration, error) {
		if err := e.Warm(ctx, l.spec()); err != nil {
			return 0, err
		}
		return l.started(e)(ctx)
	}
	got, err := interleave(ctx, l.sizes.starts,
		contender{name: "ours", take: ours, settle: teardown},
		contender{name: "docker", take: timed(dockerCLI(l.dockerRun("bridge")...)), settle: teardown},
	)
	return []row{faster("library, prepared session to first result, p50", got["ours"].median(), got["docker"].median(),
		"`docker run --rm`", goal{sense: atLeast, limit: 10})}, err
}

const (
	crew     = 16 // workers
	sessions = 4
)

// workers compares many commands at once with as many local ones.
func workers(ctx context.Context, l *lab) (rows []row, err error) {
	e := l.engine(sandbox.Options{Ahead: crew / sessions})
	var all []*sandbox.Session
	defer func() {
		for _, s := range all {
			if stop := s.Stop(context.WithoutCancel(ctx)); err == nil {
				err = stop
			}
		}
	}()
	for range sessions {
		s, err := l.session(ctx, e)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	ours := func(ctx context.Context, worker int) error { return greeting(all[worker%sessions])(ctx) }
	got, err := interleave(ctx, l.sizes.storms,
		contender{name: "ours", take: timed(l.storm(ours))},
		contender{name: "local", take: timed(l.storm(func(ctx context.Context, _ int) error { return local(ctx) }))},
	)
	amount := work{float64(l.sizes.operations), "commands"}
	return []row{rate("`echo hi`", amount, got["ours"].median(), got["local"].median(),
		"local bash, 16 workers", goal{sense: atLeast, limit: 0.6})}, err
}

// storm shares all operations among the workers.
func (l *lab) storm(do func(ctx context.Context, worker int) error) func(context.Context) error {
	return func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for worker := range crew {
			group.Go(func() error {
				for range l.sizes.operations / crew {
					if err := do(ctx, worker); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return group.Wait()
	}
}
