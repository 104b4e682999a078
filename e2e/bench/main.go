// Command bench measures sandboxbash and compares it with a local bash, the engine's exec API
// and the docker command, which take turns with it in the same run. It writes the result as a
// page of Markdown.
//
// Unlike everything else below e2e it imports packages of the product, because much of what
// it measures is the library. It needs an engine on this machine, and removes everything that
// it has created there, even if it is interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
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
	binary string
	image  string
	out    string
	only   *regexp.Regexp
	sizes  sizes
	line   string // the command line itself, for the page
}

func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	opts, err := parse(args, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitUsage
	}
	p, err := measure(ctx, opts, stderr)
	if p != nil {
		p.write(stdout)
	}
	if err == nil && opts.out != "" {
		err = p.save(opts.out)
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitFailure
	}
	return 0
}

func parse(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	o := options{sizes: full, line: strings.Join(append([]string{"go run ./e2e/bench"}, args...), " ")}
	flags.StringVar(&o.binary, "binary", "bin/sandboxbash", "the program to measure")
	flags.StringVar(&o.image, "image", "host", "the image of all containers: a reference, an ID or host")
	flags.StringVar(&o.out, "out", "", "the file to write; none if a measurement fails")
	flags.BoolFunc("quick", "take few samples: shows that it works, not how fast", func(string) error {
		o.sizes = quick
		return nil
	})
	flags.Func("only", "a regular expression of the measurements to take: "+strings.Join(names(), ", "), func(text string) error {
		var err error
		o.only, err = regexp.Compile(text)
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

// measurement is a part of the page. Its rows are valid even with an error.
type measurement struct {
	name   string
	title  string
	take   func(ctx context.Context, l *lab) ([]row, error)
	binary bool // it runs the program, and not the library alone
}

// measurements are all there are, in the page's order.
var measurements = []measurement{
	{"echo", "`echo hi` in a warm session", echo, false},
	{"oneshot", "One command from the command line", oneshot, true},
	{"start", "Start of a session to its first result", start, true},
	{"warm", "Start with a pool of prepared sessions", warm, false},
	{"output", "Output", output, false},
	{"files", "A copied directory of 10,000 files", files, true},
	{"workers", "16 workers over 4 sessions", workers, false},
	{"endurance", "Many commands in one session", endurance, false},
	{"network-requests", "Network: small requests", netRequests, false},
	{"network-bytes", "Network: many bytes", netBytes, false},
	{"network-many", "Network: many connections", netMany, false},
	{"network-cost", "Network: its cost while it is not used", netCost, true},
	{"idle", "While nothing happens", idle, true},
	{"policy", "A check by the policy, all rules on", checks, false},
}

func names() []string {
	var all []string
	for _, m := range measurements {
		all = append(all, m.name)
	}
	return all
}

func (o options) selected() []measurement {
	var chosen []measurement
	for _, m := range measurements {
		if o.only == nil || o.only.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	return chosen
}

// checkBinary returns an error if a selected measurement needs the program and it is not there: most of them
// would find out after many minutes.
func (o options) checkBinary() error {
	for _, m := range o.selected() {
		if !m.binary {
			continue
		}
		if _, err := exec.LookPath(o.binary); err != nil {
			return fmt.Errorf("%s runs the program: %w: build it (make build), or say where it is (-binary)", m.name, err)
		}
	}
	return nil
}

// measure runs the selected measurements. It runs the others even if one fails.
func measure(ctx context.Context, o options, progress io.Writer) (p *page, err error) {
	if err := o.checkBinary(); err != nil {
		return nil, err
	}
	l, err := openLab(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	p = &page{machine: l.machine(ctx), line: o.line, date: time.Now().UTC(), quick: o.sizes == quick}
	for _, m := range o.selected() {
		if ctx.Err() != nil {
			return p, errors.Join(err, context.Cause(ctx))
		}
		fmt.Fprintln(progress, "measuring:", m.title)
		rows, failed := m.take(ctx, l)
		p.sections = append(p.sections, section{m.title, rows})
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", m.name, failed))
		}
	}
	return p, err
}
