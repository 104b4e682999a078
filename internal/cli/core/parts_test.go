package core

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// loaded returns the parts of a call whose configuration is made from flags and variables.
func loaded(t *testing.T, environ []string, args ...string) (p *Parts, errs *bytes.Buffer, err error) {
	t.Helper()
	errs = &bytes.Buffer{}
	p = New("", append([]string{"HOME=" + t.TempDir()}, environ...), strings.NewReader(""), io.Discard, errs)
	cmd := &cobra.Command{Use: "x"}
	flags.Add(cmd, "session.id", "timeout", "json", "quiet", "artifacts.mode", "workspace", "user")
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	err = p.Cfg.Load(cmd)
	return p, errs, err
}

// Notes are printed, or wait for a JSON result, or are dropped with --quiet: as the
// configuration says from the moment when it is loaded.
func TestNotes(t *testing.T) {
	t.Parallel()
	const typo = "SANDBOXBASH_TIMEOT=5"
	for _, tt := range []struct {
		args     string
		printed  bool
		gathered bool
	}{
		{"", true, false},
		{"--quiet", false, false},
		{"--json", false, true},
		{"--json --quiet", false, true},
	} {
		p, errs, err := loaded(t, []string{typo}, strings.Fields(tt.args)...)
		if err != nil {
			t.Fatal(err)
		}
		p.Notes.Add("evil\x1b[2J\nsandboxbash: forged")
		_ = p.Streams.EndMasked()
		got := errs.String()
		if strings.Contains(got, "did you mean SANDBOXBASH_TIMEOUT?") != tt.printed || strings.Contains(got, "\nsandboxbash: note: evil sandboxbash: forged\n") != tt.printed {
			t.Errorf("%q: printed %q; want notes: %t", tt.args, got, tt.printed)
		}
		if n := len(p.Notes.Gathered()); (n == 2) != tt.gathered || n != 2 && n != 0 {
			t.Errorf("%q: gathered %q; want both: %t", tt.args, p.Notes.Gathered(), tt.gathered)
		}
		if tt.gathered {
			p.Notes.Restart()
			p.Notes.Add("after")
			if got := p.Notes.Gathered(); len(got) != 1 || got[0] != "after" {
				t.Errorf("%q: after Restart gathered %q; want what came after", tt.args, got)
			}
		}
	}
}

// A list of names is bounded, and without names there is no note.
func TestListed(t *testing.T) {
	t.Parallel()
	p, errs, err := loaded(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Notes.Listed("left out: ", nil)
	p.Notes.Listed("left out: ", []string{"a\nb", "c"})
	p.Notes.Listed("many: ", strings.Split("1 2 3 4 5 6 7 8 9 10 11 12", " "))
	_ = p.Streams.EndMasked()
	want := "sandboxbash: note: left out: a\\nb, c\nsandboxbash: note: many: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more\n"
	if errs.String() != want {
		t.Errorf("Listed() prints %q; want %q", errs, want)
	}
}

// What cannot be loaded leaves nothing loaded.
func TestLoadFails(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"--timeout never", "--session=", "--artifacts never --timeout 0"} {
		p, _, err := loaded(t, nil, strings.Fields(args)...)
		if err == nil || exit.Judge(err).Status != exit.Usage || p.Cfg.Loaded() || p.Cfg.Silent() || p.Cfg.WantsJSON() {
			t.Errorf("Load(%s) = %v, loaded: %t; want wrong use and nothing loaded", args, err, p.Cfg.Loaded())
		}
	}
	if _, _, err := loaded(t, nil, "--session="); !errors.Is(err, ErrNoSessionID) {
		t.Errorf("Load with an empty session = %v; want ErrNoSessionID", err)
	}
}

func TestSpec(t *testing.T) {
	t.Parallel()
	p, _, err := loaded(t, nil, "--user", "7:8")
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Cfg.Spec()
	if err != nil || s.User == nil || s.User.UID != 7 || s.User.GID != 8 || s.Workspace.Kind != sandbox.WorkspaceVolume {
		t.Errorf("Spec() = %+v, %v; want user 7:8 and a volume", s, err)
	}
	for _, args := range [][]string{{"--user", "root"}, {"--workspace", "nfs:/x"}} {
		p, _, err := loaded(t, nil, args...)
		if err == nil {
			_, err = p.Cfg.Spec()
		}
		if err == nil || exit.Judge(err).Status != exit.Usage {
			t.Errorf("Spec() with %q = %v; want wrong use", args, err)
		}
	}
}

// A program on a terminal has a timeout only if the flag sets one.
func TestLastingTimeout(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]time.Duration{"": 0, "--timeout 5s": 5 * time.Second} {
		c := &Configuration{Config: &config.Config{Timeout: 5 * time.Second}}
		cmd := &cobra.Command{Use: "x"}
		flags.Add(cmd, "timeout")
		if err := cmd.ParseFlags(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if got := c.LastingTimeout(cmd); got != want {
			t.Errorf("LastingTimeout(%q) = %v; want %v", args, got, want)
		}
	}
}

// Directories follow their variables, if those are absolute.
func TestDirectories(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, environ, state, cache string }{
		{"variables", "XDG_STATE_HOME=/s XDG_CACHE_HOME=/c HOME=/h", "/s", "/c/sandboxbash"},
		{"the last counts", "XDG_STATE_HOME=/s XDG_STATE_HOME=/t XDG_CACHE_HOME=/c", "/t", "/c/sandboxbash"},
		{"not absolute", "XDG_STATE_HOME=s XDG_CACHE_HOME=c", "", ""},
		{"none", "", "", ""},
	} {
		p := New("", strings.Fields(tt.environ), nil, io.Discard, io.Discard)
		if got := p.Env.StateDir(); got != tt.state {
			t.Errorf("%s: StateDir() = %q; want %q", tt.name, got, tt.state)
		}
		if got := p.Env.cacheDir(); got != tt.cache {
			t.Errorf("%s: cacheDir() = %q; want %q", tt.name, got, tt.cache)
		}
		p.Cfg.Config = &config.Config{}
		artifacts, audits := p.Artifacts.Dir(), p.Cfg.AuditDir()
		if (artifacts == "") != (tt.state == "") || (audits == "") != (tt.state == "") {
			t.Errorf("%s: artifacts in %q, audit log in %q", tt.name, artifacts, audits)
		}
		p.Cfg.Config = &config.Config{Artifacts: config.Artifacts{Dir: "/a"}, Audit: config.Audit{Dir: "/b"}}
		if p.Artifacts.Dir() != "/a" || p.Cfg.AuditDir() != "/b" {
			t.Errorf("%s: artifacts in %q, audit log in %q; want what is configured", tt.name, p.Artifacts.Dir(), p.Cfg.AuditDir())
		}
	}
}

// Outputs are kept where there is a place for them, unless they are not to be.
func TestOutputStore(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mode, dir     string
		store, output bool
	}{
		{"overflow", "dir", true, true}, {"never", "dir", true, false}, {"always", "", false, false},
	} {
		p := New("", nil, nil, io.Discard, io.Discard)
		p.Cfg.Config = &config.Config{Artifacts: config.Artifacts{Mode: tt.mode}}
		if tt.dir != "" {
			p.Cfg.Artifacts.Dir = filepath.Join(t.TempDir(), tt.dir)
		}
		store, err := p.Artifacts.Store()
		output, outErr := p.Artifacts.OutputStore()
		if err != nil || outErr != nil || (store != nil) != tt.store || (output != nil) != tt.output {
			t.Errorf("%+v: Store() = %v, %v, OutputStore() = %v, %v", tt, store, err, output, outErr)
		}
	}
}

// What is refused before there is a session is observed, with its decision.
func TestAdmit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, script string
		policy       config.Policy
		denied       bool
		status       int
		rules        bool
	}{
		{"no policy", "rm -rf /", config.Policy{}, false, 0, false},
		{"allowed", "ls", config.Policy{Checks: policy.CheckNames()}, false, 0, true},
		{"denied", "rm -rf /", config.Policy{Checks: policy.CheckNames()}, true, exit.Denied, true},
		{"no script", " ", config.Policy{Checks: policy.CheckNames()}, false, exit.Usage, false},
	} {
		var errs bytes.Buffer
		p := New("", nil, nil, io.Discard, &errs)
		p.Cfg.Config = &config.Config{Policy: tt.policy, Log: config.Log{Level: "info", Format: "text"}}
		rules, err := p.Connection.Admit(sandbox.Command{Script: tt.script})
		status := 0
		if err != nil {
			status = exit.Judge(err).Status
		}
		if status != tt.status || (rules != nil) != tt.rules || strings.Contains(errs.String(), "denied") != tt.denied {
			t.Errorf("%s: Admit() = %v, %v, and the log has %q; want status %d", tt.name, rules, err, errs.String(), tt.status)
		}
		p.Close()
	}
}

// Each goes on after an error, and lists what was done.
func TestEach(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")
	do := func(id string) (string, error) {
		if id == "b" {
			return "", bad
		}
		return id + "!", nil
	}
	var out bytes.Buffer
	if err := Each(&out, []string{"a", "b", "c"}, do); !errors.Is(err, bad) || out.String() != "a!\nc!\n" {
		t.Errorf("Each() = %v, %q; want bad, and a! and c!", err, out.String())
	}
	if err := Each(nil, []string{"a"}, do); err != nil {
		t.Errorf("Each() without a writer = %v", err)
	}
}
