// Package servecmd is the command serve: the bash tool for programs that run agents, over
// JSON-RPC or MCP, and the sessions of its clients.
package servecmd

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

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/policycmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/internal/serve"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/tool"
)

// commands are the serve commands.
type commands struct {
	version   string // of this program
	streams   *stdio.Streams
	cfg       *core.Configuration
	notes     *core.Notes
	secrets   *core.Secrets
	observers *core.Observers
	host      *host
}

// commonFlags are the flags of both servers.
var commonFlags = []string{"policy.contract", "agent.toolNames", "env.set", "env.unsafe", "grace", "artifacts.mode", "serve.log", "metrics.address", "quiet"}

// addCommonFlags gives a server the flags of every server.
func addCommonFlags(cmd *cobra.Command) {
	flags.Add(cmd, commonFlags...)
	f := cmd.Flags().Lookup("contract")
	f.Usage, f.DefValue = "tool contract to offer", "agent"
}

// Command is the command serve.
func Command(p *core.Parts) *cobra.Command {
	a := &commands{
		version: p.Version, streams: p.Streams, cfg: p.Cfg, notes: p.Notes, secrets: p.Secrets, observers: p.Observers, host: newHost(p),
	}
	c := flags.Family("serve", "Serve the bash tool to programs that run agents",
		`  sandboxbash serve mcp --workspace copy:.
  sandboxbash serve mcp --http 127.0.0.1:8808
  sandboxbash serve rpc --contract agent`,
		a.rpcCommand(), a.mcpCommand())
	c.Long = `Serve the bash tool under a contract, --contract: agent (default), plain or modes. A
client's first call starts a session, as the flags say; the session is removed when the
client disconnects. A changed workspace is kept for a while (keep.for), and standard
error says how to get it. The settings agent.* say what agents may do: see ` + "`sandboxbash help config`."
	c.GroupID = flags.GroupRun
	return c
}

func (a *commands) rpcCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rpc [flags]", Short: "Speak JSON-RPC 2.0 on standard input and output",
		Long: `Speak JSON-RPC 2.0 on standard input and output, one object per line, until the input
ends: tools, sessions, files, jobs, terminals, artifacts and the policy. The methods are
described in docs/rpc.md.`,
		Example: `  sandboxbash serve rpc <<'END'
  {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocol":"1"}}
  END`,
		Args: flags.Args(0, 0, "no arguments"),
	}
	addCommonFlags(cmd)
	flags.Add(cmd, flags.Session...)
	flags.Add(cmd, flags.Network...)
	flags.Add(cmd, "network.ask-timeout")
	cmd.RunE = a.cfg.Does(func(ctx context.Context, _ []string) error {
		o, err := a.server(ctx)
		if err != nil {
			return err
		}
		err = serve.RPC(ctx, o, a.streams.Stdin, a.streams.Lines(stdio.Raw(a.streams.Stdout)))
		return errors.Join(err, a.host.close())
	})
	return cmd
}

func (a *commands) mcpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "mcp [flags]", Short: "Speak the Model Context Protocol on stdin and stdout, or over HTTP",
		Long: `Speak the Model Context Protocol on standard input and output until the input ends,
or over HTTP with --http, at ` + serve.HTTPPath + `. Each client has a session of its own.

Every HTTP request must carry a token, as "Authorization: Bearer TOKEN". The token is
read from --token-file, or generated and printed on standard error. Requests for another
host name, or from a web page of another site, are refused. An address that other
machines can reach requires --tls-cert, --tls-key and --host.`,
		Example: `  sandboxbash serve mcp --workspace copy:.
  sandboxbash serve mcp --http 127.0.0.1:8808 --token-file ~/.sandboxbash-token
  sandboxbash serve mcp --http 0.0.0.0:8808 --host agents.example \
    --tls-cert cert.pem --tls-key key.pem`,
		Args: flags.Args(0, 0, "no arguments"),
	}
	addCommonFlags(cmd)
	flags.Add(cmd, flags.Session...)
	flags.Add(cmd, flags.Network...)
	flags.Add(cmd, flags.Asking...)
	flags.Add(cmd, "session.idle", "serve.http", "serve.tls-cert", "serve.tls-key", "serve.token-file", "serve.hosts")
	cmd.RunE = a.cfg.Does(func(ctx context.Context, _ []string) error { return a.serveMCP(ctx) })
	return cmd
}

func (a *commands) serveMCP(ctx context.Context) error {
	var listener net.Listener
	var h serve.HTTPOptions
	if a.cfg.Serve.HTTP != "" { // wrong settings are reported before anything is started
		var err error
		if listener, h, err = a.listen(ctx); err != nil {
			return err
		}
	}
	o, err := a.server(ctx)
	if err == nil {
		var m *serve.MCP
		if m, err = serve.NewMCP(o); err == nil {
			if listener != nil {
				err = m.HTTP(ctx, listener, h)
			} else {
				err = m.Serve(ctx, a.streams.Stdin, a.streams.Lines(stdio.Raw(a.streams.Stdout)))
				m.Close()
			}
		}
		return errors.Join(err, a.host.close())
	}
	if listener != nil {
		err = errors.Join(err, listener.Close())
	}
	return err
}

// listen opens the address of the HTTP server.
func (a *commands) listen(ctx context.Context) (net.Listener, serve.HTTPOptions, error) {
	c := a.cfg.Serve
	h := serve.HTTPOptions{Hosts: c.Hosts, Idle: a.cfg.Idle()}
	if c.TLSCert != "" {
		cert, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
		if err != nil {
			return nil, h, exit.Misuse("give the files that hold them, in PEM", "certificate and key: %v", err)
		}
		h.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	}
	if err := serve.CheckBind(c.HTTP, h); err != nil {
		return nil, h, exit.Misuse("", "%v", err)
	}
	var err error
	if h.Token, err = token(c.TokenFile); err != nil {
		return nil, h, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", c.HTTP)
	if err != nil {
		return nil, h, exit.Misuse("give another address, as in 127.0.0.1:8808", "--http: %v", err)
	}
	scheme := map[bool]string{true: "https", false: "http"}[h.TLS != nil]
	fmt.Fprintf(a.streams.Stderr, "sandboxbash: serving MCP at %s://%s%s\n", scheme, l.Addr(), serve.HTTPPath)
	if c.TokenFile == "" {
		fmt.Fprintf(a.streams.Stderr, "sandboxbash: requests need the header `Authorization: Bearer %s`\n", h.Token)
	}
	return l, h, nil
}

// tokenBytes is the length of a token that is made here.
const tokenBytes = 32

// token reads the token from a file, or makes one if the path is "".
func token(path string) (string, error) {
	if path == "" {
		b := make([]byte, tokenBytes)
		_, _ = rand.Read(b) // it never fails
		return base64.RawURLEncoding.EncodeToString(b), nil
	}
	const todo = "write a random one into it, as with `(umask 077; openssl rand -hex 32 >FILE)`"
	f, err := os.Open(path)
	if err != nil {
		return "", exit.Misuse(todo, "token: %v", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", exit.Misuse(todo, "token: %v", err)
	case !info.Mode().IsRegular():
		return "", exit.Misuse(todo, "token: %s is not a regular file", path)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return "", exit.Misuse("take that from them with `chmod 600`", "token: others than its owner can read or write %s (mode %04o)", path, info.Mode().Perm())
	}
	const longest = 4 << 10 // bytes
	b, err := io.ReadAll(io.LimitReader(f, longest+1))
	token := strings.TrimSpace(string(b))
	switch {
	case err != nil:
		return "", exit.Misuse(todo, "token: %v", err)
	case len(b) > longest || len(token) < serve.MinToken || strings.ContainsAny(token, " \t\r\n"):
		return "", exit.Misuse(todo, "token: %s does not hold one token of at least %d characters without spaces", path, serve.MinToken)
	}
	return token, nil
}

// server makes what both servers need, and opens the host, whose close is the caller's.
func (a *commands) server(ctx context.Context) (serve.Options, error) {
	settings := agentSettings(a.cfg.Config)
	spec, err := a.cfg.ServedSpec()
	if err != nil {
		return serve.Options{}, err
	}
	if err := a.secrets.Ready(); err != nil {
		return serve.Options{}, err
	}
	spec.Secrets = a.secrets.Hosted()
	contract := tool.Name(a.cfg.Agent.Contract)
	if _, err := agentPolicy(a.cfg.Config, a.notes.Add, contract, a.cfg.Agent.ToolNames); err != nil { // also tells what is left out
		return serve.Options{}, err
	}
	if err := a.observers.ServeMetrics(ctx); err != nil {
		return serve.Options{}, err
	}
	h := a.host
	if err := h.open(settings, spec); err != nil {
		return serve.Options{}, err
	}
	checked := a.cfg.Policy
	checked.Contract = a.cfg.Agent.Contract // whose checks policy/check has
	rows := policycmd.NewRows(checked, a.notes.Add)
	return serve.Options{
		Version: core.Build(a.version).Version, Contract: contract, Settings: settings, Tools: a.cfg.Agent.ToolNames, Dir: spec.Workspace.Target,
		TerminalTool: a.cfg.Agent.TerminalTool, ClientTerminal: a.cfg.Agent.ClientTerminal, Host: h, AskNetwork: a.cfg.NetworkRules.Ask,
		Policy: func(c tool.Name, tools []string) (policy.Checker, error) { return h.policy(c, tools) },
		Check: func(row json.RawMessage) (any, error) {
			h.rows.Lock()
			defer h.rows.Unlock()
			return rows.Answer(stdio.InputLine{Text: row})
		},
		Mask: func(message []byte) []byte { return a.secrets.Known().ScrubJSON(message, "id") },
		Note: a.notes.Add, Kept: a.notes.Kept,
	}, nil
}

// agentSettings are the settings of contract agent.
func agentSettings(cfg *config.Config) tool.Settings {
	c := cfg.Agent
	s := tool.DefaultSettings()
	s.Async, s.MaxJobs, s.PollWait = c.Async, c.MaxJobs, tool.PollWait(c.PollWait)
	s.AutoBackground, s.ThresholdMs = c.AutoBackground, float64(c.AutoBackgroundAfter.Milliseconds())
	s.StripHeadTail, s.ExtractHeadTail = c.StripHeadTail, c.ExtractHeadTail
	s.Interceptor, s.Match = c.Interceptor || cfg.Policy.Interceptor, policy.Match(cfg.Policy.Match)
	if cfg.Policy.Rules != nil {
		s.Rules = core.InterceptorRules(cfg.Policy)
	}
	s.Minimizer.Enabled, s.Minimizer.Only, s.Minimizer.Except = c.Minimizer, c.MinimizerOnly, c.MinimizerExcept
	s.WindowBytes, s.HeadBytes, s.MaxTimeout = int(c.Window), int(c.Head), c.MaxTimeout.Seconds()
	return s
}
