package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// contender is one of several ways to do the same thing, which are compared.
type contender struct {
	name string
	// every says in which rounds it takes part: in every such round. 0 means 1.
	every int
	// settle is the pause after it, so that the engine's cleaning up does not slow down the
	// next contender.
	settle time.Duration
	// take does the thing once and returns how long it took.
	take func(ctx context.Context) (time.Duration, error)
}

// timed returns a take that measures all of do.
func timed(do func(ctx context.Context) error) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		begin := time.Now()
		err := do(ctx)
		return time.Since(begin), err
	}
}

// samples are the times of one contender, in order.
type samples []time.Duration

// quantile returns the q-quantile of the samples by the nearest-rank method, 0 without
// samples.
func (s samples) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := int(q*float64(len(sorted)) + 0.999999) // rounded up, except for rounding errors of the product
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func (s samples) median() time.Duration { return s.quantile(0.5) }

// interleave lets the contenders take turns for that many rounds, after one round that does
// not count. Each round starts with another contender, so that none always comes after the
// same one.
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
