package config_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/config"
)

// paths are all settings that name something on this machine: the text of a value
// that holds a path, and where the configuration has it.
var paths = []struct {
	key, before, after string
	flag               string
	get                func(*config.Config) string
}{
	{"artifacts.dir", "", "", "", func(c *config.Config) string { return c.Artifacts.Dir }},
	{"audit.dir", "", "", "", func(c *config.Config) string { return c.Audit.Dir }},
	{"agent.rc", "", "", "", func(c *config.Config) string { return c.Agent.RC }},
	{"agent.memoryRoot", "", "", "", func(c *config.Config) string { return c.Agent.Memory }},
	{"agent.skills", "", "", "", func(c *config.Config) string { return strings.Join(c.Agent.Skills, "|") }},
	{"agent.rules", "", "", "", func(c *config.Config) string { return strings.Join(c.Agent.Rules, "|") }},
	{"serve.token-file", "", "", "token-file", func(c *config.Config) string { return c.Serve.TokenFile }},
	{"report.junit", "", "", "junit", func(c *config.Config) string { return c.Report.JUnit }},
	{"report.summary", "", "", "summary", func(c *config.Config) string { return c.Report.Summary }},
	{"mounts", "", ":/data:ro", "mount", func(c *config.Config) string { return strings.Join(c.Mounts, "|") }},
	{"workspace", "copy:", "", "workspace", func(c *config.Config) string { return c.Workspace }},
	{"workspace", "bind:", ":ro:at=/a", "workspace", func(c *config.Config) string { return c.Workspace }},
}

// Paths of the file are relative to it, others to the current directory; a leading ~
// is the home directory everywhere.
func TestPaths(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	for _, p := range paths {
		s, ok := config.Lookup(p.key)
		if !ok {
			t.Fatalf("there is no setting %s", p.key)
		}
		for _, test := range []struct {
			path, inFile, elsewhere string // inFile is relative to the file
		}{
			{"/abs/x", "/abs/x", "/abs/x"},
			{"sub/x", "sub/x", "sub/x"},
			{"../x", "../x", "../x"},
			{"./~x", "~x", "./~x"},
			{"~", home, home},
			{"~/x", filepath.Join(home, "x"), filepath.Join(home, "x")},
		} {
			value := p.before + test.path + p.after
			text := p.key + ": '" + value + "'\n"
			if group, name, ok := strings.Cut(p.key, "."); ok {
				text = group + ": {" + name + ": '" + value + "'}\n"
			}
			file := write(t, text)
			want := test.inFile
			if !filepath.IsAbs(want) {
				want = filepath.Join(filepath.Dir(file), want)
			}
			check := func(where string, src config.Source, want string) {
				src.Home = home
				c, err := config.Load(src)
				if err != nil {
					t.Errorf("%s in %s: %v", value, where, err)
				} else if got := p.get(c); got != p.before+want+p.after {
					t.Errorf("%s: %s in %s = %q; want %q", p.key, value, where, got, p.before+want+p.after)
				}
			}
			check("the file", config.Source{File: file}, want)
			check("a variable", config.Source{Environ: []string{s.Env() + "=" + value}}, test.elsewhere)
			if p.flag != "" {
				check("a flag", config.Source{Flags: flags(t, "--"+p.flag+"="+value)}, test.elsewhere)
			}
		}
		for _, src := range []config.Source{
			{Home: home, Environ: []string{s.Env() + "=" + p.before + "~other/x" + p.after}},
			{Environ: []string{s.Env() + "=" + p.before + "~/x" + p.after}}, // without a home
		} {
			if _, err := config.Load(src); err == nil || !strings.Contains(err.Error(), p.key) || !strings.Contains(err.Error(), "~") {
				t.Errorf("Load(%q) = %v; want an error about ~", src.Environ, err)
			}
		}
	}
}

// A value that is not a path is not changed.
func TestNoPaths(t *testing.T) {
	t.Parallel()
	c, err := config.Load(config.Source{
		File: write(t, "report: {summary: auto}\nworkspace: volume\nengine: tcp://~x:1\nrun: {cwd: '~/x'}\n"), Flags: flags(t, "--file=-"),
	})
	if err != nil || c.Report.Summary != "auto" || c.Workspace != "volume" || c.Engine != "tcp://~x:1" || c.Run.Dir != "~/x" || c.Run.File != "-" {
		t.Errorf("Load() = %+v, %v; want the values as they are", c, err)
	}
}

// The file itself, secrets and a socket may be below the home directory too.
func TestHomeElsewhere(t *testing.T) {
	t.Parallel()
	file := write(t, "engine: ~/engine.sock\nsecrets:\n  - {name: a, from: file, source: ~/key}\n  - {name: b, from: file, source: key}\n")
	home := filepath.Dir(file)
	c, err := config.Load(config.Source{Home: home, File: "~/" + filepath.Base(file)})
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(home, "key"); c.File != file || c.Engine != "unix://"+home+"/engine.sock" || c.Secrets[0].Source != want || c.Secrets[1].Source != want {
		t.Errorf("Load() = %q, %q, %+v; want all of them in %s", c.File, c.Engine, c.Secrets, home)
	}
	if _, err := config.Load(config.Source{Home: home, File: "~root/x.yaml"}); err == nil || !strings.Contains(err.Error(), "only ~ and ~/") {
		t.Errorf("Load() of ~root/x.yaml = %v; want that it is refused", err)
	}
}
