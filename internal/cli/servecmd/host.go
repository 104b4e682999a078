package servecmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/docker/go-units"

	"github.com/sandboxbash/sandboxbash/agent"
	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/policycmd"
	"github.com/sandboxbash/sandboxbash/internal/serve"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
	"github.com/sandboxbash/sandboxbash/tool"
)

// host starts the sessions of a server. The engine is looked for at the first
// of them.
type host struct {
	env        *core.Environment
	cfg        *core.Configuration
	notes      *core.Notes
	secrets    *core.Secrets
	artifacts  *core.Artifacts
	connection *core.Connection
	observers  *core.Observers

	settings tool.Settings
	spec     sandbox.Spec
	rc       string
	urls     tool.URLs
	scratch  string // a directory of this process, for local://

	unscratch func() error // removes it

	rows   sync.Mutex // one question to the policy at a time
	mu     sync.Mutex
	engine *sandbox.Engine // guarded by mu; nil until it was found
	store  *sink.Store     // guarded by mu

	policies map[string]*policy.Policy // guarded by rows
	warming  sync.WaitGroup
	end      context.CancelFunc // of what is prepared
}

// agentOwner is whose the jobs of served sessions are.
const agentOwner = "agent"

// newHost returns a host that has read and started nothing.
func newHost(p *core.Parts) *host {
	return &host{
		env: p.Env, cfg: p.Cfg, notes: p.Notes, secrets: p.Secrets, artifacts: p.Artifacts, connection: p.Connection, observers: p.Observers,
		policies: map[string]*policy.Policy{},
	}
}

// open reads what agents are given of this machine, and begins to prepare sessions. The
// host's close is the caller's.
func (h *host) open(settings tool.Settings, spec sandbox.Spec) error {
	h.settings, h.spec = settings, spec
	var err error
	if h.rc, err = readRC(h.cfg.Agent.RC); err != nil {
		return err
	}
	if h.urls, err = agentURLs(h.cfg.Agent); err != nil {
		return err
	}
	if h.scratch, h.unscratch, err = newScratch(); err != nil {
		return err
	}
	ctx, end := context.WithCancel(context.Background())
	h.end = end
	if h.cfg.Session.Warm > 0 {
		h.warming.Go(func() { h.warm(ctx) })
	}
	return nil
}

// maxRC bounds the file of agent.rc.
const maxRC = 1 << 20 // bytes

func readRC(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", exit.Misuse("", "agent.rc: %v", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRC+1))
	if err == nil && len(b) > maxRC {
		err = fmt.Errorf("%s is longer than %d bytes", path, maxRC)
	}
	if err != nil {
		return "", exit.Misuse("", "agent.rc: %v", err)
	}
	return string(b), nil
}

// agentURLs is what internal URLs stand for, but for those of a session.
func agentURLs(c config.Agent) (tool.URLs, error) {
	var u tool.URLs
	for _, dir := range c.Skills {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return u, exit.Misuse("", "agent.skills: %v", err)
		}
		for _, e := range entries {
			skill := tool.Skill{Name: e.Name(), Dir: filepath.Join(dir, e.Name())}
			if _, err := os.Stat(filepath.Join(skill.Dir, "SKILL.md")); err == nil {
				u.Skills = append(u.Skills, skill)
			}
		}
	}
	roots := tool.Roots{Memory: c.Memory, Rules: map[string]string{}}
	for _, path := range c.Rules {
		roots.Rules[strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))] = path
	}
	u.Resolver = roots
	return u, nil
}

// warm prepares sessions before a client asks for one.
func (h *host) warm(ctx context.Context) {
	engine, _, err := h.sessions(ctx)
	if err == nil {
		err = engine.Warm(ctx, h.leased(h.spec, ""))
	}
	if err != nil && ctx.Err() == nil {
		h.notes.Add("no sessions were prepared: " + exit.Words(err))
	}
}

// sessions returns the owner of sessions, and the store of their artifacts.
func (h *host) sessions(ctx context.Context) (*sandbox.Engine, *sink.Store, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.engine != nil {
		return h.engine, h.store, nil
	}
	store, err := h.artifacts.OutputStore()
	if err != nil {
		return nil, nil, err
	}
	c := h.cfg.Session
	owner, err := h.connection.Owner(ctx, sandbox.Options{Ahead: c.Ahead, Warm: c.Warm})
	if err != nil {
		return nil, nil, err
	}
	h.engine, h.store = owner, store
	return h.engine, h.store, nil
}

// policy is the policy of a contract, made once for each list of tools.
func (h *host) policy(contract tool.Name, tools []string) (*policy.Policy, error) {
	h.rows.Lock()
	defer h.rows.Unlock()
	key := fmt.Sprintf("%s %q", contract, tools)
	if made := h.policies[key]; made != nil {
		return made, nil
	}
	rules, err := agentPolicy(h.cfg.Config, h.notes.Add, contract, tools)
	if err != nil {
		return nil, err
	}
	if len(h.policies) >= policycmd.MaxPolicies {
		clear(h.policies)
	}
	h.policies[key] = rules
	return rules, nil
}

// agentPolicy is what decides about an agent's commands: what the contract has, and
// what the configuration says.
func agentPolicy(cfg *config.Config, note func(text string), contract tool.Name, tools []string) (*policy.Policy, error) {
	c := cfg.Policy // a copy
	c.Interceptor, c.Tools = c.Interceptor || cfg.Agent.Interceptor, tools
	var checks []string
	if contract == tool.Modes {
		checks = policy.CheckNames()
	}
	return core.NewPolicy(core.PolicyOptions(c, checks), note)
}

// leased is a spec with its lease: sessions end soon after their server, unless
// they are to be found again.
func (h *host) leased(s sandbox.Spec, idle string) sandbox.Spec {
	s.Lease, s.Keep = sandbox.DefaultLease, h.cfg.KeepFor()
	if h.cfg.Session.Ahead == 0 { // nothing is heard of an idle one
		s.Lease = max(s.Lease, h.cfg.Idle())
	}
	if d, err := time.ParseDuration(idle); err == nil && d > 0 {
		s.Lease = d
	}
	return s
}

// Start implements serve.Host.
func (h *host) Start(ctx context.Context, r serve.SessionRequest) (*serve.Session, error) {
	engine, store, err := h.sessions(ctx)
	if err != nil {
		return nil, err
	}
	rules, err := h.policy(r.Contract, r.Tools)
	if err != nil {
		return nil, err
	}
	box, err := h.box(ctx, engine, r)
	if err != nil {
		return nil, err
	}
	live, err := agent.Open(box, h.options(box, store, rules, r))
	if err != nil {
		if r.Attach == "" {
			err = errors.Join(err, box.Stop(context.WithoutCancel(ctx)))
		} else {
			box.Release()
		}
		return nil, err
	}
	session := serve.NewSession(box, serve.Live{
		Engine: engine, Tool: live, Store: store, Scrub: h.secrets.Known(), Env: h.secrets.CommandEnv(),
		Output: h.cfg.OutputOptions(), Policy: rules, Owner: agentOwner,
	})
	if info := box.Info(); info.Rules != nil && info.Rules.Detached {
		session.HeldNetwork = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
			return h.connection.AskNetwork(ctx, info, method, params)
		}
	}
	return session, nil
}

// box starts or opens a session.
func (h *host) box(ctx context.Context, engine *sandbox.Engine, r serve.SessionRequest) (*sandbox.Session, error) {
	if r.Attach != "" {
		return engine.Open(ctx, r.Attach)
	}
	spec, err := shaped(h.spec, r.Shape)
	if err == nil && r.Shape.Workspace != "" { // the server's own was looked at before
		err = h.cfg.CheckWorkspace(spec.Workspace)
	}
	if refused, ok := errors.AsType[*exit.UsageError](err); ok {
		err = &sandbox.InputError{Field: "workspace", Text: "workspace: " + refused.Text + "\n  " + refused.Todo}
	}
	if err != nil {
		return nil, err
	}
	if r.Ask != nil {
		spec.AskNetwork, spec.AskTime = r.Ask, h.cfg.NetworkRules.AskTime
	}
	box, err := engine.Start(ctx, h.leased(spec, r.Shape.Idle))
	if err == nil {
		box.Baseline(ctx)
		h.notes.OfSession(box)
	}
	return box, err
}

// shaped is a spec with what a client wants otherwise.
func shaped(s sandbox.Spec, w serve.Shape) (sandbox.Spec, error) {
	bad := func(field, format string, args ...any) (sandbox.Spec, error) {
		return s, &sandbox.InputError{Field: field, Text: field + ": " + fmt.Sprintf(format, args...)}
	}
	s.Image, s.Runtime = cmp.Or(w.Image, s.Image), cmp.Or(w.Runtime, s.Runtime)
	s.Profile, s.Network = cmp.Or(sandbox.Profile(w.Profile), s.Profile), cmp.Or(sandbox.Network(w.Network), s.Network)
	var err error
	if w.Workspace != "" {
		if s.Workspace, err = sandbox.ParseWorkspace(w.Workspace); err != nil {
			return bad("workspace", "%v", err)
		}
	}
	if w.User != "" {
		if s.User, err = sandbox.ParseUser(w.User); err != nil {
			return bad("user", "%v", err)
		}
	} else if w.Profile != "" || w.Workspace != "" {
		s.User = nil // by those
	}
	for _, size := range []struct {
		name, text string
		bytes      *int64
	}{
		{"memory", w.Memory, &s.Limits.Memory},
		{"disk", w.Disk, &s.Limits.Disk},
		{"home", w.Home, &s.Limits.Home},
		{"tmp", w.Tmp, &s.Limits.Tmp},
	} {
		if size.text == "" {
			continue
		}
		if *size.bytes, err = units.RAMInBytes(size.text); err != nil {
			return bad(size.name, "%s is not a size", strconv.Quote(size.text))
		}
	}
	s.Limits.CPUs, s.Limits.Pids = cmp.Or(w.CPUs, s.Limits.CPUs), cmp.Or(w.Pids, s.Limits.Pids)
	if w.Idle != "" {
		if d, err := time.ParseDuration(w.Idle); err != nil || d < time.Second {
			return bad("idle", "%s is not a duration of at least 1s", strconv.Quote(w.Idle))
		}
	}
	return s, nil // the rest is for Start to say
}

// options say how an agent uses a session.
func (h *host) options(box *sandbox.Session, store *sink.Store, rules policy.Checker, r serve.SessionRequest) agent.SessionOptions {
	urls := h.urls
	if roots, ok := urls.Resolver.(tool.Roots); ok && store != nil {
		roots.Artifacts = filepath.Join(h.artifacts.Dir(), box.ID())
		urls.Resolver = roots
	}
	urls.Local = &tool.Local{Session: box.ID(), Temp: h.scratch}
	return agent.SessionOptions{
		Contract: r.Contract, Settings: h.settings, Tools: r.Tools, UI: r.UI, NoPTY: h.env.Getenv("PI_NO_PTY") == "1",
		URLs: urls, Policy: rules, Owner: agentOwner,
		Prefix: cmp.Or(h.cfg.Agent.Prefix, h.env.Getenv("PI_SHELL_PREFIX"), h.env.Getenv("CLAUDE_CODE_SHELL_PREFIX")),
		RC:     h.rc, Env: h.secrets.CommandEnv(), Client: r.Terminal, Secrets: h.secrets.Known(), Log: h.observers.Log(),
		Artifacts: h.cfg.ArtifactMode(),
	}
}

// List implements serve.Host.
func (h *host) List(ctx context.Context) ([]sandbox.Info, error) {
	engine, _, err := h.sessions(ctx)
	if err != nil {
		return nil, err
	}
	return engine.List(ctx)
}

// close ends what was prepared, when all clients have gone.
func (h *host) close() error {
	h.end()
	h.warming.Wait()
	h.mu.Lock()
	engine := h.engine
	h.mu.Unlock()
	err := h.unscratch()
	if engine != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = errors.Join(err, engine.Close(ctx))
	}
	return err
}
