package servecmd

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/serve"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
)

// A client changes what it names of the server's session, and nothing else; what it must not
// ask for is refused by the field's name.
func TestShaped(t *testing.T) {
	t.Parallel()
	user := &sandbox.User{UID: 5, GID: 6}
	base := sandbox.Spec{Image: "base", Profile: sandbox.Strict, Network: sandbox.NetworkNone, User: user, Limits: sandbox.Limits{Memory: 7, Pids: 8, CPUs: 1}}
	for _, tt := range []struct {
		name  string
		shape serve.Shape
		want  func(*sandbox.Spec)
	}{
		{"nothing", serve.Shape{}, func(*sandbox.Spec) {}},
		{"image and network", serve.Shape{Image: "x", Network: "bridge"}, func(s *sandbox.Spec) { s.Image, s.Network = "x", "bridge" }},
		{"limits", serve.Shape{Memory: "1g", Pids: 9, CPUs: 2, Tmp: "1m"}, func(s *sandbox.Spec) {
			s.Limits.Memory, s.Limits.Tmp, s.Limits.Pids, s.Limits.CPUs = 1<<30, 1<<20, 9, 2
		}},
		{"user", serve.Shape{User: "9:9", Profile: "dev"}, func(s *sandbox.Spec) { s.Profile, s.User = sandbox.Dev, &sandbox.User{UID: 9, GID: 9} }},
		{"another profile has another user", serve.Shape{Profile: "dev"}, func(s *sandbox.Spec) { s.Profile, s.User = sandbox.Dev, nil }},
		{"idle is for the lease", serve.Shape{Idle: "5m"}, func(*sandbox.Spec) {}},
	} {
		want := base
		tt.want(&want)
		got, err := shaped(base, tt.shape)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: shaped() = %+v, %v; want %+v", tt.name, got, err, want)
		}
	}
	for field, shape := range map[string]serve.Shape{
		"workspace": {Workspace: "nfs:/x"}, "user": {User: "root"}, "memory": {Memory: "much"}, "disk": {Disk: "x"}, "home": {Home: "-"}, "tmp": {Tmp: "1x1"},
		"idle": {Idle: "10ms"},
	} {
		_, err := shaped(base, shape)
		e, ok := err.(*sandbox.InputError) //nolint:errorlint // it is not wrapped
		if !ok || e.Field != field || !strings.HasPrefix(e.Error(), field+": ") {
			t.Errorf("shaped(%+v) = %v; want an error of field %s", shape, err, field)
		}
	}
}

// Sessions end soon after their server, unless the server hears nothing of an idle one, or
// the client names a time.
func TestLeased(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		c    config.Config
		idle string
		want time.Duration
		keep time.Duration
	}{
		{"as usual", config.Config{Session: config.Session{Ahead: 1, Idle: 8 * time.Hour}}, "", sandbox.DefaultLease, 0},
		{"nothing ahead of need", config.Config{Session: config.Session{Idle: 8 * time.Hour}}, "", 8 * time.Hour, 0},
		{"never shorter", config.Config{Session: config.Session{Idle: time.Second}}, "", sandbox.DefaultLease, 0},
		{"the client's", config.Config{Session: config.Session{Idle: 8 * time.Hour}}, "5m", 5 * time.Minute, 0},
		{"kept", config.Config{Session: config.Session{Ahead: 1}, Keep: config.Keep{For: time.Hour, Count: 1, Disk: 1}}, "", sandbox.DefaultLease, time.Hour},
		{"none kept", config.Config{Session: config.Session{Ahead: 1}, Keep: config.Keep{For: time.Hour, Disk: 1}}, "", sandbox.DefaultLease, 0},
	} {
		p := core.New("", nil, nil, io.Discard, io.Discard)
		p.Cfg.Config = &tt.c
		got := newHost(p).leased(sandbox.Spec{Image: "x"}, tt.idle)
		if got.Lease != tt.want || got.Keep != tt.keep || got.Image != "x" {
			t.Errorf("%s: leased() = %+v; want a lease of %v, kept for %v", tt.name, got, tt.want, tt.keep)
		}
	}
}

// A contract's policy is made once for each list of tools, and leaves the configuration as it is.
func TestPolicyIsMadeOnce(t *testing.T) {
	t.Parallel()
	p := core.New("", nil, nil, io.Discard, io.Discard)
	p.Cfg.Config = &config.Config{Quiet: true, Policy: config.Policy{Match: "whole"}, Agent: config.Agent{Interceptor: true}}
	before := *p.Cfg.Config
	h := newHost(p)
	one, err := h.policy(tool.Agent, []string{"read", "grep"})
	if err != nil {
		t.Fatal(err)
	}
	same, err := h.policy(tool.Agent, []string{"read", "grep"})
	if err != nil || same != one {
		t.Errorf("policy() = %p, %v; want that of before, %p", same, err, one)
	}
	other, err := h.policy(tool.Modes, []string{"read", "grep"})
	if err != nil || other == one {
		t.Errorf("policy() of another contract = %p, %v; want another", other, err)
	}
	if !reflect.DeepEqual(before, *p.Cfg.Config) {
		t.Errorf("the configuration is now %+v; want %+v", *p.Cfg.Config, before)
	}
}

// A token that others can read, or that can be guessed, is refused.
func TestToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := strings.Repeat("k", serve.MinToken)
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if got, err := token(file("good", " "+good+"\n", 0o600)); err != nil || got != good {
		t.Errorf("token() = %q, %v; want %q", got, err, good)
	}
	bad := map[string]string{
		"short": file("short", good[1:], 0o600), "two words": file("words", good+" "+good, 0o600), "long": file("long", strings.Repeat("k", 5<<10), 0o600),
		"empty": file("empty", "", 0o600), "a directory": dir, "not there": filepath.Join(dir, "none"),
	}
	if runtime.GOOS != "windows" {
		bad["others can read it"] = file("open", good, 0o644)
	}
	for name, path := range bad {
		if got, err := token(path); err == nil || got != "" || exit.Judge(err).Status != exit.Usage || strings.Contains(err.Error(), good) {
			t.Errorf("%s: token() = %q, %v; want wrong use", name, got, err)
		}
	}
	one, err := token("")
	other, _ := token("")
	if err != nil || len(one) < serve.MinToken || one == other {
		t.Errorf("token() makes %q and %q, %v; want two", one, other, err)
	}
}

func TestAgentFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rc := filepath.Join(dir, "rc")
	if err := os.WriteFile(rc, []byte("x=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readRC(rc); err != nil || got != "x=1\n" {
		t.Errorf("readRC() = %q, %v", got, err)
	}
	if got, err := readRC(""); err != nil || got != "" {
		t.Errorf("readRC of none = %q, %v", got, err)
	}
	if err := os.Truncate(rc, maxRC+1); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{rc, filepath.Join(dir, "none"), dir} {
		if got, err := readRC(path); err == nil || exit.Judge(err).Status != exit.Usage {
			t.Errorf("readRC(%s) = %d bytes, %v; want wrong use", path, len(got), err)
		}
	}
	for _, name := range []string{"one", "two", "three"} {
		if err := os.MkdirAll(filepath.Join(dir, "skills", name), 0o700); err != nil {
			t.Fatal(err)
		}
		if name == "three" {
			continue // a directory without a SKILL.md is not a skill
		}
		if err := os.WriteFile(filepath.Join(dir, "skills", name, "SKILL.md"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	urls, err := agentURLs(config.Agent{Skills: []string{filepath.Join(dir, "skills")}, Rules: []string{"/r/style.md"}, Memory: "/m"})
	if err != nil || len(urls.Skills) != 2 || urls.Skills[0].Name != "one" || urls.Skills[1].Dir != filepath.Join(dir, "skills", "two") {
		t.Errorf("agentURLs() = %+v, %v; want the skills one and two", urls, err)
	}
	if roots, ok := urls.Resolver.(tool.Roots); !ok || roots.Memory != "/m" || roots.Rules["style"] != "/r/style.md" {
		t.Errorf("agentURLs() resolves by %+v", urls.Resolver)
	}
	if _, err := agentURLs(config.Agent{Skills: []string{filepath.Join(dir, "none")}}); err == nil || exit.Judge(err).Status != exit.Usage {
		t.Errorf("agentURLs of a directory that is not there = %v; want wrong use", err)
	}
}
