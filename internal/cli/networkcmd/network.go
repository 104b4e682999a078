// Package networkcmd is the command network: what the network rules of the configuration say of
// a host or a URL, and which rules there are. It needs no session and no engine.
package networkcmd

import (
	"context"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/network"
)

// commands are the commands that ask about network rules.
type commands struct {
	streams *stdio.Streams
	cfg     *core.Configuration
	notes   *core.Notes
}

const long = `Network rules name the hosts that a session without a network may reach. What no rule
allows is denied, and a deny rule wins. run and serve take rules for their sessions; the
commands here say what rules mean, without a session.

A rule is [METHODS ]HOST[:PORT][/PATH][ !TEXT], or a preset:
  example.com             its ports 80 and 443
  *.example.com:22        port 22 of all names below it
  10.1.0.0/16:5432        a range of addresses
  GET,HEAD pypi.org/simple/*
                          only these requests
  GET example.com !admin  requests without admin in their path and query
  @npm @pypi @go @cargo @apt, each with :ro too; @github @git
                          see sandboxbash network explain --allow @npm`

// Command is the command network.
func Command(p *core.Parts) *cobra.Command {
	a := &commands{streams: p.Streams, cfg: p.Cfg, notes: p.Notes}
	c := flags.Family("network", "Check what network rules allow, and why not",
		`  sandboxbash network check --allow @pypi https://pypi.org/simple/
  sandboxbash network check github.com:22
  sandboxbash network explain --allow @github`,
		a.checkCommand(), a.explainCommand())
	c.Long = long
	c.GroupID = flags.GroupSetup
	return c
}

// ruleFlags are the flags of all commands that ask about rules.
var ruleFlags = []string{"network.allow", "network.deny", "json"}

// policy is what the configuration says.
func (a *commands) policy() *network.Policy {
	n := a.cfg.NetworkRules
	return &network.Policy{Allow: n.Allow, Deny: n.Deny}
}

func (a *commands) checkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [flags] [METHOD] URL|HOST[:PORT]",
		Short: "Say whether a host or a URL may be reached",
		Long: `Say whether the rules allow a connection to a host and port, or a request for a URL, and
which rule decides. The default port is 443, and the default method GET. No connection is
made. With --resolve, this machine looks up the name, and the rules must allow its
addresses too. Exit status 126 if the answer is no, else 0.`,
		Example: `  sandboxbash network check --allow example.com https://example.com/
  sandboxbash network check --allow @github POST \
    https://github.com/o/r/git-receive-pack
  sandboxbash network check --allow db.test:5432 --resolve db.test:5432`,
		Args: flags.Args(1, 2, "a URL or a host, perhaps after a method"),
	}
	flags.Add(cmd, ruleFlags...)
	flags.Add(cmd, "network.resolve")
	cmd.RunE = a.cfg.Does(func(ctx context.Context, args []string) error {
		a.notes.Print()
		q, err := parseQuestion(args)
		if err != nil {
			return err
		}
		c := ask(a.policy(), q)
		if c.verdict.Allowed && a.cfg.NetworkRules.Resolve {
			if err := c.resolve(ctx, a.policy(), net.DefaultResolver); err != nil {
				return err
			}
		}
		if err := a.printCheck(c); err != nil {
			return err
		}
		if !c.verdict.Allowed {
			return exit.StatusError(exit.Denied)
		}
		return nil
	})
	return cmd
}

func (a *commands) explainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain [flags]",
		Short: "List the rules, where they come from, and what presets stand for",
		Example: `  sandboxbash network explain
  sandboxbash network explain --allow @npm:ro --json`,
		Args: flags.Args(0, 0, "no arguments"),
	}
	flags.Add(cmd, ruleFlags...)
	cmd.RunE = a.cfg.Does(func(context.Context, []string) error {
		a.notes.Print()
		return a.printRules()
	})
	return cmd
}

// check is a question and its answer.
type check struct {
	question  question
	verdict   network.Verdict
	request   bool // the verdict is for a request, and not for the connection alone
	addresses []network.Verdict
}

// ask asks a policy about the connection and, where requests are judged, about the request.
func ask(p *network.Policy, q question) check {
	c := check{question: q, verdict: p.Connect(q.host, q.port)}
	if c.verdict.Allowed && c.verdict.Intercept && q.target != "" {
		intercept := c.verdict.Intercept
		c.verdict, c.request = p.Request(q.host, q.port, q.method, q.target), true
		c.verdict.Intercept = intercept
	}
	return c
}

// lookupTimeout bounds a look-up: resolv.conf(5) has 5 s for a try, and two tries.
const lookupTimeout = 10 * time.Second

// resolve judges the addresses of the host. If all are refused so is the host.
func (c *check) resolve(ctx context.Context, p *network.Policy, r network.Resolver) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	verdicts, err := network.Addresses(ctx, p, r, c.verdict.Host, c.question.port)
	if err != nil {
		return err
	}
	c.addresses = verdicts
	for _, v := range verdicts {
		if v.Allowed {
			return nil
		}
	}
	c.verdict = verdicts[0]
	return nil
}
