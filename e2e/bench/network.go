package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandboxbash/sandboxbash/e2e/activity"
	"github.com/sandboxbash/sandboxbash/engine/docker"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// request is one way to make requests, and what it may cost.
type request struct {
	figure   string
	mode     string // of netload
	port     int    // of netlab.ports
	parallel int
	goal     goal
	// more compares the times by their difference, in milliseconds, and not by their ratio.
	more bool
}

const (
	manyAtOnce = 50
	httpPort   = 0
	httpsPort  = 1
	echoPort   = 2
)

var schemes = []string{"http", "https"}

// requests are compared with those over the engine's bridge, of a program that has the address and looks
// up no name. Ours has looked the name up before ("at"), or does so for each connection ("new").
var requests = []request{
	{"HTTP, new connection, one at a time", "at", httpPort, 1, goal{atMost, 0.5, "≤ 0.5 ms more"}, true},
	{"HTTPS, new connection, one at a time", "at", httpsPort, 1, goal{atMost, 0.9, "≤ 0.9 ms more"}, true},
	{"HTTP, new connection and its name looked up, one at a time", "new", httpPort, 1, goal{}, true},
	{"HTTP, new connection, 50 at a time", "at", httpPort, manyAtOnce, goal{sense: atMost, limit: 2}, false},
	{"HTTPS, new connection, 50 at a time", "at", httpsPort, manyAtOnce, goal{sense: atMost, limit: 2}, false},
	{"HTTP, kept connection, one at a time", "kept", httpPort, 1, goal{}, true},
	{"HTTPS, kept connection, one at a time", "kept", httpsPort, 1, goal{}, true},
	{"HTTPS, kept connections, 50 at a time", "kept", httpsPort, manyAtOnce, goal{}, false},
}

// count is how many requests one take makes.
func (r request) count(sizes netSizes) int {
	if r.parallel > 1 {
		return sizes.parallel
	}
	return sizes.requests
}

// median returns a take that is the median of the requests of one run of the client.
func (n *netlab) median(where caller, r request) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		url := fmt.Sprintf("%s://%%s:%d/", schemes[r.port], n.ports[r.port])
		f, err := where(ctx, r.mode, url, strconv.Itoa(r.count(n.net())), strconv.Itoa(r.parallel))
		return f.P50, err
	}
}

// netRequests compares small requests with those over the bridge, and on this machine.
func netRequests(ctx context.Context, l *lab) (rows []row, err error) {
	err = l.withNet(ctx, func(n *netlab) error {
		return n.session(ctx, n.engine(), func(s *sandbox.Session) error {
			for _, r := range requests {
				got, err := interleave(ctx, n.net().rounds,
					contender{name: "ours", take: n.median(n.inside(s), r), settle: refill},
					contender{name: "bridge", take: n.median(n.bridged, r)},
					contender{name: "direct", take: n.median(n.direct, r)},
				)
				if err != nil {
					return err
				}
				rows = append(rows, r.row(got["ours"].median(), got["bridge"].median(), "bridge"),
					slower(r.figure+": the same on this machine", got["direct"].median(), got["bridge"].median(), "bridge", goal{}))
			}
			more, err := n.readRequests(ctx)
			rows = append(rows, more...)
			return err
		})
	})
	return rows, err
}

// readRequests compares requests inside TLS that are read and judged one by one with those that pass unread.
func (n *netlab) readRequests(ctx context.Context) (rows []row, err error) {
	r := request{"HTTPS, kept connection, intercepted, one at a time", "kept", httpsPort, 1, goal{atMost, 0.2, "≤ 0.2 ms more"}, true}
	err = n.sessionWith(ctx, n.engine(), n.readRules, func(s *sandbox.Session) error {
		got, err := interleave(ctx, n.net().rounds,
			contender{name: "read", take: n.median(n.insideTo(s, readName), r), settle: refill},
			contender{name: "unread", take: n.median(n.inside(s), r), settle: refill},
		)
		rows = append(rows, r.row(got["read"].median(), got["unread"].median(), "passed through"))
		return err
	})
	return rows, err
}

// refill is the pause after which a session may make connections at its highest rate again.
const refill = 2 * time.Second

func (r request) row(ours, other time.Duration, baseline string) row {
	compared := slower(r.figure+", p50", ours, other, baseline, r.goal)
	if r.more {
		compared.ratio = float64(ours-other) / float64(time.Millisecond)
		compared.unit = " ms more"
	}
	return compared
}

// netBytes compares a large download with the bytes of an exec, on an engine that is near and on one far away.
func netBytes(ctx context.Context, l *lab) (rows []row, err error) {
	err = l.withNet(ctx, func(n *netlab) error {
		err := n.sessionWith(ctx, n.engine(), n.readRules, func(s *sandbox.Session) error {
			size := n.net().bytes
			user := s.Info().User
			got, err := interleave(ctx, l.sizes.outputs,
				contender{name: "raw", take: n.drained(s.Info().Container, fmt.Sprintf("%d:%d", user.UID, user.GID), netClient, size), settle: teardown},
				contender{name: "http", take: n.download(n.inside(s), httpPort, size)},
				contender{name: "https", take: n.download(n.inside(s), httpsPort, size)},
				contender{name: "read", take: n.download(n.insideTo(s, readName), httpsPort, size)},
				contender{name: "bridge", take: n.download(n.bridged, httpPort, size)},
				contender{name: "secure bridge", take: n.download(n.bridged, httpsPort, size)},
				contender{name: "direct", take: n.download(n.direct, httpPort, size)},
			)
			if err != nil {
				return err
			}
			raw, amount := got["raw"].median(), work{float64(size) / 1e6, "MB"}
			figure := fmt.Sprintf("one download of %.0f MB, ", amount.amount)
			rows = append(rows,
				rate(figure+"HTTP", amount, got["http"].median(), raw, "raw exec stream", goal{sense: atLeast, limit: 0.5}),
				rate(figure+"HTTPS passed through", amount, got["https"].median(), raw, "raw exec stream", goal{sense: atLeast, limit: 0.3}),
				rate(figure+"HTTPS intercepted", amount, got["read"].median(), raw, "raw exec stream", goal{sense: atLeast, limit: 0.18}),
				rate(figure+"HTTP", amount, got["http"].median(), got["bridge"].median(), "bridge", goal{}),
				rate(figure+"HTTPS passed through", amount, got["https"].median(), got["secure bridge"].median(), "bridge", goal{}),
				rate(figure+"HTTP", amount, got["http"].median(), got["direct"].median(), "this machine, without a container", goal{}),
			)
			more, err := n.outputWhile(ctx, s)
			rows = append(rows, more...)
			return err
		})
		if err != nil {
			return err
		}
		far, err := n.farAway(ctx)
		rows = append(rows, far...)
		return err
	})
	return rows, err
}

// download returns a take that gets that many bytes.
func (n *netlab) download(where caller, port int, size int64) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		f, err := where(ctx, "get", fmt.Sprintf("%s://%%s:%d/bytes?n=%d", schemes[port], n.ports[port], size), "1", "1")
		if err == nil && f.Bytes != size {
			err = fmt.Errorf("%d bytes of %d arrived", f.Bytes, size)
		}
		return f.Elapsed, err
	}
}

// Numbers of farAway.
const (
	farTrip    = 40 * time.Millisecond // there and back
	smallBytes = 64 << 10              // a window that does not grow
)

// farAway measures a download with an engine whose answers take 40 ms. A window of 64 KiB lets that much
// pass in each such time.
func (n *netlab) farAway(ctx context.Context) (rows []row, err error) {
	path, ok := strings.CutPrefix(n.info.Address, "unix://")
	if !ok {
		return nil, fmt.Errorf("the engine is at %s: an engine far away is made of one at a Unix socket", n.info.Address)
	}
	d, err := delay(path, farTrip/2)
	if err != nil {
		return nil, err
	}
	defer d.close()
	client, err := docker.Connect(ctx, docker.Options{Getenv: func(name string) string {
		if name == "DOCKER_HOST" {
			return d.host()
		}
		return ""
	}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	store, err := images.New(client, images.Options{Cache: n.cache})
	if err != nil {
		return nil, err
	}
	e := sandbox.New(docker.NewEngine(client, images.Runner), store, sandbox.Options{Ahead: 1, Resolver: here{}})
	defer func() { err = errors.Join(err, e.Close(context.WithoutCancel(ctx))) }()
	err = n.session(ctx, e, func(s *sandbox.Session) error {
		size := n.net().far
		got, err := interleave(ctx, n.sizes.outputs, contender{name: "ours", take: n.download(n.inside(s), httpPort, size)})
		if err != nil {
			return err
		}
		fixed := time.Duration(size / smallBytes * int64(farTrip))
		rows = []row{rate("engine 40 ms away, one download", work{float64(size) / 1e6, "MB"}, got["ours"].median(), fixed,
			"64 KiB every 40 ms (computed)", goal{sense: atLeast, limit: 10})}
		return nil
	})
	return rows, err
}

// outputWhile measures a command's output alone and next to a download of the same session, which takes
// as long as the command.
func (n *netlab) outputWhile(ctx context.Context, s *sandbox.Session) ([]row, error) {
	size := n.sizes.bytes
	script := fmt.Sprintf("head -c %d /dev/zero | tr '\\0' '\\n'", size)
	alone := func(ctx context.Context) error {
		res, err := s.Run(ctx, sandbox.Command{Script: script, Timeout: 10 * time.Minute})
		if err == nil && res.Stdout != size {
			err = fmt.Errorf("%d bytes of output; want %d", res.Stdout, size)
		}
		return err
	}
	got, err := interleave(ctx, n.sizes.outputs,
		contender{name: "alone", take: timed(alone), settle: teardown},
		contender{name: "next to", take: n.whileLoading(n.inside(s), alone), settle: teardown},
		contender{name: "next to bridge", take: n.whileLoading(n.bridged, alone), settle: teardown},
	)
	if err != nil {
		return nil, err
	}
	amount := work{float64(size) / 1e6, "MB"}
	return []row{
		rate("a command's output next to a download", amount, got["next to"].median(), got["alone"].median(), "alone", goal{sense: atLeast, limit: 0.8}),
		rate("the same next to a download of another container, over the bridge", amount, got["next to bridge"].median(), got["alone"].median(), "alone", goal{}),
	}, nil
}

// slowly is the rate of the download next to a command, in bytes a second: one that this machine's network
// could have, and not all that its processors can do.
const slowly = 50 << 20

// whileLoading returns a take of do while a download goes on.
func (n *netlab) whileLoading(where caller, do func(context.Context) error) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (took time.Duration, err error) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		var group errgroup.Group
		group.Go(func() error {
			_, err := where(ctx, "get", fmt.Sprintf("http://%%s:%d/bytes?n=%d&rate=%d", n.ports[httpPort], int64(1)<<40, slowly), "1", "1")
			if ctx.Err() == nil {
				return errors.Join(err, errors.New("the download ended before the command"))
			}
			return nil // it was ended
		})
		if err = pause(ctx, time.Second); err == nil {
			took, err = timed(do)(ctx)
		}
		stop()
		return took, errors.Join(err, group.Wait())
	}
}

// netMany measures many connections: how fast they come, how many there are at once, and what those cost
// that read nothing.
func netMany(ctx context.Context, l *lab) (rows []row, err error) {
	err = l.withNet(ctx, func(n *netlab) error {
		return n.session(ctx, n.engine(), func(s *sandbox.Session) error {
			for _, part := range []func(context.Context, *sandbox.Session) ([]row, error){n.connectionRate, n.atOnce, n.stalled} {
				more, err := part(ctx, s)
				rows = append(rows, more...)
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
	return rows, err
}

// fullBurst is how long a session needs to be allowed its whole burst of 5,000 again.
const fullBurst = 6 * time.Second

func (n *netlab) connectionRate(ctx context.Context, s *sandbox.Session) ([]row, error) {
	count := n.net().conns
	take := func(where caller) func(context.Context) (time.Duration, error) {
		return func(ctx context.Context) (time.Duration, error) {
			f, err := where(ctx, "conns", fmt.Sprintf("%%s:%d", n.ports[echoPort]), strconv.Itoa(count), strconv.Itoa(manyAtOnce))
			return f.Elapsed, err
		}
	}
	settle := fullBurst
	if n.sizes == quick {
		settle = 0
	}
	got, err := interleave(ctx, n.net().rounds,
		contender{name: "ours", take: take(n.inside(s)), settle: settle},
		contender{name: "bridge", take: take(n.bridged), settle: teardown},
		contender{name: "direct", take: take(n.direct), settle: teardown},
	)
	if err != nil {
		return nil, err
	}
	amount := work{float64(count), "connections"}
	const goalRate = 5000 // a second
	ours := amount.amount / got["ours"].median().Seconds()
	fast := rate("new connections with a byte each way, 50 at a time", amount, got["ours"].median(), got["bridge"].median(), "bridge", goal{})
	return []row{
		fast,
		{figure: "the same", ours: amount.per(got["ours"].median()), baseline: "–", ratio: ours, goal: goal{atLeast, goalRate, "≥ 5000 connections/s"}},
		rate("the same on this machine", amount, got["direct"].median(), got["bridge"].median(), "bridge", goal{}),
	}, nil
}

func (n *netlab) atOnce(ctx context.Context, s *sandbox.Session) ([]row, error) {
	count := n.net().many
	good := map[string]int{}
	take := func(name string, where caller) contender {
		return contender{name: name, settle: fullBurst / 3, take: func(ctx context.Context) (time.Duration, error) {
			f, err := where(ctx, "many", fmt.Sprintf("%%s:%d", n.ports[echoPort]), strconv.Itoa(count), "1")
			good[name] += f.Good
			return f.Elapsed, err
		}}
	}
	rounds := n.net().rounds
	got, err := interleave(ctx, rounds, take("ours", n.inside(s)), take("bridge", n.bridged))
	if err != nil {
		return nil, err
	}
	all := (rounds + 1) * count
	opened := slower(fmt.Sprintf("%d connections at once: all open", count), got["ours"].median(), got["bridge"].median(), "bridge", goal{})
	limit := 300 * time.Millisecond
	return []row{
		opened,
		bounded("the same", millis(got["ours"].median()), float64(got["ours"].median()), float64(limit), "< 300 ms"),
		bounded("lost, or with another's bytes", fmt.Sprintf("%d of %d", all-good["ours"], all), float64(all-good["ours"]), 0, "0"),
	}, nil
}

// stalled has many downloads read nothing, and looks what they cost and whether others go on.
func (n *netlab) stalled(ctx context.Context, s *sandbox.Session) (rows []row, err error) {
	count := n.net().many
	if err := pause(ctx, fullBurst/3); err != nil {
		return nil, err
	}
	request := request{mode: "at", port: httpPort, parallel: 1}
	free, err := n.median(n.inside(s), request)(ctx)
	if err != nil {
		return nil, err
	}
	before, err := n.netMemory(ctx, s)
	if err != nil {
		return nil, err
	}
	input, end := io.Pipe() // its end ends the client
	var group errgroup.Group
	group.Go(func() error {
		script := fmt.Sprintf("ulimit -n %d; rm -f stalled; exec %s stall %s:%d %d 1 >stalled", count+100, netClient, netName, n.ports[httpPort], count)
		res, err := s.Run(ctx, sandbox.Command{Script: script, Stdin: input, Timeout: 10 * time.Minute})
		if err == nil && res.Code != 0 {
			err = fmt.Errorf("netload stall: %s", res.Output.Stderr.Text())
		}
		return err
	})
	defer func() { err = errors.Join(err, end.Close(), group.Wait()) }()
	res, err := s.Run(ctx, sandbox.Command{Script: "until [ -s stalled ]; do sleep 0.1; done", Timeout: 2 * time.Minute})
	if err == nil && res.Code != 0 {
		err = errors.New("the downloads did not begin within two minutes")
	}
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, time.Second); err != nil { // until all windows are full
		return nil, err
	}
	runner, err := n.netMemory(ctx, s)
	if err != nil {
		return nil, err
	}
	others, err := n.median(n.inside(s), request)(ctx)
	if err != nil {
		return nil, fmt.Errorf("a request next to %d stalled downloads: %w", count, err)
	}
	loaded, err := n.download(n.inside(s), httpPort, n.net().bytes/4)(ctx)
	if err != nil {
		return nil, fmt.Errorf("a download next to %d stalled ones: %w", count, err)
	}
	const most = 60_000_000 // bytes
	figure := fmt.Sprintf("%d downloads that read nothing: ", count)
	return []row{
		bounded(figure+"memory of the runner", fmt.Sprintf("%s (without them %s)", mebibytes(runner), mebibytes(before)), float64(runner), most, "< 60 MB"),
		slower(figure+"a new connection of others, p50", others, free, "without them", goal{}),
		{figure: figure + "another download", ours: work{float64(n.net().bytes) / 4e6, "MB"}.per(loaded), baseline: "–", goal: goal{}},
	}, nil
}

// netMemory returns the resident memory of the runner that carries connections.
func (n *netlab) netMemory(ctx context.Context, s *sandbox.Session) (int64, error) {
	top, err := n.api.ContainerTop(ctx, s.Info().Container, []string{"-eo", "pid,args"})
	if err != nil {
		return 0, err
	}
	for _, process := range top.Processes {
		if strings.HasSuffix(process[1], "/runner net") {
			pid, err := strconv.Atoi(strings.TrimSpace(process[0]))
			if err != nil {
				return 0, err
			}
			return memory(pid, "VmRSS")
		}
	}
	return 0, errors.New("no runner carries connections")
}

// netCost measures what the network costs a session that does not use it.
func netCost(ctx context.Context, l *lab) (rows []row, err error) {
	err = l.withNet(ctx, func(n *netlab) error {
		err := n.session(ctx, n.engine(), func(s *sandbox.Session) error {
			return l.with(ctx, sandbox.Options{}, func(off *sandbox.Session) error {
				got, err := interleave(ctx, l.sizes.echoes/3,
					contender{name: "on", take: timed(greeting(s))},
					contender{name: "off", take: timed(greeting(off))},
				)
				rows = append(rows, slower("`echo hi` with network rules, p50", got["on"].median(), got["off"].median(), "without", goal{sense: atMost, limit: 1.05}))
				return err
			})
		})
		if err != nil {
			return err
		}
		for _, part := range []func(context.Context) ([]row, error){n.startCost, n.memoryCost, n.idleCost} {
			more, err := part(ctx)
			rows = append(rows, more...)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return rows, err
}

// startCost compares starts to the first result.
func (n *netlab) startCost(ctx context.Context) ([]row, error) {
	e := n.engine()
	rules, err := n.rules()
	if err != nil {
		return nil, err
	}
	take := func(spec sandbox.Spec) func(context.Context) (time.Duration, error) {
		return func(ctx context.Context) (time.Duration, error) {
			begin := time.Now()
			s, err := e.Start(ctx, spec)
			if err != nil {
				return 0, err
			}
			err = greeting(s)(ctx)
			took := time.Since(begin)
			return took, errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
		}
	}
	with := n.spec()
	with.Allow = rules
	got, err := interleave(ctx, n.sizes.starts,
		contender{name: "with", take: take(with), settle: teardown},
		contender{name: "without", take: take(n.spec()), settle: teardown},
	)
	started := slower("start of a session with network rules to its first result, p50", got["with"].median(), got["without"].median(), "without", goal{atMost, 30, "≤ 30 ms more"})
	started.ratio = float64(got["with"].median()-got["without"].median()) / float64(time.Millisecond)
	started.unit = " ms more"
	return []row{started}, err
}

// memoryCost compares the memory of this process for sessions with rules and without.
func (n *netlab) memoryCost(ctx context.Context) ([]row, error) {
	rules, err := n.rules()
	if err != nil {
		return nil, err
	}
	with := n.spec()
	with.Allow = rules
	used := map[string]int64{}
	for name, spec := range map[string]sandbox.Spec{"without": n.spec(), "with": with} {
		if used[name], err = n.heapOf(ctx, spec); err != nil {
			return nil, err
		}
	}
	more := used["with"] - used["without"]
	return []row{{
		figure: "memory of the host for a session with network rules", ours: mebibytes(used["with"]), baseline: "without " + mebibytes(used["without"]),
		ratio: float64(more) / (1 << 20), unit: " MiB more", goal: goal{atMost, 1, "< 1 MiB more"},
	}}, nil
}

// heapOf returns what one of several idle sessions takes of this process's heap and stacks.
func (n *netlab) heapOf(ctx context.Context, spec sandbox.Spec) (_ int64, err error) {
	const several = 4
	e := n.engine()
	inUse := func() int64 {
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	var all []*sandbox.Session
	defer func() {
		for _, s := range all {
			err = errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
		}
	}()
	before := inUse()
	for range several {
		s, err := e.Start(ctx, spec)
		if err != nil {
			return 0, err
		}
		all = append(all, s)
		if err := greeting(s)(ctx); err != nil {
			return 0, err
		}
	}
	return (inUse() - before) / several, err
}

// idleCost looks at a server and its session while nothing happens, with rules and without.
func (n *netlab) idleCost(ctx context.Context) (rows []row, err error) {
	used := map[string]activity.Used{}
	for name, flags := range map[string][]string{"without": nil, "with": {"--allow", "example.com"}} {
		if used[name], err = n.idleServer(ctx, "rpc", flags...); err != nil {
			return nil, err
		}
	}
	share := func(name string) float64 { return 100 * used[name].CPU.Seconds() / used[name].Time.Seconds() }
	return []row{{
		figure: "`serve rpc --allow` and its session while nothing happens: processor time", ours: fmt.Sprintf("%.3f %%", share("with")),
		baseline: fmt.Sprintf("without rules %.3f %%", share("without")), ratio: share("with") - share("without"), unit: " % more",
		goal: goal{atMost, 0.05, "none more (≤ 0.05 %)"},
	}}, nil
}
