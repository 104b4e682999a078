package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// contender is one way of doing a thing.
type contender struct {
	name string
	// every is how rare it is: it takes part in each such round. 0 is 1.
	every int
	// settle is a pause after it, so that what it leaves to the engine to clear
	// away is not charged to the next.
	settle time.Duration
	// take does the thing once and says how long it took.
	take func(ctx context.Context) (time.Duration, error)
}

// timed makes a take of something that is measured as a whole.
func timed(do func(ctx context.Context) error) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		begin := time.Now()
		err := do(ctx)
		return time.Since(begin), err
	}
}

// samples are what one contender took, in the order of taking.
type samples []time.Duration

// quantile returns the value that the part q of the samples does not exceed, by
// the nearest rank. It is 0 without samples.
func (s samples) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := int(q*float64(len(sorted)) + 0.999999) // rounded up, but for the error of the product
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func (s samples) median() time.Duration { return s.quantile(0.5) }

// interleave lets the contenders take turns for so many rounds, after one round
// that does not count. Each round begins with another of them, so that none is
// always behind the same.
func interleave(ctx context.Context, rounds int, all ...contender) (map[string]samples, error) {
	taken := map[string]samples{}
	for round := range rounds + 1 {
		for i := range all {
			c := all[(i+round)%len(all)]
			if c.every > 1 && round%c.every != 0 {
				continue
			}
			d, err := c.take(ctx)
			if err != nil {
				return taken, fmt.Errorf("%s, round %d: %w", c.name, round, err)
			}
			if round > 0 {
				taken[c.name] = append(taken[c.name], d)
			}
			if err := pause(ctx, c.settle); err != nil {
				return taken, err
			}
		}
	}
	return taken, nil
}

// pause waits, or returns the cause of ctx's end.
func pause(ctx context.Context, d time.Duration) error {
	if d > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
	return context.Cause(ctx)
}
