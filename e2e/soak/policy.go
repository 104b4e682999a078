package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/policy/bashtest"
)

// againstBash has bash run scripts of a grammar, and checks that the policy has seen every
// command that ran in the scripts that it allows.
func againstBash(ctx context.Context, l *lab) (section, error) {
	s := section{
		title: "What bash runs and the policy has not seen",
		text: "Scripts are made of a grammar, by the seed: quotes, expansions, here-documents, comments, subscripts, functions, aliases, nested scripts. " +
			"Bash runs each in a directory of its own, with commands that only note how they were called. Every command that ran in a script which the policy allows must be one that it has seen. " +
			"A script on which the two differ is made smaller.",
	}
	p, _, err := policy.New(policy.Options{})
	if err != nil {
		return s, err
	}
	c := &comparison{lab: l, policy: p, section: &s}
	errs := make([]error, runtime.NumCPU())
	var work sync.WaitGroup
	for n := range errs {
		work.Go(func() { errs[n] = c.every(ctx, n, len(errs)) })
	}
	work.Wait()
	if err := errors.Join(errs...); err != nil {
		return s, err
	}
	s.tell("bash", "%s", c.version)
	s.tell("scripts", "%d", l.sizes.scripts)
	s.tell("that the policy allows", "%d", c.allowed)
	s.tell("commands that ran in them", "%d", c.commands)
	s.count("scripts that ran a command which was not seen", c.missed, 0)
	return s, s.err()
}

// comparison counts what the workers have found.
type comparison struct {
	lab    *lab
	policy *policy.Policy

	mu       sync.Mutex
	section  *section // guarded by mu, as is what follows
	version  string
	done     int
	allowed  int
	commands int
	missed   int
}

// every compares every step-th script, starting with the first.
func (c *comparison) every(ctx context.Context, first, step int) (err error) {
	b, err := bashtest.NewBash()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	version, err := b.Version(ctx)
	if err != nil {
		return err
	}
	for i := first; i < c.lab.sizes.scripts; i += step {
		script := bashtest.Generate(rand.New(rand.NewPCG(c.lab.seed, uint64(i))))
		m, known, ran, err := bashtest.Compare(ctx, c.policy, b, script)
		if err != nil {
			return err
		}
		if m != nil {
			m = bashtest.Shrink(ctx, c.policy, b, m)
		}
		c.add(i, m, known, ran)
	}
	c.mu.Lock()
	c.version = version
	c.mu.Unlock()
	return nil
}

func (c *comparison) add(i int, m *bashtest.Mismatch, known bool, ran int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commands += ran
	if known {
		c.allowed++
	}
	if m != nil {
		c.missed++
		c.section.fail("script %d: %q runs %q", i, m.Script, m.Ran)
	}
	if c.done++; c.done%10_000 == 0 {
		c.lab.say("policy: %d scripts", c.done)
	}
}
