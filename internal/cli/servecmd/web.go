package servecmd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/internal/cli/watchcmd"
	"github.com/sandboxbash/sandboxbash/internal/serve"
	"github.com/sandboxbash/sandboxbash/internal/web"
)

// webServer is the command serve web.
type webServer struct {
	version string // of this program
	streams *stdio.Streams
	cfg     *core.Configuration
	source  func() (*watchcmd.Source, error)

	address string // flags
	control bool
}

// webCommand is the command serve web.
func webCommand(p *core.Parts) *cobra.Command {
	c := &webServer{
		version: p.Version, streams: p.Streams, cfg: p.Cfg, source: func() (*watchcmd.Source, error) { return watchcmd.NewSource(p) },
	}
	cmd := &cobra.Command{
		Use: "web [flags]", Short: "Show sessions in a browser, as watch does in a terminal",
		Long: `Show the sessions of this machine in a browser: what runs and ran, its output as it
comes, terminals as they look, jobs, connections, and what was changed.

Anyone who has the address that is printed, with its token, and can reach it can open
the page: on this machine alone, unless --http says otherwise. Ctrl-C ends the pages; closing
a page or this command changes nothing in any session.

The page is read-only. With --control it can also open a shell in a session, stop it,
allow it a host and apply its changes. Each asks first.

An address that other machines can reach requires --tls-cert, --tls-key and --host.`,
		Example: "  sandboxbash serve web\n  sandboxbash serve web --control --http 127.0.0.1:8810\n  sandboxbash serve web --http 0.0.0.0:8810 --host agents.example \\\n    --tls-cert cert.pem --tls-key key.pem",
		Args:    flags.Args(0, 0, "no arguments"),
	}
	flags.Add(cmd, "serve.tls-cert", "serve.tls-key", "serve.token-file", "serve.hosts", "quiet")
	cmd.Flags().StringVar(&c.address, "http", "127.0.0.1:0", "listen on this `ADDRESS`; port 0 is any that is free")
	cmd.Flags().BoolVar(&c.control, "control", false, "let the page attach, stop, allow and apply")
	cmd.RunE = p.Cfg.Does(func(ctx context.Context, _ []string) error { return c.run(ctx) })
	return cmd
}

func (c *webServer) run(ctx context.Context) error {
	cfg := c.cfg.Serve
	h := serve.HTTPOptions{Hosts: cfg.Hosts}
	if cfg.TLSCert != "" {
		cert, err := tls.LoadX509KeyPair(cfg.TLSCert, cfg.TLSKey)
		if err != nil {
			return exit.Misuse("give the files that hold them, in PEM", "certificate and key: %v", err)
		}
		h.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	}
	if err := serve.CheckBind(c.address, h); err != nil {
		return exit.Misuse("", "%v", err)
	}
	token, err := token(cfg.TokenFile)
	if err != nil {
		return err
	}
	source, err := c.source()
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", c.address)
	if err != nil {
		return errors.Join(exit.Misuse("give another address, as in 127.0.0.1:8810", "--http: %v", err), source.Close())
	}
	o := web.Options{Hub: source.Hub, Ask: source.Ask(), Token: token, Version: core.Build(c.version).Version, Hosts: cfg.Hosts, TLS: h.TLS != nil, Words: exit.Words}
	if c.control {
		o.Control = source.Control()
	}
	scheme := "http"
	if h.TLS != nil {
		scheme, l = "https", tls.NewListener(l, h.TLS)
	}
	if _, err = fmt.Fprintf(c.streams.Stdout, "%s://%s/#token=%s\n", scheme, l.Addr(), token); err != nil {
		return errors.Join(err, l.Close(), source.Close())
	}
	if !c.cfg.Quiet {
		can := "read-only"
		if c.control {
			can = "can stop, allow, apply and open shells"
		}
		fmt.Fprintf(c.streams.Stderr, "sandboxbash: anyone with this address can watch (%s); Ctrl-C ends it, and sessions go on\n", can)
	}
	err = source.Run(ctx, func(ctx context.Context) error { return web.New(o).Serve(ctx, l) })
	err = errors.Join(err, source.Close())
	if err == nil && ctx.Err() != nil {
		return exit.StatusError(exit.Cancelled)
	}
	return err
}
