package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandboxbash/sandboxbash/e2e/faultproxy"
)

// point is a call to the engine that a command of the program makes.
type point struct {
	method string
	path   string // a regular expression for path and query
}

func (p point) String() string { return p.method + " " + p.path }

func (p point) rule(f faultproxy.Fault) faultproxy.Rule {
	return faultproxy.Rule{Method: p.method, Path: regexp.MustCompile(p.path), Fault: f}
}

func (p point) stream() bool {
	return strings.HasSuffix(p.path, "/start$") && strings.HasPrefix(p.path, "^/exec/")
}

var (
	idPattern    = regexp.MustCompile(`[0-9a-f]{64}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	queryPattern = regexp.MustCompile(`\?(force|all|filters)=.*`)
)

// pointsOf returns the different calls of a list, in order.
func pointsOf(calls []faultproxy.Call) []point {
	var all []point
	for _, c := range calls {
		path := queryPattern.ReplaceAllString(c.Path, "?")
		quoted := "^" + regexp.QuoteMeta(idPattern.ReplaceAllString(path, "ID"))
		if !strings.HasSuffix(path, "?") {
			quoted += "$"
		}
		p := point{method: c.Method, path: strings.ReplaceAll(quoted, "ID", `[0-9a-f-]+`)}
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

// callFaults are the faults for any call. Streams have further ones.
var (
	callFaults = []faultproxy.Fault{
		faultproxy.Status(500), faultproxy.Status(503), faultproxy.Garbage(), faultproxy.WrongType(), faultproxy.OldHTTP(),
		faultproxy.Reset(), faultproxy.Hang(), faultproxy.Cut(1), faultproxy.Slow(),
		faultproxy.Status(500).AfterDone(), faultproxy.Garbage().AfterDone(), faultproxy.Reset().AfterDone(), faultproxy.Hang().AfterDone(),
	}
	// Inside the first frame's header, inside its payload, behind the greeting, and
	// inside what follows; 8 bytes are the engine's header of a frame.
	streamFaults = []faultproxy.Fault{
		faultproxy.CutStream(0), faultproxy.CutStream(3), faultproxy.CutStream(11), faultproxy.CutStream(40), faultproxy.CutStream(70),
		faultproxy.EndStream(0), faultproxy.EndStream(11), faultproxy.EndStream(40), faultproxy.EndStream(70),
		faultproxy.Stall(0), faultproxy.Stall(40), faultproxy.Stall(70), faultproxy.Drip(40),
	}
)

// waits reports whether a fault costs no more than time.
func waits(f faultproxy.Fault) bool {
	name := f.String()
	return strings.HasPrefix(name, "hang") || strings.HasPrefix(name, "slow") || strings.HasPrefix(name, "stall") || strings.HasPrefix(name, "drip")
}

// callBound is how long the program may take if one of its calls does not return: the call's
// own deadline of 30 s, that of cleaning up, and some time for a busy machine.
const callBound = 75 * time.Second

// faultTable runs one operation against all (call, fault) pairs.
type faultTable struct {
	t    *testing.T
	seat seat

	mu      sync.Mutex
	suspect []string       // guarded by mu; names that a later reap must remove
	ends    map[string]int // guarded by mu; how often an operation ended how
}

// fullVariable asks for every pair of a call and a fault, in place of a sample. It
// takes some minutes.
const fullVariable = "SANDBOXBASH_E2E_FULL"

// operations are those that are tried, in this order.
var operations = []string{"start", "exec", "stop"}

// trial is one operation with one fault at one of its calls.
type trial struct {
	op    string
	point point
	fault faultproxy.Fault
}

// trials pairs calls and faults: all of them, or a sample that has every call and
// every fault at least once.
func trials(points map[string][]point, full bool) []trial {
	var all, streams []trial // without a fault
	for _, op := range operations {
		for _, p := range points[op] {
			all = append(all, trial{op: op, point: p})
			if p.stream() {
				streams = append(streams, trial{op: op, point: p})
			}
		}
	}
	return append(pairs(all, callFaults, full), pairs(streams, streamFaults, full)...)
}

func pairs(trials []trial, faults []faultproxy.Fault, full bool) []trial {
	var out []trial
	for i, t := range trials {
		for j, fault := range faults {
			// Both lists are gone through side by side, the shorter more than once.
			if full || i%len(faults) == j%len(trials) && (i < len(faults) || j < len(trials)) {
				out = append(out, trial{t.op, t.point, fault})
			}
		}
	}
	return out
}

// Rows L13, L15, scenario 74: for each fault at each call of `session start`, `session exec`
// and `session stop`, the report is true, nothing is done twice, nothing is left, and the
// program ends in time.
func TestEngineCallFaults(t *testing.T) {
	t.Parallel()
	f := &faultTable{t: t, seat: hereSeat(t), ends: map[string]int{}}
	began := time.Now()
	all := trials(f.points(), os.Getenv(fullVariable) != "")
	var quick, slow errgroup.Group
	quick.SetLimit(4)
	met := map[string]bool{}
	for _, one := range all {
		met[one.op+" "+one.point.String()], met[one.fault.String()] = true, true
		group := &quick
		if waits(one.fault) {
			group = &slow
		}
		group.Go(func() error {
			if err := f.try(one.op, one.point, one.fault); err != nil {
				t.Errorf("%s, %s: %s: %v", one.op, one.point, one.fault, err)
			}
			return nil
		})
	}
	_ = quick.Wait()
	_ = slow.Wait()
	f.reaped()
	t.Logf("%d pairs of a call and a fault in %s; ends: %v", len(all), time.Since(began).Round(time.Second), f.ends)
	// 27 calls of the program, and 26 faults.
	if len(met) < 50 {
		t.Errorf("%d calls and faults were tried: the program makes fewer calls than it did", len(met))
	}
}

// points finds the calls of each operation.
func (f *faultTable) points() map[string][]point {
	f.t.Helper()
	proxy := f.proxy()
	defer proxy.Close()
	all := map[string][]point{}
	var id string
	for _, op := range operations {
		proxy.Forget()
		args := []string{"session", op}
		if op != "start" {
			args = append(args, id)
		}
		if op == "exec" {
			args = append(args, "true")
		}
		if out := f.seat.at(proxy.Host()).run(f.t, args...); op == "start" {
			id = out
		}
		all[op] = pointsOf(proxy.Calls())
	}
	return all
}

func (f *faultTable) proxy() *faultproxy.Proxy {
	f.t.Helper()
	proxy, err := faultproxy.Start(f.seat.host)
	if err != nil {
		f.t.Fatal(err)
	}
	return proxy
}

func (f *faultTable) try(op string, p point, fault faultproxy.Fault) error {
	proxy, err := faultproxy.Start(f.seat.host)
	if err != nil {
		return err
	}
	defer proxy.Close()
	began := time.Now()
	end, err := map[string]func(*faultproxy.Proxy, faultproxy.Rule) (string, error){
		"start": f.start, "exec": f.exec, "stop": f.stop,
	}[op](proxy, p.rule(fault))
	if took := time.Since(began); took > callBound {
		err = errors.Join(err, fmt.Errorf("it took %s; want at most %s", took, callBound))
	}
	f.mu.Lock()
	f.ends[op+" "+end]++
	f.mu.Unlock()
	return errors.Join(err, once(proxy.Calls()))
}

// once checks that no POST to an exec was made twice, so that no command ran twice.
func once(calls []faultproxy.Call) error {
	seen := map[string]bool{}
	for _, c := range calls {
		key := c.Method + " " + c.Path + " " + c.Name
		if c.Method == "POST" && strings.HasPrefix(c.Path, "/exec/") && seen[key] {
			return fmt.Errorf("%s was asked twice", key)
		}
		seen[key] = true
	}
	return nil
}

// start starts a session through the proxy. Either the session works or nothing is left.
func (f *faultTable) start(proxy *faultproxy.Proxy, rule faultproxy.Rule) (string, error) {
	proxy.Set(rule)
	id, err := f.seat.at(proxy.Host()).try(context.Background(), "session", "start")
	if err == nil {
		l := &ledger{seat: f.seat, session: id, file: os.DevNull}
		d, err := f.plain(l)
		if err == nil && d.reason() != "exited" {
			err = fmt.Errorf("its first command: %s", d.reason())
		}
		_, stopErr := f.seat.try(context.Background(), "session", "stop", id)
		return "ok", errors.Join(err, stopErr)
	}
	if got := status(errors.Unwrap(err)); got != 125 && got != 2 {
		return "", fmt.Errorf("%w; want exit status 125 or 2", err)
	}
	var names []string
	for _, c := range proxy.Calls() {
		if c.Name != "" && !kept(c.Name) {
			names = append(names, c.Name)
		}
	}
	// The next reap removes what could not be removed, and what was still being created when
	// the program gave up.
	mayLeave, after := rule.Method == "DELETE" || strings.HasPrefix(rule.Fault.String(), "hang"), settle
	if mayLeave {
		after = expectedLeft
	}
	if left := f.remain(names, after); len(left) > 0 {
		if !mayLeave {
			return "failed", fmt.Errorf("it has left %v\n%w", left, err)
		}
		f.mu.Lock()
		f.suspect = append(f.suspect, left...)
		f.mu.Unlock()
		return "failed, the rest reaped", nil
	}
	return "failed", nil
}

// plain runs a command without a ledger's file, for sessions that have none.
func (f *faultTable) plain(l *ledger) (told, error) {
	var d told
	out, err := l.seat.try(context.Background(), "session", "exec", "--json", l.session, "true")
	return d, errors.Join(err, json.Unmarshal([]byte(out), &d))
}

// remain lists which of these things there are, after a while.
func (*faultTable) remain(names []string, after time.Duration) []string {
	for deadline := time.Now().Add(after); ; time.Sleep(100 * time.Millisecond) {
		left := engineThings(names)
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// exec runs a command through the proxy.
func (f *faultTable) exec(proxy *faultproxy.Proxy, rule faultproxy.Rule) (string, error) {
	l, err := openLedger(context.Background(), f.seat)
	if err != nil {
		return "", err
	}
	proxy.Set(rule)
	d, err := l.check(l.exec(context.Background(), f.seat.at(proxy.Host()), "sleep 0.1", "--timeout", "8s"))
	if err == nil {
		err = l.goesOn(context.Background())
	}
	_, stopErr := f.seat.try(context.Background(), "session", "stop", l.session)
	if status(errors.Unwrap(stopErr)) == 2 { // the kill took the whole session
		stopErr = nil
	}
	return d.reason(), errors.Join(err, stopErr)
}

// stop stops a session through the proxy. The session is gone, or an error is reported.
func (f *faultTable) stop(proxy *faultproxy.Proxy, rule faultproxy.Rule) (string, error) {
	id, err := f.seat.try(context.Background(), "session", "start")
	if err != nil {
		return "", err
	}
	names := []string{"sandboxbash-" + id, "sandboxbash-" + id + "-jobs"}
	proxy.Set(rule)
	_, err = f.seat.at(proxy.Host()).try(context.Background(), "session", "stop", id)
	if err == nil {
		if left := f.remain(names, settle); len(left) > 0 {
			return "ok", fmt.Errorf("it said that it was stopped, and left %v", left)
		}
		return "ok", nil
	}
	if got := status(errors.Unwrap(err)); got != 125 && got != 2 {
		return "", fmt.Errorf("%w; want exit status 125 or 2", err)
	}
	_, again := f.seat.try(context.Background(), "session", "stop", id)
	after := settle
	if again != nil {
		after = expectedLeft
	}
	left := f.remain(names, after)
	if again == nil && len(left) > 0 {
		return "failed", fmt.Errorf("stopped again, it left %v", left)
	}
	f.mu.Lock()
	f.suspect = append(f.suspect, left...)
	f.mu.Unlock()
	return "failed", nil
}

// reaped checks that a reap removes what failed commands could not.
func (f *faultTable) reaped() {
	f.t.Helper()
	var names []string
	for _, thing := range f.suspect {
		_, name, _ := strings.Cut(thing, " ")
		names = append(names, name)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Second) {
		f.seat.run(f.t, "session", "reap")
		left := engineThings(names)
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			f.t.Errorf("not reaped: %v", left)
			break
		}
	}
	f.t.Logf("%d things were left to a reap", len(names))
}
