// Command soak tests what sandboxbash promises never to do: leave a survivor, lose or mix
// output, leak, or report something about a command that is not true. It drives the built
// binary as users do, from the command line and over `serve rpc`, and injects faults. It
// judges by what can be seen from outside: the host's /proc, the engine, and files that the
// commands have written. All random choices come from a seed, which it prints.
//
// It needs Linux and an engine on this machine. It leaves nothing behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const (
	exitFailure = 1
	exitUsage   = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// options are the command line.
type options struct {
	binary  string
	out     string
	history string
	only    *regexp.Regexp
	seed    uint64
	minutes float64
	sizes   sizes
	line    string // the command line itself, for the page
}

// sizes say how much is done.
type sizes struct {
	kills      int           // commands that are killed
	hosts      int           // host processes that are killed
	concurrent int           // commands at once, over loadSessions
	sessions   int           // for these commands
	single     int           // commands at once in one session
	sequential int           // commands one after the other
	starts     int           // sessions that are started and stopped
	scripts    int           // that bash and the policy read
	rest       time.Duration // pause before counting what they have left
}

// fullRest is a little longer than our processes keep an idle connection.
const fullRest = 32 * time.Second

var (
	full  = sizes{kills: 1000, hosts: 200, concurrent: 1000, sessions: 50, single: 200, sequential: 10000, starts: 1000, scripts: 100_000, rest: fullRest}
	short = sizes{kills: 32, hosts: 10, concurrent: 60, sessions: 5, single: 24, sequential: 100, starts: 6, scripts: 500, rest: 2 * time.Second}
)

func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(args, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "soak:", err)
		return exitUsage
	}
	fmt.Fprintf(stderr, "soak: seed %d\n", o.seed)
	if err := soak(ctx, o, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "soak: seed %d: %v\n", o.seed, err)
		return exitFailure
	}
	return 0
}

func parse(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.SetOutput(stderr)
	o := options{sizes: full, line: strings.Join(append([]string{"go run ./e2e/soak"}, args...), " ")}
	flags.StringVar(&o.binary, "binary", "bin/sandboxbash", "the program under test")
	flags.StringVar(&o.out, "out", "", "the page whose measured part to replace")
	flags.StringVar(&o.history, "history", "soak-history.jsonl", "where the nemesis records what has happened")
	flags.Float64Var(&o.minutes, "minutes", 10, "how long the nemesis goes on")
	flags.IntVar(&o.sizes.kills, "kills", o.sizes.kills, "how many commands are killed")
	flags.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "of everything random")
	flags.BoolFunc("quick", "do little: shows that it works", func(string) error {
		o.sizes = short
		return nil
	})
	flags.Func("only", "a regular expression of the parts to run: "+strings.Join(names(), ", ")+" (this one sets the machine's clock, and only runs where it is named)", func(text string) error {
		var err error
		o.only, err = regexp.Compile("^(" + strings.ReplaceAll(text, ",", "|") + ")$")
		return err
	})
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: give flags only", flags.Arg(0))
	}
	if len(o.selected()) == 0 {
		return o, fmt.Errorf("-only %s selects nothing of %s", o.only, strings.Join(names(), ", "))
	}
	return o, nil
}

// part is one promise to test. Its section is valid even with an error.
type part struct {
	name      string
	run       func(ctx context.Context, l *lab) (section, error)
	elsewhere bool // it has an engine of its own
	named     bool // it runs only if it is named
}

// parts are all there are, in the page's order.
var parts = []part{
	{name: "kills", run: kills},
	{name: "hosts", run: hosts},
	{name: "load", run: load},
	{name: "leaks", run: leaks},
	{name: "starts", run: starts},
	{name: "policy", run: againstBash},
	{name: "nemesis", run: nemesis, elsewhere: true},
	{name: "clock", run: clock, named: true},
}

func names() []string {
	var all []string
	for _, p := range parts {
		all = append(all, p.name)
	}
	return all
}

func (o options) selected() []part {
	var chosen []part
	for _, p := range parts {
		if o.only == nil && !p.named || o.only != nil && o.only.MatchString(p.name) {
			chosen = append(chosen, p)
		}
	}
	return chosen
}

// soak runs the chosen parts, the others even if one fails, and writes the section of each
// as soon as it has ended.
func soak(ctx context.Context, o options, stdout, progress io.Writer) error {
	l, err := openLab(ctx, o, progress)
	if err != nil {
		return err
	}
	defer l.close()
	r := &report{seed: o.seed, line: o.line, machine: l.machine(ctx), quick: o.sizes == short}
	var errs []error
	for _, p := range o.selected() {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		s, err := l.take(ctx, p)
		s.name, s.date, s.load = p.name, time.Now().UTC(), loadAverage()
		if err != nil {
			s.incomplete = len(s.failed) == 0 // it ended before it could judge, or left something behind
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
		}
		fmt.Fprintln(stdout, r.text(&s))
		if o.out != "" {
			errs = append(errs, r.save(o.out, &s))
		}
	}
	return errors.Join(errs...)
}

// take runs a part, and checks that it leaves nothing behind.
func (l *lab) take(ctx context.Context, p part) (section, error) {
	before, err := l.things(ctx)
	if err != nil {
		return section{}, err
	}
	l.say("%s: begins", p.name)
	start := time.Now()
	s, err := p.run(ctx, l)
	s.took = time.Since(start)
	if !p.elsewhere {
		err = errors.Join(err, l.nothingSince(context.WithoutCancel(ctx), before))
	}
	l.say("%s: took %s", p.name, s.took.Round(time.Second))
	return s, err
}
