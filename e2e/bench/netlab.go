package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// netSizes say how much is measured of the network.
type netSizes struct {
	requests int   // of one take, one at a time
	parallel int   // of one take, 50 at a time
	rounds   int   // takes
	bytes    int64 // of a download
	far      int64 // of a download from an engine far away
	conns    int   // of one take; below the burst that a session may have
	many     int   // connections at once
	idle     time.Duration
}

var (
	fullNet  = netSizes{300, 1000, 7, 1 << 30, 256 << 20, 4000, 1000, 30 * time.Second}
	quickNet = netSizes{20, 100, 1, 64 << 20, 16 << 20, 200, 100, 2 * time.Second}
)

func (l *lab) net() netSizes {
	if l.sizes == quick {
		return quickNet
	}
	return fullNet
}

// figures are what a client prints: netload's Result.
type figures struct {
	P50     time.Duration `json:"p50"`
	P99     time.Duration `json:"p99"`
	Elapsed time.Duration `json:"elapsed"`
	Bytes   int64         `json:"bytes"`
	Good    int           `json:"good"`
}

// netlab has a server on this machine and its clients everywhere.
type netlab struct {
	*lab

	program string         // netload, on this machine
	ports   [3]int         // of HTTP, HTTPS and echoes
	roots   *x509.CertPool // holds the server's certificate
	gateway string         // this machine, as containers on the bridge see it
	stop    func() error
}

const (
	netName   = "web.test"
	readName  = "read.test"          // the same server, for a session that has its requests read
	netClient = "/workspace/netload" // in a session
	netPlain  = "/netload"           // in the plain container
)

// here is a resolver of two names, which lead to this machine.
type here struct{}

func (here) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if name := strings.TrimSuffix(host, "."); name == netName || name == readName {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// withNet builds netload, starts its server, and calls use.
func (l *lab) withNet(ctx context.Context, use func(n *netlab) error) (err error) {
	dir, err := os.MkdirTemp("", "bench-netload")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	n := &netlab{lab: l, program: filepath.Join(dir, "netload")}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", n.program, "github.com/sandboxbash/sandboxbash/e2e/bench/netload")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build netload: %w: %s", err, out)
	}
	if err := n.serve(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	if err := n.bringPlain(ctx); err != nil {
		return err
	}
	return use(n)
}

// serve starts the server, on all addresses of this machine, so that the bridge reaches it too.
func (n *netlab) serve(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, n.program, "serve", "0.0.0.0")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	n.stop = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	lines := bufio.NewReader(out)
	for i := range n.ports {
		line, err := lines.ReadString('\n')
		if err == nil {
			n.ports[i], err = strconv.Atoi(strings.TrimSpace(line))
		}
		if err != nil {
			return errors.Join(fmt.Errorf("netload serve: %w", err), n.stop())
		}
	}
	if n.roots, err = certificate(lines); err != nil {
		return errors.Join(fmt.Errorf("netload serve: %w", err), n.stop())
	}
	return nil
}

// certificate reads the certificate that netload prints.
func certificate(lines *bufio.Reader) (*x509.CertPool, error) {
	line, err := lines.ReadString('\n')
	if err != nil {
		return nil, err
	}
	der, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line))
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return roots, nil
}

// bringPlain copies the client into the plain container, and finds this machine's address on the bridge.
func (n *netlab) bringPlain(ctx context.Context) error {
	client, err := os.ReadFile(n.program)
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err = w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(netPlain, "/"), Mode: 0o755, Size: int64(len(client))})
	if err == nil {
		_, err = w.Write(client)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	if err := n.api.CopyToContainer(ctx, n.plain, "/", &archive, container.CopyToContainerOptions{}); err != nil {
		return err
	}
	state, err := n.api.ContainerInspect(ctx, n.plain)
	if err != nil {
		return err
	}
	for _, at := range state.NetworkSettings.Networks {
		n.gateway = at.Gateway
	}
	if n.gateway == "" {
		return errors.New("the container of the baselines is on no bridge")
	}
	return nil
}

// rules allow the server.
func (n *netlab) rules() ([]network.Rule, error) {
	var all []network.Rule
	for _, port := range n.ports {
		for _, host := range []string{netName, "127.0.0.1"} {
			r, err := network.ParseRule(fmt.Sprintf("%s:%d", host, port))
			if err != nil {
				return nil, err
			}
			all = append(all, r)
		}
	}
	return all, nil
}

// readRules allow the server, and have its requests read by its second name.
func (n *netlab) readRules() ([]network.Rule, error) {
	all, err := n.rules()
	if err != nil {
		return nil, err
	}
	r, err := network.ParseRule(fmt.Sprintf("GET %s:%d/*", readName, n.ports[httpsPort]))
	return append(all, r), err
}

// session starts a session that may reach the server, has the client in it, and calls use.
func (n *netlab) session(ctx context.Context, e *sandbox.Engine, use func(s *sandbox.Session) error) error {
	return n.sessionWith(ctx, e, n.rules, use)
}

// sessionWith is session with other rules.
func (n *netlab) sessionWith(ctx context.Context, e *sandbox.Engine, rules func() ([]network.Rule, error), use func(s *sandbox.Session) error) (err error) {
	spec := n.spec()
	if spec.Allow, err = rules(); err != nil {
		return err
	}
	s, err := e.Start(ctx, spec)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop(context.WithoutCancel(ctx))) }()
	client, err := os.Open(n.program)
	if err != nil {
		return err
	}
	defer client.Close()
	res, err := s.Run(ctx, sandbox.Command{Script: "cat >" + netClient + " && chmod 755 " + netClient, Stdin: client, Timeout: time.Minute})
	if err == nil && res.Code != 0 {
		err = fmt.Errorf("copy netload into the session: %s", res.Output.Stderr.Text())
	}
	if err != nil {
		return err
	}
	return use(s)
}

func (n *netlab) engine() *sandbox.Engine {
	return n.lab.engine(sandbox.Options{Ahead: 1, Resolver: here{}, Roots: n.roots})
}

// A caller runs netload somewhere: it is given netload's arguments, of which the second is a
// format that takes the host.
type caller func(ctx context.Context, args ...string) (figures, error)

func parseFigures(where string, out []byte) (f figures, err error) {
	if err := json.Unmarshal(out, &f); err != nil {
		return f, fmt.Errorf("netload %s: %w: %q", where, err, out)
	}
	return f, nil
}

// inside runs the client in a session.
func (n *netlab) inside(s *sandbox.Session) caller { return n.insideTo(s, netName) }

// insideTo is inside, with a name of the server.
func (n *netlab) insideTo(s *sandbox.Session, name string) caller {
	return func(ctx context.Context, args ...string) (figures, error) {
		args[1] = fmt.Sprintf(args[1], name)
		res, err := s.Run(ctx, sandbox.Command{Script: netClient + " '" + strings.Join(args, "' '") + "'", Timeout: 10 * time.Minute})
		if err != nil {
			return figures{}, err
		}
		if res.Code != 0 {
			return figures{}, fmt.Errorf("netload %v in a session: %s", args, res.Output.Stderr.Text())
		}
		return parseFigures("in a session", []byte(res.Output.Stdout.Text()))
	}
}

// bridged runs the client in the plain container.
func (n *netlab) bridged(ctx context.Context, args ...string) (figures, error) {
	args[1] = fmt.Sprintf(args[1], n.gateway)
	var out bytes.Buffer
	if err := n.rawExec(ctx, n.plain, container.ExecOptions{Cmd: append([]string{netPlain}, args...)}, &out); err != nil {
		return figures{}, fmt.Errorf("netload %v in a container: %w", args, err)
	}
	return parseFigures("in a container", out.Bytes())
}

// direct runs the client on this machine.
func (n *netlab) direct(ctx context.Context, args ...string) (figures, error) {
	args[1] = fmt.Sprintf(args[1], "127.0.0.1")
	out, err := exec.CommandContext(ctx, n.program, args...).Output()
	if err != nil {
		return figures{}, fmt.Errorf("netload %v: %w", args, err)
	}
	return parseFigures("here", out)
}

// drained sends that many bytes into an exec of a container, and returns how long it took. It is what the
// engine's stream gives at best.
func (n *netlab) drained(id, user, program string, amount int64) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		made, err := n.api.ContainerExecCreate(ctx, id, container.ExecOptions{
			User: user, Cmd: []string{program, "drain", "-", "0", "0"}, AttachStdin: true, AttachStdout: true, AttachStderr: true,
		})
		if err != nil {
			return 0, err
		}
		conn, err := n.api.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		stop := context.AfterFunc(ctx, conn.Close)
		defer stop()
		begin := time.Now()
		_, err = io.CopyBuffer(struct{ io.Writer }{conn.Conn}, io.LimitReader(zeros{}, amount), make([]byte, 32<<10))
		if err = errors.Join(err, conn.CloseWrite()); err != nil {
			return 0, err
		}
		var out bytes.Buffer
		if _, err := stdcopy.StdCopy(&out, io.Discard, conn.Reader); err != nil {
			return 0, err
		}
		took := time.Since(begin)
		f, err := parseFigures("of raw bytes", out.Bytes())
		if err == nil && f.Bytes != amount {
			err = fmt.Errorf("%d bytes of %d arrived over the raw stream", f.Bytes, amount)
		}
		return took, err
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
