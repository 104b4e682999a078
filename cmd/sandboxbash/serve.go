package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/serve"
	"github.com/sandboxbash/sandboxbash/tool"
)

// serveFlags are those of both servers.
var serveFlags = []string{"policy.contract", "agent.toolNames", "env.set", "grace", "artifacts.mode", "serve.log", "metrics.address", "quiet"}

func (a *app) serveCommand() *cobra.Command {
	c := family("serve", "Offer the bash tool to programs that run agents",
		`  sandboxbash serve mcp --workspace copy:.
  sandboxbash serve mcp --http 127.0.0.1:8808
  sandboxbash serve rpc --contract agent`,
		a.serveRPCCommand(), a.serveMCPCommand())
	c.Long = `Offer the bash tool under a contract, --contract: agent (default), plain or modes.
A session is started at a client's first call, as the flags say, and removed when the
client goes. The settings agent.* say what agents may do: see ` + "`sandboxbash help config`."
	c.GroupID = groupRun
	return c
}

func (a *app) serveRPCCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rpc [flags]", Short: "Speak JSON-RPC 2.0 on standard input and output, an object a line",
		Long: `Speak JSON-RPC 2.0 on standard input and output, an object a line, until the input
ends: tools, sessions, files, jobs, terminals, artifacts and the policy. The methods are
described in docs/rpc.md.`,
		Example: `  echo '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocol":"1"}}' | sandboxbash serve rpc`,
		Args:    words(0, 0, "no arguments"),
	}
	addFlags(cmd, serveFlags...)
	addFlags(cmd, sessionFlags...)
	cmd.RunE = a.does(func(ctx context.Context, _ []string) error {
		o, host, err := a.server(ctx)
		if err != nil {
			return err
		}
		err = serve.RPC(ctx, o, a.stdin, raw(a.stdout))
		return errors.Join(err, host.close())
	})
	return cmd
}

func (a *app) serveMCPCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "mcp [flags]", Short: "Speak the Model Context Protocol on standard input and output, or over HTTP",
		Long: `Speak the Model Context Protocol on standard input and output until the input ends,
or over HTTP with --http, at ` + serve.HTTPPath + `. Each client has a session of its own.

An HTTP server needs a token in each request, as "Authorization: Bearer TOKEN". It is
read from --token-file, or made and printed on standard error once. Requests that name
another host, or come from a page of another site, are refused. An address that other
machines can reach needs --tls-cert, --tls-key and --host.`,
		Example: `  sandboxbash serve mcp --workspace copy:.
  sandboxbash serve mcp --http 127.0.0.1:8808 --token-file ~/.config/sandboxbash/token
  sandboxbash serve mcp --http 0.0.0.0:8808 --host agents.example --tls-cert cert.pem --tls-key key.pem`,
		Args: words(0, 0, "no arguments"),
	}
	addFlags(cmd, serveFlags...)
	addFlags(cmd, sessionFlags...)
	addFlags(cmd, "session.idle", "serve.http", "serve.tls-cert", "serve.tls-key", "serve.token-file", "serve.hosts")
	cmd.RunE = a.does(func(ctx context.Context, _ []string) error { return a.serveMCP(ctx) })
	return cmd
}

func (a *app) serveMCP(ctx context.Context) error {
	var listener net.Listener
	var h serve.HTTPOptions
	if a.cfg.Serve.HTTP != "" { // what is wrong with it is told before anything is done
		var err error
		if listener, h, err = a.listen(ctx); err != nil {
			return err
		}
	}
	o, host, err := a.server(ctx)
	if err == nil {
		var m *serve.MCP
		if m, err = serve.NewMCP(o); err == nil {
			if listener != nil {
				err = m.HTTP(ctx, listener, h)
			} else {
				err = m.Serve(ctx, a.stdin, raw(a.stdout))
				m.Close()
			}
		}
		return errors.Join(err, host.close())
	}
	if listener != nil {
		err = errors.Join(err, listener.Close())
	}
	return err
}

// listen opens the address of the HTTP server.
func (a *app) listen(ctx context.Context) (net.Listener, serve.HTTPOptions, error) {
	c := a.cfg.Serve
	h := serve.HTTPOptions{Hosts: c.Hosts, Idle: a.cfg.Session.Idle}
	if c.TLSCert != "" {
		cert, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
		if err != nil {
			return nil, h, misuse("give the files that hold them, in PEM", "certificate and key: %v", err)
		}
		h.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	}
	if err := serve.CheckBind(c.HTTP, h); err != nil {
		return nil, h, misuse("", "%v", err)
	}
	var err error
	if h.Token, err = a.token(); err != nil {
		return nil, h, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", c.HTTP)
	if err != nil {
		return nil, h, err
	}
	scheme := map[bool]string{true: "https", false: "http"}[h.TLS != nil]
	fmt.Fprintf(a.stderr, "sandboxbash: serving MCP at %s://%s%s\n", scheme, l.Addr(), serve.HTTPPath)
	if c.TokenFile == "" {
		fmt.Fprintf(a.stderr, "sandboxbash: requests need the header `Authorization: Bearer %s`\n", h.Token)
	}
	return l, h, nil
}

// tokenBytes is the length of a token that is made here.
const tokenBytes = 32

// token reads the token, or makes one.
func (a *app) token() (string, error) {
	path := a.cfg.Serve.TokenFile
	if path == "" {
		b := make([]byte, tokenBytes)
		_, _ = rand.Read(b) // it never fails
		return base64.RawURLEncoding.EncodeToString(b), nil
	}
	const todo = "write a random one into it, as with `(umask 077; openssl rand -hex 32 >FILE)`"
	f, err := os.Open(path)
	if err != nil {
		return "", misuse(todo, "token: %v", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", misuse(todo, "token: %v", err)
	case !info.Mode().IsRegular():
		return "", misuse(todo, "token: %s is no plain file", path)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return "", misuse("take that from them with `chmod 600`", "token: others than its owner can read or write %s (mode %04o)", path, info.Mode().Perm())
	}
	const longest = 4 << 10 // bytes
	b, err := io.ReadAll(io.LimitReader(f, longest+1))
	token := strings.TrimSpace(string(b))
	switch {
	case err != nil:
		return "", misuse(todo, "token: %v", err)
	case len(b) > longest || len(token) < serve.MinToken || strings.ContainsAny(token, " \t\r\n"):
		return "", misuse(todo, "token: %s does not hold one word of at least %d characters", path, serve.MinToken)
	}
	return token, nil
}

// server makes what both servers need. The host's close is the caller's.
func (a *app) server(ctx context.Context) (serve.Options, *serveHost, error) {
	settings := a.agentSettings()
	spec, err := a.spec()
	if err != nil {
		return serve.Options{}, nil, err
	}
	if err := a.secrets(ctx); err != nil {
		return serve.Options{}, nil, err
	}
	contract := tool.Name(a.cfg.Agent.Contract)
	if _, err := a.agentPolicy(contract, a.cfg.Agent.ToolNames); err != nil { // also tells what is left out
		return serve.Options{}, nil, err
	}
	if err := a.serveMetrics(ctx); err != nil {
		return serve.Options{}, nil, err
	}
	host, err := a.newServeHost(settings, spec)
	if err != nil {
		return serve.Options{}, nil, err
	}
	a.cfg.Policy.Contract = a.cfg.Agent.Contract // whose checks policy/check has
	rows := &rowPolicies{app: a, made: map[string]*policy.Policy{}}
	return serve.Options{
		Version: build().Version, Contract: contract, Settings: settings, Tools: a.cfg.Agent.ToolNames, Dir: spec.Workspace.Target,
		TerminalTool: a.cfg.Agent.TerminalTool, ClientTerminal: a.cfg.Agent.ClientTerminal, Host: host,
		Policy: func(c tool.Name, tools []string) (tool.Checker, error) { return host.policy(c, tools) },
		Check: func(row json.RawMessage) (any, error) {
			host.rows.Lock()
			defer host.rows.Unlock()
			return rows.answer(inputLine{text: row})
		},
		Note: a.note,
	}, host, nil
}

// agentSettings are the settings of contract agent.
func (a *app) agentSettings() tool.Settings {
	c := a.cfg.Agent
	s := tool.DefaultSettings()
	s.Async, s.MaxJobs, s.PollWait = c.Async, c.MaxJobs, tool.PollWait(c.PollWait)
	s.AutoBackground, s.ThresholdMs = c.AutoBackground, float64(c.AutoBackgroundAfter.Milliseconds())
	s.StripHeadTail, s.ExtractHeadTail = c.StripHeadTail, c.ExtractHeadTail
	s.Interceptor, s.Match = c.Interceptor || a.cfg.Policy.Interceptor, policy.Match(a.cfg.Policy.Match)
	if a.cfg.Policy.Rules != nil {
		s.Rules = interceptorRules(a.cfg.Policy)
	}
	s.Minimizer.Enabled, s.Minimizer.Only, s.Minimizer.Except = c.Minimizer, c.MinimizerOnly, c.MinimizerExcept
	s.WindowBytes, s.HeadBytes, s.MaxTimeout = int(c.Window), int(c.Head), c.MaxTimeout.Seconds()
	return s
}

// agentPolicy is what decides about an agent's commands: what the contract has, and
// what the configuration says.
func (a *app) agentPolicy(contract tool.Name, tools []string) (*policy.Policy, error) {
	c := a.cfg.Policy
	c.Interceptor, c.Tools = c.Interceptor || a.cfg.Agent.Interceptor, tools
	var checks []string
	if contract == tool.Modes {
		checks = policy.CheckNames()
	}
	return a.newPolicy(policyOptions(c, checks))
}

// agentFindings tell what a server would not do.
func (a *app) agentFindings() []finding {
	if (a.cfg.Agent.Interceptor || a.cfg.Policy.Interceptor) && len(a.cfg.Agent.ToolNames) == 0 {
		return []finding{warn("agent", "the interceptor is on, and over MCP nobody says which tools the agent has: none of its rules applies there", "name them in agent.toolNames")}
	}
	return nil
}
