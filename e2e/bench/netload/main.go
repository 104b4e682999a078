// Command netload is both ends of the network's measurements: a server on this machine, and clients that
// cost little in a session, in a container and on this machine. Clients print a Result as JSON.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Result is what a client has measured. Fields that a client does not measure are zero.
type Result struct {
	P50     time.Duration `json:"p50"` // of one operation
	P99     time.Duration `json:"p99"`
	Elapsed time.Duration `json:"elapsed"` // of all of them
	Bytes   int64         `json:"bytes"`
	Good    int           `json:"good"` // connections that did as they should
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "netload:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) > 0 && args[0] == "serve" {
		return serve(args[1])
	}
	if len(args) != 4 {
		return errors.New("usage: netload serve ADDRESS, or netload new|at|kept|get|conns|many|stall TARGET COUNT PARALLEL")
	}
	target := args[1]
	count, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	parallel, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	var r Result
	switch args[0] {
	case "new":
		r, err = requests(target, count, parallel, true)
	case "at": // as new, and its host's name is looked up before
		r, err = requestsAt(target, count, parallel)
	case "kept":
		r, err = requests(target, count, parallel, false)
	case "get":
		r, err = get(target)
	case "drain":
		r, err = drain()
	case "conns":
		r, err = connections(target, count, parallel)
	case "many":
		r, err = many(target, count)
	case "stall":
		return stall(target, count)
	default:
		err = fmt.Errorf("%q is not something to measure", args[0])
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// client makes requests over connections that are new, or kept.
func client(fresh bool, parallel int) *http.Client {
	return &http.Client{Timeout: 10 * time.Minute, Transport: &http.Transport{
		DisableKeepAlives: fresh, MaxIdleConnsPerHost: parallel, DisableCompression: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // its server is netload, and the handshake costs the same
	}}
}

// fetch gets a URL and returns how many bytes came.
func fetch(c *http.Client, url string) (int64, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return io.Copy(io.Discard, resp.Body)
}

// requestsAt makes requests over new connections to an address that was looked up before.
func requestsAt(target string, count, parallel int) (Result, error) {
	u, err := url.Parse(target)
	if err != nil {
		return Result{}, err
	}
	if u.Host, err = resolve(u.Host); err != nil {
		return Result{}, err
	}
	return requests(u.String(), count, parallel, true)
}

// requests makes count requests, so many at a time, each over a connection of its own or over kept ones.
func requests(at string, count, parallel int, fresh bool) (Result, error) {
	c := client(fresh, parallel)
	if !fresh { // the connections are there first
		if _, _, err := inParallel(parallel, parallel, func(int) error { _, err := fetch(c, at); return err }); err != nil {
			return Result{}, err
		}
	}
	taken, elapsed, err := inParallel(count, parallel, func(int) error { _, err := fetch(c, at); return err })
	return result(taken, elapsed), err
}

// inParallel does something count times, so many at a time, and returns how long each took.
func inParallel(count, parallel int, do func(i int) error) (taken []time.Duration, elapsed time.Duration, err error) {
	taken = make([]time.Duration, count)
	failed := make([]error, count)
	next := make(chan int)
	var workers sync.WaitGroup
	for range parallel {
		workers.Go(func() {
			for i := range next {
				begin := time.Now()
				failed[i] = do(i)
				taken[i] = time.Since(begin)
			}
		})
	}
	begin := time.Now()
	for i := range count {
		next <- i
	}
	close(next)
	workers.Wait()
	elapsed = time.Since(begin)
	for _, err := range failed {
		if err != nil {
			return taken, elapsed, err
		}
	}
	return taken, elapsed, nil
}

func result(taken []time.Duration, elapsed time.Duration) Result {
	slices.Sort(taken)
	r := Result{Elapsed: elapsed, Good: len(taken)}
	if n := len(taken); n > 0 {
		r.P50, r.P99 = taken[n/2], taken[n*99/100]
	}
	return r
}

func get(url string) (Result, error) {
	begin := time.Now()
	n, err := fetch(client(true, 1), url)
	return Result{Elapsed: time.Since(begin), Bytes: n}, err
}

// drain reads standard input to its end.
func drain() (Result, error) {
	begin := time.Now()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{os.Stdin}, make([]byte, 64<<10))
	return Result{Elapsed: time.Since(begin), Bytes: n}, err
}

func dial(address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: time.Minute}).DialContext(context.Background(), "tcp", address)
}

// connections opens count connections, so many at a time. Each sends a byte and waits for its echo.
func connections(address string, count, parallel int) (Result, error) {
	at, err := resolve(address)
	if err != nil {
		return Result{}, err
	}
	taken, elapsed, err := inParallel(count, parallel, func(int) error {
		conn, err := dial(at)
		if err != nil {
			return err
		}
		defer conn.Close()
		return echoed(conn, []byte{'o'})
	})
	return result(taken, elapsed), err
}

// resolve looks a name up, once.
func resolve(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	found, err := net.DefaultResolver.LookupHost(context.Background(), host)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(found[0], port), nil
}

func echoed(conn net.Conn, word []byte) error {
	if _, err := conn.Write(word); err != nil {
		return err
	}
	got := make([]byte, len(word))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if string(got) != string(word) {
		return fmt.Errorf("%q came back as %q", word, got)
	}
	return nil
}

// many opens count connections at once and keeps them. Each then gets its own word back. Elapsed is how long
// it took to open them, which the first byte of the server ends; the word's time is not in it.
func many(address string, count int) (Result, error) {
	at, err := resolve(address)
	if err != nil {
		return Result{}, err
	}
	conns := make([]net.Conn, count)
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}()
	_, opened, err := inParallel(count, count, func(i int) error {
		conn, err := dial(at)
		if err != nil {
			return err
		}
		conns[i] = conn
		return echoed(conn, []byte{'o'})
	})
	if err != nil {
		return Result{}, err
	}
	r := Result{Elapsed: opened}
	var mu sync.Mutex
	taken, _, err := inParallel(count, count, func(i int) error {
		if err := echoed(conns[i], fmt.Appendf(nil, "connection %08d", i)); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		r.Good++
		return nil
	})
	words := result(taken, 0)
	r.P50, r.P99 = words.P50, words.P99
	return r, err
}

// stall opens count connections for endless bodies, reads none of them on, says so, and waits for the end of
// standard input.
func stall(address string, count int) error {
	at, err := resolve(address)
	if err != nil {
		return err
	}
	conns := make([]net.Conn, count)
	_, _, err = inParallel(count, 50, func(i int) error {
		conn, err := dial(at)
		if err != nil {
			return err
		}
		conns[i] = conn
		if _, err := io.WriteString(conn, "GET /bytes?n=1000000000000 HTTP/1.1\r\nHost: netload\r\n\r\n"); err != nil {
			return err
		}
		_, err = conn.Read(make([]byte, 1))
		return err
	})
	if err != nil {
		return err
	}
	fmt.Println("stalled")
	_, err = io.Copy(io.Discard, os.Stdin)
	for _, c := range conns {
		c.Close()
	}
	return err
}
