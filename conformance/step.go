package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// repeat runs a step as often as its Repeat says.
func (tr *trial) repeat(ctx context.Context, s Step) error {
	if s.After > 0 {
		select {
		case <-time.After(time.Duration(s.After)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for i := range max(1, s.Repeat) {
		if err := tr.step(ctx, s); err != nil {
			if s.Repeat > 1 {
				err = fmt.Errorf("time %d: %w", i+1, err)
			}
			return err
		}
	}
	return nil
}

// step runs a step once and judges it.
func (tr *trial) step(ctx context.Context, s Step) error {
	if s.Together != nil {
		if _, err := tr.session(ctx, s.Together[0].Session); err != nil {
			return err
		}
		var all errgroup.Group // a failed step does not end the others
		for _, one := range s.Together {
			all.Go(func() error { return tr.repeat(ctx, one) })
		}
		return all.Wait()
	}
	if s.Stop {
		return errors.Join(tr.stop(ctx, s.Session), tr.judge(s, answer{}))
	}
	id, err := tr.session(ctx, s.Session)
	if err != nil {
		return err
	}
	values := map[string]string{"session": id}
	var a answer
	switch {
	case s.Pause:
		err = tr.pause(ctx, values)
	case s.Unpause:
		_, _ = tr.ask(ctx, tr.target.Thaw, values) // the tool may have ended the pause by itself; the next step shows
	case s.Put != "":
		err = tr.putFile(ctx, s, values)
	case s.Get != "":
		return tr.getFile(ctx, s, values)
	case s.Full:
		a, err = tr.ask(ctx, tr.target.Full, values)
	default:
		a, err = tr.command(ctx, s)
	}
	if err != nil {
		return err
	}
	return tr.judge(s, a)
}

// command runs the script of a step.
func (tr *trial) command(ctx context.Context, s Step) (answer, error) {
	id, err := tr.session(ctx, s.Session)
	if err != nil {
		return answer{}, err
	}
	t, script := tr.target, tr.fillIn(s.Script, id)
	values := map[string]string{"session": id, "script": script}
	c := call{
		environ: tr.environ(), bound: stepBound, typed: s.Type,
		abort: time.Duration(s.Abort), kill: time.Duration(s.Kill), unread: time.Duration(s.Unread),
	}
	if s.Want.Within > 0 {
		c.bound = time.Duration(s.Want.Within) + 2*time.Second // longer, so that the delay can be reported
	}
	template := t.Run
	switch {
	case len(script) > maxArgument && t.Long == "" && strings.Contains(t.Run, "{script}"):
		return answer{}, unoffered("no template: long; a script is an argument, and this one is too long for that")
	case len(script) > maxArgument && t.Long != "":
		template = t.Long
		c.stdin = strings.NewReader(script)
	case s.Stdin != nil:
		c.stdin = strings.NewReader(tr.fill(*s.Stdin))
	}
	if strings.Contains(template, "{file}") {
		if values["file"], err = file(tr.dir, "script-"+rand.Text(), []byte(script)); err != nil {
			return answer{}, err
		}
	}
	options, err := tr.options(s)
	if err != nil {
		return answer{}, err
	}
	if c.argv, err = t.expand(template, values, options); err != nil {
		return answer{}, err
	}
	a := do(ctx, c)
	a.secret = tr.scenario.Plant != nil // it may have printed this host's environment, and more than what was planted
	if t.JSON.Always || options["json"] != nil {
		if a.problem == nil && !a.late {
			a = t.JSON.decode(a)
		}
	}
	return a, nil
}

// options returns the words of the options that a step needs.
func (tr *trial) options(s Step) (map[string][]string, error) {
	t := tr.target
	o := make(map[string][]string)
	add := func(name, template string, values map[string]string) error {
		words, err := t.expand(template, values, map[string][]string{})
		o[name] = append(o[name], words...)
		return err
	}
	var errs []error
	if d := time.Duration(s.Timeout); d > 0 {
		seconds := strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
		errs = append(errs, add("timeout", t.Timeout, map[string]string{"duration": d.String(), "seconds": seconds}))
	}
	if s.Stdin != nil {
		errs = append(errs, add("stdin", t.Stdin, nil))
	}
	if s.Type != nil {
		errs = append(errs, add("tty", t.TTY, nil))
	}
	for _, k := range sortedKeys(s.Env) {
		errs = append(errs, add("env", t.Env, map[string]string{"key": k, "value": tr.fill(s.Env[k])}))
	}
	if s.Cwd != "" {
		errs = append(errs, add("cwd", t.Cwd, map[string]string{"dir": s.Cwd}))
	}
	if s.Args != nil {
		errs = append(errs, add("args", t.Args, nil))
		for _, a := range s.Args {
			o["args"] = append(o["args"], tr.fill(a))
		}
	}
	if s.Want.Ended+s.Want.NotEnded != "" && t.JSON.Option != "" {
		errs = append(errs, add("json", t.JSON.Option, nil))
	}
	return o, errors.Join(errs...)
}

func sortedKeys[K int | string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func (tr *trial) putFile(ctx context.Context, s Step, values map[string]string) error {
	content := make([]byte, s.Bytes)
	_, _ = rand.Read(content) // never fails
	to := tr.fillIn(s.Put, values["session"])
	from, err := file(tr.dir, path.Base(to), content)
	if err != nil {
		return err
	}
	tr.mu.Lock()
	tr.put = content
	tr.mu.Unlock()
	values["from"], values["dir"] = from, path.Dir(to)
	_, err = tr.ask(ctx, tr.target.Put, values)
	return err
}

// getFile fetches a file into a directory that lies in another; both are the same throughout a scenario.
func (tr *trial) getFile(ctx context.Context, s Step, values map[string]string) error {
	outer := filepath.Join(tr.dir, "outer")
	inner := filepath.Join(outer, "inner")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		return err
	}
	values["path"], values["to"] = tr.fillIn(s.Get, values["session"]), inner
	a, err := tr.ask(ctx, tr.target.Get, values)
	switch {
	case a.late || a.problem != nil: // no answer is not an error either
		return err
	case s.Want.Inside: // an error is right too
		entries, err := os.ReadDir(outer)
		if err == nil && len(entries) != 1 {
			err = failed("written outside of the directory: %v", entries)
		}
		return err
	case s.Want.Fails && err == nil:
		return failed("fetching %s has succeeded", s.Get)
	case s.Want.Fails:
		return nil
	case err != nil || !s.Want.Same:
		return err
	}
	got, err := os.ReadFile(filepath.Join(inner, path.Base(s.Get)))
	if err != nil {
		return failed("fetched: %v", err)
	}
	if !bytes.Equal(got, tr.put) {
		return failed("fetched %d bytes that are not the %d of the original", len(got), len(tr.put))
	}
	return nil
}

// judge compares an answer with Step.Want.
func (tr *trial) judge(s Step, a answer) error {
	w := s.Want
	switch {
	case a.problem != nil:
		return failed("%v", a.problem)
	case a.late:
		return failed("no end in time: %s", a.seen())
	}
	wrong := append(tr.wrongEnd(w, a), tr.wrongOutput(w, a)...)
	if len(wrong) > 0 {
		return failed("want %s; saw %s", strings.Join(wrong, ", "), a.seen())
	}
	if w.Unreached {
		if n := tr.port.reached(); n > 0 {
			return failed("%d connections have come to this host", n)
		}
	}
	if w.Gone > 0 {
		return tr.gone(time.Duration(w.Gone))
	}
	return nil
}

// wrongEnd returns an error if the end is not as wanted.
func (tr *trial) wrongEnd(w Want, a answer) (wrong []string) {
	if w.Code != nil && !slices.Contains(w.Code, a.code) {
		wrong = append(wrong, fmt.Sprintf("exit %v", []int(w.Code)))
	}
	if w.Fails && a.code == 0 {
		wrong = append(wrong, "an exit code that is not 0")
	}
	for name, is := range map[string]bool{w.Ended: true, w.NotEnded: false} {
		if name == "" {
			continue
		}
		e, err := parseEnd(tr.target.Ends[name])
		if err != nil || e.is(a) == is {
			continue // loadTarget has parsed it
		}
		not := ""
		if !is {
			not = "not "
		}
		wrong = append(wrong, fmt.Sprintf("an end that is %sreported as %s (%s)", not, name, tr.target.Ends[name]))
	}
	if w.Within > 0 && a.elapsed > time.Duration(w.Within) {
		wrong = append(wrong, "an end within "+time.Duration(w.Within).String())
	}
	if a.elapsed < time.Duration(w.AtLeast) {
		wrong = append(wrong, "an end after "+time.Duration(w.AtLeast).String())
	}
	return wrong
}

// wrongOutput returns an error if the output is not as wanted.
func (tr *trial) wrongOutput(w Want, a answer) (wrong []string) {
	if w.Stdout != nil && tr.fill(*w.Stdout) != string(a.stdout) {
		wrong = append(wrong, "stdout "+brief([]byte(tr.fill(*w.Stdout))))
	}
	if w.Stderr != nil && tr.fill(*w.Stderr) != string(a.stderr) {
		wrong = append(wrong, "stderr "+brief([]byte(tr.fill(*w.Stderr))))
	}
	both := append(append(slices.Clone(a.stdout), '\n'), a.stderr...)
	for _, want := range []struct {
		texts []string
		in    []byte
		where string
		is    bool
	}{
		{w.StdoutHas, a.stdout, "stdout with ", true},
		{w.StderrHas, a.stderr, "stderr with ", true},
		{w.OutputHas, both, "output with ", true},
		{w.OutputNot, both, "output without ", false},
	} {
		for _, text := range want.texts {
			if bytes.Contains(want.in, []byte(tr.fill(text))) != want.is {
				wrong = append(wrong, want.where+strconv.Quote(text))
			}
		}
	}
	if w.Match != "" && !regexp.MustCompile(w.Match).Match(a.stdout) {
		wrong = append(wrong, "stdout like "+strconv.Quote(w.Match))
	}
	if w.Size > 0 && a.size != w.Size {
		wrong = append(wrong, fmt.Sprintf("%d bytes on stdout, not %d", w.Size, a.size))
	}
	if w.SHA256 != "" && a.sum != w.SHA256 {
		wrong = append(wrong, "stdout with SHA-256 "+w.SHA256[:12]+"…, not "+a.sum[:12]+"…")
	}
	return wrong
}
