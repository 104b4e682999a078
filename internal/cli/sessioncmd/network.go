package sessioncmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/audit"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/internal/serve"
	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// networks are the commands about what a session may reach, and what it has reached.
type networks struct {
	streams    *stdio.Streams
	env        *core.Environment
	cfg        *core.Configuration
	notes      *core.Notes
	connection *core.Connection
}

func (a *networks) allowCommand() *cobra.Command {
	return a.changeCommand("allow", "Allow a session to reach more, or take that back",
		`Add rules for what a session may reach, or take rules back with --remove. They hold for
the next connection. A deny rule wins over them. They stay if the process that carries the
session's connections is started again. `+"`sandboxbash network --help`"+` says how to write rules.

It works for sessions that `+"`session start`"+` has started. Agents have no tool that does the same.`,
		`  sandboxbash session allow -- @pypi api.example.com
  sandboxbash session allow --remove @pypi web`)
}

func (a *networks) denyCommand() *cobra.Command {
	return a.changeCommand("deny", "Deny a session what its rules allow, or take that back",
		`Add rules for what a session may not reach although a rule allows it, or take rules back
with --remove. Connections that are open and denied by now are cut, and the next ones are
refused. The rules stay if the process that carries the session's connections is started
again.`,
		`  sandboxbash session deny -- registry.yarnpkg.com
  sandboxbash session deny --remove registry.yarnpkg.com web`)
}

func (a *networks) changeCommand(name, short, long, example string) *cobra.Command {
	cmd := &cobra.Command{
		Use: name + " [flags] [SESSION|--] [RULE...]", Short: short, Long: long, Example: example,
		ValidArgsFunction: a.connection.CompleteSession,
	}
	flags.Add(cmd, "session.id", "network.remove", "json", "quiet")
	sample := "sandboxbash session " + name + " -- example.com"
	cmd.RunE = a.notes.OneObject(a.connection.AsksOf(sample, func(ctx context.Context, sessions *sandbox.Engine, ref string, words []string) error {
		if err := checkRules(words); err != nil {
			return err
		}
		remove := network.Texts(a.cfg.NetworkRules.Remove)
		if len(words) == 0 && len(remove) == 0 {
			return exit.Misuse("give rules after the session, as in `sandboxbash session "+name+" web example.com`, or after --, as in `"+sample+"`, or --remove RULE", "there is no rule to %s", name)
		}
		info, err := a.held(ctx, sessions, ref)
		if err != nil {
			return err
		}
		c, err := a.dial(ctx, info.ID)
		if err != nil {
			return err
		}
		defer c.Close() //nolint:errcheck // all was said
		var rules serve.NetworkRules
		params := map[string]any{"rules": words, "remove": remove}
		if err := c.Call(ctx, holder.AskTime, "network/"+name, params, &rules); err != nil {
			return err
		}
		return a.printRules(info.ID, rules)
	}))
	return cmd
}

// checkRules refuses rules that are not well formed, before anything is asked.
func checkRules(texts []string) error {
	for i, text := range texts {
		_, err := network.ParseRule(text)
		if bad, ok := errors.AsType[*network.RuleError](err); ok {
			return exit.Misuse(bad.Hint, "rule %d, column %d: %s", i+1, bad.Column, bad.Text)
		}
	}
	return nil
}

// held describes a session whose connections a process of this machine carries, or can carry.
func (a *networks) held(ctx context.Context, sessions *sandbox.Engine, ref string) (sandbox.Info, error) {
	info, err := a.connection.Find(ctx, sessions, ref)
	switch {
	case err != nil:
		return info, err
	case info.Kept != nil:
		return info, exit.Misuse("", "session %s has ended: it reaches nothing any more", info.ID)
	case info.Network != sandbox.NetworkNone:
		return info, exit.Misuse("start a session without --network", "session %s has network %s: rules are exceptions from network none", info.ID, info.Network)
	case info.Rules == nil || !info.Rules.Detached:
		return info, exit.Misuse("change them there: the methods network/allow and network/deny of `serve rpc` do",
			"session %s belongs to the process that started it (%s), which carries its connections", info.ID, ownerText(info.Owner))
	}
	return info, nil
}

// ownerText is the process of a session's owner, for people.
func ownerText(owner string) string {
	if f := strings.Split(owner, "/"); len(f) == 3 {
		return "process " + f[1] + " on host " + f[0]
	}
	return owner
}

// dial connects to the process that carries a session's connections, which it starts if there is
// none.
func (a *networks) dial(ctx context.Context, session string) (*holder.Client, error) {
	dir, err := holder.NetworkDir(a.env)
	if err != nil {
		return nil, err
	}
	c, err := holder.DialNetwork(ctx, dir, session)
	if errors.Is(err, holder.ErrKilled) || errors.Is(err, holder.ErrNotHeld) {
		if err := a.connection.HoldNetwork(ctx, session); err != nil {
			return nil, err
		}
		c, err = holder.DialNetwork(ctx, dir, session)
	}
	return c, err
}

func (a *networks) printRules(session string, rules serve.NetworkRules) error {
	for _, n := range rules.Notes {
		a.notes.Add(n)
	}
	if a.cfg.JSON {
		rules.Notes = a.notes.Gathered()
		return stdio.PrintJSON(a.streams.Stdout, struct {
			Session string `json:"session"`
			serve.NetworkRules
		}{session, rules})
	}
	if a.cfg.Quiet {
		return nil
	}
	var b strings.Builder
	for _, r := range rules.Allow {
		b.WriteString("allow  " + r + "\n")
	}
	for _, r := range rules.Deny {
		b.WriteString("deny   " + r + "\n")
	}
	_, err := io.WriteString(a.streams.Stdout, a.streams.Clean(b.String()))
	return err
}

func (a *networks) recordCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "network [flags] [SESSION]", Short: "Show the connections of a session",
		Long: `Show the connections and requests of a session, and the names that it was refused: the
last 1,000 that have ended, oldest first. With --follow, go on until Ctrl-C or the end of
the session. Secrets are masked. With --json, print one object per line.

If run or serve carries the session's connections, this command reads the audit log,
which must be on.`,
		Example:           "  sandboxbash session network\n  sandboxbash session network --follow --json web |\n    jq -c 'select(.allowed | not)'",
		ValidArgsFunction: a.connection.CompleteSession,
	}
	flags.Add(cmd, "session.id", "job.follow", "network.limit", "json")
	cmd.Flags().Lookup("follow").Usage = "go on with the connections that end from now on"
	cmd.RunE = a.connection.AsksOf("", func(ctx context.Context, sessions *sandbox.Engine, ref string, _ []string) error {
		if a.cfg.NetworkRules.Limit > sandbox.MaxConnections {
			return exit.Misuse(fmt.Sprintf("give at most %d", sandbox.MaxConnections), "--limit %d: no more connections are remembered than %d", a.cfg.NetworkRules.Limit, sandbox.MaxConnections)
		}
		info, err := a.connection.Find(ctx, sessions, ref)
		if err != nil {
			return err
		}
		return a.record(ctx, info)
	})
	return cmd
}

func (a *networks) record(ctx context.Context, info sandbox.Info) error {
	dir, err := holder.NetworkDir(a.env)
	var c *holder.Client
	if err == nil {
		c, err = holder.DialNetwork(ctx, dir, info.ID)
	}
	if err != nil {
		return a.recorded(info)
	}
	defer c.Close() //nolint:errcheck // all was said
	table := recordTable{streams: a.streams, json: a.cfg.JSON}
	follow := a.cfg.Job.Follow
	params := map[string]any{"limit": a.cfg.NetworkRules.Limit}
	patience := holder.AskTime
	for {
		var log serve.NetworkLog
		err := c.Call(ctx, patience, "network/log", params, &log)
		switch {
		case ctx.Err() != nil:
			return exit.StatusError(exit.Cancelled)
		case errors.Is(err, holder.ErrKilled) && patience == core.FollowTime:
			a.notes.Add("the process that carries the connections has ended")
			return nil
		case err != nil:
			return err
		}
		if log.Missed > 0 {
			a.notes.Add(fmt.Sprintf("%d connections are not remembered any more", log.Missed))
		}
		for _, one := range log.Connections {
			if err := table.row(one); err != nil {
				return err
			}
		}
		if !follow {
			return nil
		}
		params, patience = map[string]any{"after": log.Next, "wait": true}, core.FollowTime
	}
}

// recorded shows what the audit log has of a session's connections.
func (a *networks) recorded(info sandbox.Info) error {
	where := "the process that carries them (" + ownerText(info.Owner) + ") remembers them: ask it by its method network/log"
	if info.Rules == nil || info.Rules.Detached {
		where = "no process carries them at the moment"
	}
	if a.cfg.Job.Follow {
		return exit.Misuse("leave --follow out to read the audit log", "the connections of session %s cannot be followed: %s", info.ID, where)
	}
	var rows []serve.LoggedConnection
	err := audit.Each(a.cfg.AuditDir(), func(r audit.Record, _ audit.Problem, _ []byte) error {
		if r.Kind != audit.Connection || r.Session != info.ID {
			return nil
		}
		var one serve.LoggedConnection
		if json.Unmarshal(r.Network, &one.Connection) != nil {
			return nil //nolint:nilerr // of another version of ours
		}
		one.Ms = max(0, r.Time.Sub(one.Time).Milliseconds())
		rows = append(rows, one)
		return nil
	}, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return exit.Misuse("keep an audit log with audit.enabled: true in the configuration", "there is no record of the connections of session %s here: %s", info.ID, where)
	}
	if n := a.cfg.NetworkRules.Limit; n > 0 && len(rows) > n {
		rows = rows[len(rows)-n:]
	}
	table := recordTable{streams: a.streams, json: a.cfg.JSON}
	for _, one := range rows {
		err = errors.Join(err, table.row(one))
	}
	return err
}

// recordTable prints connections as they come, in columns that fit 80 characters.
type recordTable struct {
	streams *stdio.Streams
	json    bool
	begun   bool
}

const (
	recordForm = "%-8s  %-5s  %-27s  %6s  %6s  %6s  %s\n"
	// hostWidth and ruleWidth are those of the columns whose texts may be longer.
	hostWidth, ruleWidth = 27, 10
	// belowWidth is that of a line below a row, behind its indentation.
	belowWidth = 70
)

func (t *recordTable) row(c serve.LoggedConnection) error {
	if t.json {
		return stdio.PrintJSON(t.streams.Stdout, c)
	}
	var b strings.Builder
	if !t.begun {
		t.begun = true
		fmt.Fprintf(&b, recordForm, "TIME", "", "TO", "SENT", "RECVD", "TOOK", "RULE")
	}
	verdict, why := "deny", c.Rule
	if c.Allowed {
		verdict = "allow"
	} else if why == "" {
		why = string(c.Reason)
	}
	to := c.Host
	if c.Port > 0 {
		to = fmt.Sprintf("%s:%d", c.Host, c.Port)
	}
	fmt.Fprintf(&b, recordForm, c.Time.Local().Format(time.TimeOnly), verdict, t.fit(to, hostWidth), size(c.Sent), size(c.Received), took(c.Ms), t.fit(why, ruleWidth))
	if below := below(c); below != "" {
		b.WriteString("          " + t.fit(below, belowWidth) + "\n")
	}
	_, err := io.WriteString(t.streams.Stdout, b.String())
	return err
}

// below says more of a connection: the request, and why it failed.
func below(c serve.LoggedConnection) string {
	var words []string
	if c.Method != "" {
		words = append(words, c.Method+" "+c.Path)
	}
	if c.Status != 0 {
		words = append(words, fmt.Sprint(c.Status))
	}
	if c.Err != "" {
		words = append(words, c.Err)
	}
	return strings.Join(words, "  ")
}

// fit shortens a text to a width. What a table shortens, --json has.
func (t *recordTable) fit(text string, width int) string {
	runes := []rune(t.streams.Name(text))
	if len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return string(runes)
}

func size(bytes int64) string {
	return units.CustomSize("%.3g%s", float64(bytes), 1000, []string{"", "k", "M", "G", "T"})
}

func took(ms int64) string {
	if ms < 10_000 {
		return fmt.Sprintf("%dms", ms)
	}
	return fmt.Sprintf("%ds", ms/1000)
}

// describeNetwork is what show says of a session's network: its rules, and whether it is there.
func (a *commands) describeNetwork(ctx context.Context, s sandbox.Info) [][2]string {
	if s.Rules == nil {
		return nil
	}
	allow, deny, way := s.Rules.Allow, s.Rules.Deny, "carried by the process that started the session"
	if s.Rules.Detached {
		if newAllow, newDeny, err := holder.LoadRules(a.env, s.ID); err == nil {
			allow, deny = network.Texts(newAllow), network.Texts(newDeny)
		}
		way = a.wayOut(ctx, s)
		if len(allow)+len(deny) == 0 {
			return nil
		}
	}
	var secrets []string
	for _, one := range s.Rules.Secrets {
		secrets = append(secrets, one.Name+" to "+strings.Join(one.Hosts, ", "))
	}
	return [][2]string{
		{"allow", strings.Join(allow, ", ")},
		{"deny", strings.Join(deny, ", ")},
		{"secrets", strings.Join(secrets, "; ")},
		{"connections", way},
	}
}

// wayOut says whether a process carries a session's connections.
func (a *commands) wayOut(ctx context.Context, s sandbox.Info) string {
	const next = "; the next command starts one"
	dir, err := holder.NetworkDir(a.env)
	if err != nil {
		return "refused: " + exit.Words(err)
	}
	c, err := holder.DialNetwork(ctx, dir, s.ID)
	if err != nil {
		return "refused: " + exit.Words(err) + next
	}
	defer c.Close() //nolint:errcheck // all was said
	var status serve.NetworkStatus
	if err := c.Call(ctx, holder.AskTime, "network/status", nil, &status); err != nil {
		return "refused: " + exit.Words(err)
	}
	return fmt.Sprintf("carried by process %d", status.PID)
}
