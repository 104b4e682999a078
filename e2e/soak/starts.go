package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// starts starts and stops many sessions, and checks what has grown.
func starts(ctx context.Context, l *lab) (s section, err error) {
	s = section{title: "Leaks: sessions", text: "One `serve rpc` starts and stops sessions, four at a time, with a command in each. " + lookedAt +
		" What the engine keeps after Docker's own command line has started, used and removed as many plain containers is not counted against us."}
	if err := startsAndStops(ctx, l, &s); err != nil {
		return s, err
	}
	return s, s.err()
}

// startsAndStops starts and stops sessions.
func startsAndStops(ctx context.Context, l *lab, s *section) (err error) {
	one, err := l.serve(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, one.close()) }()
	n := l.sizes.starts
	var before footprint
	var things []string
	if things, err = l.things(ctx); err != nil {
		return err
	}
	wrong := l.cycles(ctx, one, s, max(2, n/10))
	if before, err = l.lookAtRest(ctx, one, nil, nil); err != nil {
		return err
	}
	wrong += l.cycles(ctx, one, s, n-max(2, n/10))
	after, err := l.lookAtRest(ctx, one, nil, &before)
	if err != nil {
		return err
	}
	left, err := l.things(ctx)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%d starts and stops: ", n)
	s.count(what+"that went wrong", wrong, 0)
	s.count(what+"containers and volumes of ours, more than before", len(left)-len(things), 0)
	plain, err := l.plainStarts(ctx, n)
	if err != nil {
		return err
	}
	s.tell(fmt.Sprintf("%d plain containers, by Docker's command line: descriptors, goroutines and memory of the engine, more than before", n),
		"%+d%s, %+d, %+.1f MiB", plain.files, plain.kinds, plain.goroutines, float64(plain.rss)/(1<<20))
	s.compare(what, before, after, plain)
	return nil
}

// plainGrowth is how much an engine grows without us.
type plainGrowth struct {
	files, goroutines int
	rss               int64
	kinds             string
}

// plainStarts starts containers, runs a command in each, and removes them, with Docker's own
// command line. It does that as often, and as many at a time, as the sessions. The growth of
// the engine by that is not counted against us.
func (l *lab) plainStarts(ctx context.Context, n int) (g plainGrowth, err error) {
	image, err := l.docker(ctx, "images", "--quiet", "--filter", "label=sandboxbash.role=host")
	if err != nil {
		return g, err
	}
	image, _, _ = strings.Cut(image, "\n")
	early := max(2, n/10)
	err = l.plainCycles(ctx, image, early)
	before, lookErr := l.lookAtRest(ctx, nil, nil, nil)
	if err = errors.Join(err, lookErr); err != nil {
		return g, err
	}
	err = l.plainCycles(ctx, image, n-early)
	after, lookErr := l.lookAtRest(ctx, nil, nil, &before)
	return plainGrowth{
		files: max(0, after.engineFiles.sum()-before.engineFiles.sum()), goroutines: max(0, after.goroutines-before.goroutines),
		rss: max(0, after.engineRSS-before.engineRSS), kinds: after.engineFiles.since(before.engineFiles),
	}, errors.Join(err, lookErr)
}

func (l *lab) plainCycles(ctx context.Context, image string, n int) error {
	return fourAtATime(ctx, n, func(int) error {
		id, err := l.docker(ctx, "run", "--detach", "--network", "none", "--entrypoint", "/bin/sleep", image, "100")
		if err != nil {
			return err
		}
		_, err = l.docker(ctx, "exec", id, "/bin/true")
		_, removeErr := l.docker(context.WithoutCancel(ctx), "rm", "--force", "--volumes", id)
		return errors.Join(err, removeErr)
	})
}

// fourAtATime does something n times and joins the errors.
func fourAtATime(ctx context.Context, n int, do func(i int) error) error {
	next := make(chan int)
	go func() {
		defer close(next)
		for i := range n {
			select {
			case next <- i:
			case <-ctx.Done():
				return
			}
		}
	}()
	var mu sync.Mutex
	var errs []error
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	return errors.Join(errs...)
}

// cycles starts a session, runs a command and stops it, again and again.
func (l *lab) cycles(ctx context.Context, one *server, s *section, n int) (wrong int) {
	var mu sync.Mutex
	done := 0
	_ = fourAtATime(ctx, n, func(int) error { // the section has the errors
		err := cycle(ctx, one)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			wrong++
			s.fail("a start and a stop: %v", err)
		}
		if done++; done%100 == 0 {
			l.say("leaks: %d sessions", done)
		}
		return err
	})
	return wrong
}

func cycle(ctx context.Context, one *server) error {
	made, err := one.startSession(ctx)
	if err != nil {
		return err
	}
	r, err := one.bash(ctx, made.id, "echo "+made.id)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(r.Text, made.id+"\n") {
		return fmt.Errorf("session %s says %q", made.id, cut(r.Text))
	}
	return one.call(ctx, "session/stop", map[string]any{"session": made.id}, nil)
}

// lookAtRest returns a footprint after both sides have closed idle connections. It waits for
// the lab's rest and then, while the engine has too many more descriptors open than before,
// up to fullRest. before is nil for the first footprint.
func (l *lab) lookAtRest(ctx context.Context, one *server, in *session, before *footprint) (footprint, error) {
	sleep(ctx, l.sizes.rest)
	for until := time.Now().Add(fullRest); ; sleep(ctx, time.Second) {
		f, err := l.look(ctx, one, in)
		if err != nil || before == nil || f.engineFiles.sum() <= before.engineFiles.sum()+slackFiles || time.Now().After(until) {
			return f, err
		}
	}
}
