// Command conformance runs the scenarios of scenarios/ on a bash tool and reports which of them pass.
// It has no knowledge of any tool. A target, a small file of command templates, says how to call a tool
// and what its answers mean. The command imports nothing of sandboxbash, which is one of several targets.
//
// README.md says how to test another tool.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Exit statuses.
const (
	exitFailed = 1 // some scenario has failed
	exitUsage  = 2 // nothing was asked
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// options are what the flags say.
type options struct {
	only    []string          // numbers of scenarios; empty: all
	vars    map[string]string // for all targets
	slow    bool
	list    bool
	strict  bool // only what a target's Known has may fail or not be asked
	jobs    int
	page    string // file
	json    string // file
	from    []string
	adhoc   *Target
	targets []string
}

const usage = `usage: conformance [flags] [TARGET...]

TARGET is a file that says how a tool is asked, or one of: %s.
Without one, --run and its like describe the tool:

  conformance --start 'docker run -d --network none debian sleep infinity' \
    --run 'docker exec {stdin} {session} {timeout} bash -c {script}' --stdin -i \
    --timeout 'timeout -k 1 {seconds}' --end 'timed-out=exit 124 137' --stop 'docker rm -f {session}'

It exits with 1 if a scenario fails, and with 2 if nothing could be asked.

`

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{vars: make(map[string]string), adhoc: &Target{Name: "this", Title: "this tool", Ends: make(map[string]string)}}
	f := flag.NewFlagSet("conformance", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintf(stderr, usage, strings.Join(targetNames(), ", "))
		f.PrintDefaults()
	}
	f.Func("only", "ask these scenarios, as in 33,35", func(s string) error {
		o.only = append(o.only, strings.Split(s, ",")...)
		return nil
	})
	f.Func("var", "`NAME=VALUE` for the templates, as in image=debian; may be repeated", pair(o.vars))
	f.Func("end", "`END=HOW` the tool tells of it, as in 'timed-out=exit 124'; may be repeated", pair(o.adhoc.Ends))
	f.BoolVar(&o.slow, "slow", false, "ask the slow scenarios too")
	f.BoolVar(&o.list, "scenarios", false, "list the scenarios, and ask nothing")
	f.BoolVar(&o.strict, "strict", false, "fail too if a scenario does not pass for any other reason, unless the target lists it as known")
	f.IntVar(&o.jobs, "jobs", 2, "how many scenarios are asked at once")
	f.StringVar(&o.page, "page", "", "write the table to this `FILE`, in Markdown")
	f.StringVar(&o.json, "json", "", "write the results to this `FILE`")
	f.Func("from", "show the results that --json has written to this `FILE`, before those of targets; may be repeated", func(s string) error {
		o.from = append(o.from, s)
		return nil
	})
	for name, template := range o.adhoc.templates() {
		f.StringVar(template, name, "", "`TEMPLATE` of a tool that has no target file")
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.targets = f.Args()
	switch {
	case o.jobs < 1:
		return o, errors.New("--jobs must be at least 1")
	case len(o.targets)+len(o.from) == 0 && o.adhoc.Run == "" && !o.list:
		return o, errors.New("name a target, or describe one with --run; --help says how")
	case len(o.targets) > 0 && o.adhoc.Run != "":
		return o, errors.New("there are a target and --run; want one of them")
	}
	return o, nil
}

// pair reads NAME=VALUE into a map.
func pair(m map[string]string) func(string) error {
	return func(s string) error {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return errors.New("want NAME=VALUE")
		}
		m[name] = value
		return nil
	}
}

func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	var groups []Group
	if err == nil {
		groups, err = loadGroups()
	}
	if err == nil && o.list {
		printScenarios(stdout, groups)
		return 0
	}
	var targets []*Target
	if err == nil {
		targets, err = o.load()
	}
	if err == nil {
		groups, err = o.pick(groups)
	}
	if err != nil {
		fmt.Fprintln(stderr, "conformance:", err)
		return exitUsage
	}
	good, err := o.ask(ctx, groups, targets, stdout)
	if err != nil {
		fmt.Fprintln(stderr, "conformance:", err)
		return exitUsage
	}
	if !good {
		return exitFailed
	}
	return 0
}

// load reads the targets.
func (o options) load() ([]*Target, error) {
	if o.adhoc.Run != "" {
		o.adhoc.Vars = o.vars
		return []*Target{o.adhoc}, o.adhoc.check()
	}
	var targets []*Target
	for _, name := range o.targets {
		t, err := loadTarget(name)
		if err != nil {
			return nil, err
		}
		for name, value := range o.vars {
			if _, ok := t.Vars[name]; ok {
				t.Vars[name] = value
			}
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// pick removes the scenarios that were not asked for.
func (o options) pick(groups []Group) ([]Group, error) {
	var picked []Group
	for _, g := range groups {
		g.Scenarios = slices.DeleteFunc(slices.Clone(g.Scenarios), func(s Scenario) bool {
			return len(o.only) > 0 && !slices.Contains(o.only, s.ID)
		})
		picked = append(picked, g)
	}
	for _, id := range o.only {
		if !slices.ContainsFunc(picked, func(g Group) bool {
			return slices.ContainsFunc(g.Scenarios, func(s Scenario) bool { return s.ID == id })
		}) {
			return nil, fmt.Errorf("no scenario %s can be asked; --scenarios shows them", id)
		}
	}
	return picked, nil
}

// ask runs the scenarios on every target, and writes the reports. It returns whether all is as it should
// be.
func (o options) ask(ctx context.Context, groups []Group, targets []*Target, stdout io.Writer) (bool, error) {
	r := Report{Begin: time.Now(), Groups: groups}
	for _, name := range o.from {
		var columns []Column
		text, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(text, &columns)
		}
		if err != nil {
			return false, err
		}
		r.Columns = append(r.Columns, columns...)
	}
	good, asked := true, len(targets) == 0
	for _, t := range targets {
		fmt.Fprintf(stdout, "== %s\n", t.Name)
		column := Column{Target: t, Versions: t.versions(ctx)}
		column.Results = askTarget(ctx, t, groups, o, func(res Result) {
			if res.Outcome != Pass {
				fmt.Fprintf(stdout, "%-15s %-4s %s\n", res.Outcome, res.ID, res.Detail)
			}
		})
		r.Columns = append(r.Columns, column)
		fmt.Fprintf(stdout, "%s\n", column.sum())
		good = good && len(column.wrong(o.strict)) == 0
		asked = asked || column.asked()
	}
	if o.json != "" {
		text, err := json.MarshalIndent(r.Columns, "", "  ")
		if err == nil {
			err = os.WriteFile(o.json, append(text, '\n'), 0o644)
		}
		if err != nil {
			return false, err
		}
	}
	if o.page != "" {
		if err := os.WriteFile(o.page, []byte(r.Page(ctx)), 0o644); err != nil {
			return false, err
		}
	}
	if !asked {
		return false, errors.New("nothing could be asked")
	}
	return good, nil
}

func printScenarios(w io.Writer, groups []Group) {
	for _, g := range groups {
		fmt.Fprintf(w, "%s\n", g.Title)
		for _, s := range g.Scenarios {
			fmt.Fprintf(w, "  %-4s %s\n", s.ID, s.Title)
		}
		for _, n := range g.NotAsked {
			fmt.Fprintf(w, "  %-4s %s (not asked: %s)\n", n.ID, n.Title, n.Reason)
		}
	}
}
