// Package doctorcmd is the command doctor: what an engine can do for a session, and what of the
// configuration does nothing.
package doctorcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Levels of a finding.
const (
	levelOK   = "ok"
	levelWarn = "warn"
	levelFail = "fail"
)

// finding is one line of doctor.
type finding struct {
	Level string `json:"level"` // "ok", "warn" or "fail"
	Topic string `json:"topic"`
	Text  string `json:"text"`
	Todo  string `json:"todo,omitempty"`

	repair *repair // nil: it is not for doctor to change
}

// repair is what doctor --fix does about a finding. It must be safe: nothing that is in use is changed,
// and nothing is lost.
type repair struct {
	what string                                // said before
	do   func(context.Context) (string, error) // says what was done
}

func ok(topic, format string, args ...any) finding {
	return finding{Level: levelOK, Topic: topic, Text: fmt.Sprintf(format, args...)}
}

func warn(topic, text, todo string) finding {
	return finding{Level: levelWarn, Topic: topic, Text: text, Todo: todo}
}

func fail(topic, text, todo string) finding {
	return finding{Level: levelFail, Topic: topic, Text: text, Todo: todo}
}

// doctor is the command doctor.
type doctor struct {
	streams    *stdio.Streams
	cfg        *core.Configuration
	connection *core.Connection
	network    bool              // --network: try what can be reached
	fix        bool              // --fix: repair what can be repaired safely
	reportTo   string            // --report: a file for the report, or ""
	env        *core.Environment // says where the holders of networks are
	version    string            // of the program

	found []finding    // what was told
	info  *engine.Info // nil while no engine has answered
}

// Command is the command doctor.
func Command(p *core.Parts) *cobra.Command {
	a := &doctor{streams: p.Streams, cfg: p.Cfg, connection: p.Connection, env: p.Env, version: p.Version}
	cmd := &cobra.Command{
		Use: "doctor [flags]", Short: "Check the engine and the confinement of a session",
		Long: `Check the engine, and start a session to verify that it is confined as it should be.
Each line is ok, warn or fail, with what to do. Exit status 1 if any line is fail.

With --fix, repair what can be repaired without a risk, and say before and after what is
changed: take the right to change the configuration file from other users, and remove
leftovers of ended sessions, of which workspaces are kept as usual (keep.for).

With --report, also write what was found, and what the engine says of itself, to a file
that you can send to others: as JSON, without secrets and variables.`,
		Example: "  sandboxbash doctor\n  sandboxbash doctor --fix\n  sandboxbash doctor --image debian:stable-slim --json\n  sandboxbash doctor --network\n  sandboxbash doctor --report report.json",
		Args:    flags.Args(0, 0, "no arguments"), GroupID: flags.GroupSetup,
	}
	flags.Add(cmd, "image", "profile", "runtime", "json")
	cmd.Flags().BoolVar(&a.network, "network", false, "test from inside a session what it can reach without a network")
	cmd.Flags().BoolVar(&a.fix, "fix", false, "repair what can be repaired without a risk")
	cmd.Flags().StringVar(&a.reportTo, "report", "", "write what was found to a new file, `FILE`, that can be sent to others")
	cmd.RunE = a.cfg.Does(func(ctx context.Context, _ []string) error {
		var report *os.File
		if a.reportTo != "" {
			var err error
			if report, err = newReport(a.reportTo); err != nil {
				return err
			}
			defer report.Close()
		}
		a.diagnose(ctx, func(list ...finding) {
			for _, f := range list {
				a.tell(ctx, f)
			}
		})
		if ctx.Err() != nil {
			if report != nil {
				_ = os.Remove(a.reportTo) // it is empty, and would be in the next report's way
			}
			return context.Cause(ctx)
		}
		if report != nil {
			if err := a.writeReport(report); err != nil {
				return err
			}
		}
		if a.cfg.JSON {
			if err := stdio.PrintJSON(a.streams.Stdout, a.found); err != nil {
				return err
			}
		}
		if slices.ContainsFunc(a.found, func(f finding) bool { return f.Level == levelFail }) {
			return exit.StatusError(exit.Findings)
		}
		return nil
	})
	return cmd
}

// tell says what was found, and repairs it if it can and may.
func (a *doctor) tell(ctx context.Context, f finding) {
	if f.repair != nil && !a.fix {
		f.Todo += ", or `sandboxbash doctor --fix`"
	}
	f.Text, f.Todo = a.streams.Scrub(f.Text), a.streams.Scrub(f.Todo)
	a.found = append(a.found, f)
	if !a.cfg.JSON {
		a.printFinding(f)
	}
	if f.repair == nil || !a.fix || ctx.Err() != nil {
		return
	}
	if !a.cfg.JSON {
		a.printFinding(finding{Level: "fix", Topic: f.Topic, Text: a.streams.Scrub(f.repair.what)})
	}
	done, err := f.repair.do(ctx)
	if err != nil {
		a.tell(ctx, fail(f.Topic, "not repaired: "+err.Error(), f.Todo))
		return
	}
	a.tell(ctx, ok(f.Topic, "repaired: %s", done))
}

func (a *doctor) printFinding(f finding) {
	line := fmt.Sprintf("%-4s  %s: %s", f.Level, f.Topic, f.Text)
	if f.Todo != "" {
		line += " — " + f.Todo
	}
	fmt.Fprintln(a.streams.Stdout, a.streams.Safe(line))
}

// diagnose tells of one thing after another, for as long as the next makes sense.
func (a *doctor) diagnose(ctx context.Context, tell func(...finding)) {
	file := "no file; defaults, environment and flags"
	if a.cfg.File != "" {
		file = a.cfg.File
	}
	tell(ok("config", "%s", file))
	tell(fileFindings(a.cfg.File)...)
	tell(policyFindings(a.cfg.Policy)...)
	tell(agentFindings(a.cfg.Config)...)
	c, err := a.connection.Connect(ctx)
	if err != nil {
		tell(fail("engine", err.Error(), "start it, or name another with --engine"))
		return
	}
	info, err := c.Info(ctx)
	if err != nil {
		tell(fail("engine", err.Error(), "restart it"))
		return
	}
	a.info = &info
	tell(ok("engine", "%s %s at %s (%s/%s, kernel %s), %s", info.Name, info.Version, info.Address, info.OS, info.Arch, info.KernelVersion, namedBy(info.Source)))
	tell(ok("api", "version %s", info.APIVersion))
	tell(engineFindings(info)...)
	r, err := a.connection.Resolver(ctx)
	if err == nil {
		err = a.connection.Prepare(ctx, info.Arch)
	}
	if err != nil {
		tell(fail("runner", err.Error(), "use a build of sandboxbash with that runner"))
		return
	}
	tell(ok("runner", "there is one for linux/%s, and it is on the engine", info.Arch))
	tell(a.holders(ctx)...)
	tell(a.leftovers(ctx, r)...)
	tell(a.trySession(ctx, r)...)
	if a.network {
		tell(a.networkFindings(ctx, r)...)
	}
}

// holders tells of the processes that carry the connections of sessions that last. Sockets of those
// that were killed are removed.
func (a *doctor) holders(ctx context.Context) []finding {
	held, died, err := holder.Networks(ctx, a.env)
	if err != nil {
		return nil // this system has none
	}
	var out []finding
	if len(held) > 0 {
		out = append(out, ok("networks", "%d processes carry the connections of sessions that last", len(held)))
	}
	if died > 0 {
		out = append(out, warn("networks", fmt.Sprintf("%d processes that carried the connections of sessions were killed", died), "run a command in these sessions: it starts them again"))
	}
	return out
}

// engineFindings judges what an engine says of itself.
func engineFindings(info engine.Info) []finding {
	var out []finding
	if info.OS != "linux" {
		out = append(out, fail("engine", "it runs "+info.OS+" containers", "switch it to Linux containers"))
	}
	out = append(out, ok("cgroup", "version %s, driver %s", info.CgroupVersion, info.CgroupDriver))
	out = append(out, storageFinding(info.StorageDriver))
	out = append(out, ok("runtimes", "%s (default %s)", strings.Join(info.Runtimes, ", "), info.DefaultRuntime))
	if info.DefaultRuntime == "runc" {
		out = append(out, runcFinding(info.RuncVersion))
	}
	out = append(out, limitFindings(info)...)
	if info.Rootless {
		out = append(out, ok("rootless", "the engine runs without root; bind: workspaces need profile dev there, copy: works in both"))
	}
	if info.Remapped {
		out = append(out, ok("users", "the engine maps the users of sessions to others (userns-remap); bind: workspaces are refused, copy: works"))
	}
	if slices.ContainsFunc(info.SecurityOpts, func(o string) bool { return strings.HasPrefix(strings.TrimPrefix(o, "name="), "seccomp") }) {
		out = append(out, ok("seccomp", "available"))
	} else {
		out = append(out, fail("seccomp", "the engine has none, and profile strict needs it", "use a kernel and an engine that were built with seccomp"))
	}
	for _, w := range info.Warnings {
		out = append(out, warn("engine", w, "see the engine's documentation"))
	}
	return out
}

// limitFindings tells of limits that the engine would drop without a word.
func limitFindings(info engine.Info) []finding {
	if len(info.Unenforced) == 0 {
		return []finding{ok("limits", "memory, swap, pids and cpus are enforced")}
	}
	todo := "enable that controller of the kernel's cgroups"
	if info.Rootless {
		todo = "use cgroup version 2 with systemd, and delegate that controller to the user"
	}
	var out []finding
	for _, name := range info.Unenforced {
		if name == "swap" {
			out = append(out, warn("limits", "swap is not limited: a session can use swap beyond its memory", "boot with swapaccount=1, or without swap"))
			continue
		}
		out = append(out, fail("limits", name+" is not limited, and profile strict refuses to start", todo))
	}
	return out
}

// tryTime bounds the trial.
const tryTime = 2 * time.Minute

// trySession starts a session as run would, and looks at what it finds there.
func (a *doctor) trySession(ctx context.Context, r *images.Resolver) []finding {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	spec, err := a.cfg.Spec()
	if err != nil {
		return []finding{fail("session", err.Error(), "")}
	}
	spec.Workspace, spec.Lease = sandbox.Workspace{Kind: sandbox.WorkspaceVolume, Target: sandbox.DefaultTarget}, sandbox.DefaultLease
	sessions := a.connection.Unobserved(r, sandbox.Options{})
	start := time.Now()
	s, err := sessions.Start(ctx, spec)
	if err != nil {
		return []finding{startFailure(err)}
	}
	took := time.Since(start).Round(time.Millisecond)
	out := []finding{ok("session", "started from %s in %v, confined as profile %s should be", s.Info().Image, took, spec.Profile)}
	for _, n := range s.Notes() {
		out = append(out, warn("session", n, ""))
	}
	out = append(out, toolFindings(ctx, s)...)
	if err := s.Stop(ctx); err != nil {
		out = append(out, fail("session", "it could not be removed: "+err.Error(), "remove it with `sandboxbash session reap`"))
	}
	return append(out, bindFinding(ctx, sessions, spec))
}

// bindFinding tries whether the engine has this machine's directories at their
// paths: it has not where it is elsewhere, or where this process is in a container
// of an engine whose socket it was given.
func bindFinding(ctx context.Context, sessions *sandbox.Engine, spec sandbox.Spec) finding {
	here, err := sandbox.ParseWorkspace("bind:.:ro:at=" + sandbox.DefaultTarget)
	if err != nil {
		return warn("bind", err.Error(), "")
	}
	spec.Workspace = here
	if spec.Profile == sandbox.Strict { // its owner does not matter: only its location is checked
		spec.User = &sandbox.User{UID: 65534, GID: 65534}
	}
	s, err := sessions.Start(ctx, spec)
	if err != nil {
		const todo = "give sessions a copy with --workspace copy:DIR"
		if _, foreign := errors.AsType[*sandbox.ForeignBindError](err); foreign {
			return warn("bind", "the engine does not see "+here.Dir+" as this process does: it is elsewhere, or this process is in a container", todo)
		}
		return warn("bind", err.Error(), todo)
	}
	if err := s.Stop(ctx); err != nil {
		return fail("bind", "the session could not be removed: "+err.Error(), "remove it with `sandboxbash session reap`")
	}
	return ok("bind", "the engine sees %s as this process does", here.Dir)
}

func startFailure(err error) finding {
	if p, ok := errors.AsType[*sandbox.PostureError](err); ok {
		return fail("posture", strings.Join(p.Mismatches, "; "), "this engine does not confine containers as asked: compare the lines above, and use another engine or runtime")
	}
	return fail("session", err.Error(), exit.Judge(err).Todo)
}

// toolFindings looks for what agents expect of an image.
func toolFindings(ctx context.Context, s *sandbox.Session) []finding {
	const script = `for t in bash git; do command -v $t >/dev/null && echo $t; done; whoami >/dev/null 2>&1 && echo whoami; true`
	try := func(shell string) (sandbox.Result, error) {
		return s.Run(ctx, sandbox.Command{Script: script, Shell: shell, Timeout: tryTime / 4, Output: sink.Options{Artifact: sink.Never}})
	}
	res, err := try("bash")
	if e, isExec := errors.AsType[*exec.Error](err); isExec && e.Cause == exec.CauseNoShell {
		res, err = try("sh")
	}
	if err != nil {
		return []finding{fail("command", err.Error(), exit.Judge(err).Todo)}
	}
	if res.Reason != exec.Exited || res.Code != 0 {
		return []finding{fail("command", fmt.Sprintf("a simple command ended as %s with code %d", res.Reason, res.Code), "use another image")}
	}
	out := []finding{ok("command", "ran in %v", res.Elapsed.Round(time.Microsecond))}
	has := strings.Fields(res.Output.Stdout.Text())
	for _, t := range []struct{ name, without string }{
		{"bash", "give --shell sh, or use an image with bash"},
		{"git", "git does not work in its sessions; use an image with git where that matters"},
		{"whoami", "programs that look up the user's name do not find it"},
	} {
		if slices.Contains(has, t.name) {
			out = append(out, ok("tools", "%s works", t.name))
		} else {
			out = append(out, warn("tools", "the image has no working "+t.name, t.without))
		}
	}
	return out
}

// storageFinding tells of drivers that make every program's start slow: a
// process of theirs answers for each part of each path that is looked up.
func storageFinding(driver string) finding {
	if strings.HasPrefix(driver, "fuse") {
		return warn("storage", driver+": programs start slowly, because each path they look up is asked of another process",
			"use overlay2 where the kernel allows it")
	}
	return ok("storage", "%s", driver)
}

// policyFindings is what doctor says of the configured policy.
func policyFindings(c config.Policy) []finding {
	const topic = "policy"
	o := core.PolicyOptions(c, nil)
	_, warnings, err := policy.New(o)
	if err != nil {
		return []finding{fail(topic, err.Error(), "correct it, or turn policy.strict off")}
	}
	var out []finding
	for _, w := range warnings {
		out = append(out, warn(topic, w.Text, "correct its pattern in the configuration file"))
	}
	if text := core.Idle(o); text != "" {
		out = append(out, warn(topic, text, "name the agent's tools"))
	}
	text := fmt.Sprintf("run has %d safety checks, %d further sets and %d rules of the interceptor; what cannot be known is %s",
		len(o.Checks), len(o.Sets), len(o.Rules)-len(warnings), map[policy.Mode]string{policy.Standard: "run", policy.Guarded: "refused"}[o.Mode])
	return append(out, ok(topic, "%s", text))
}

// agentFindings tell what a server would not do.
func agentFindings(c *config.Config) []finding {
	if (c.Agent.Interceptor || c.Policy.Interceptor) && len(c.Agent.ToolNames) == 0 {
		return []finding{warn("agent", "the interceptor is on, but over MCP it is unknown which tools the agent has: none of its rules applies there", "name them in agent.toolNames")}
	}
	return nil
}
