package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/sandboxbash/sandboxbash/config"
)

// write makes a configuration file and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// flags parses arguments for a few settings, as the command line does.
func flags(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	for s := range config.Flags() {
		switch {
		case s.Kind == config.Switch:
			set.Bool(s.Flag, false, "")
		case s.Kind == config.List, s.Kind == config.Lines:
			set.StringArray(s.Flag, nil, "")
		default:
			set.String(s.Flag, s.Default, "")
		}
	}
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return set
}

func secretLooking(name string) bool { return strings.HasSuffix(name, "_TOKEN") }

func TestDefaults(t *testing.T) {
	t.Parallel()
	got, err := config.Load(config.Source{Flags: flags(t)})
	if err != nil {
		t.Fatal(err)
	}
	want := &config.Config{
		CI: "auto", Profile: "strict", Network: "none", Workspace: "volume", Shell: "bash",
		Timeout: 300 * time.Second, Grace: 250 * time.Millisecond,
		Cache:   config.Cache{UnusedFor: 30 * 24 * time.Hour},
		Session: config.Session{Idle: 2 * time.Hour, Ahead: 1},
		Keep:    config.Keep{For: 24 * time.Hour, Count: 10, Disk: 10 << 30},
		Build:   config.Build{Network: "engine"},
		Output:  config.Output{Window: 50 << 10},
		Policy:  config.Policy{Contract: "modes", Mode: "standard", Match: "whole"},
		Color:   "auto",
		PTY:     config.PTY{KillKeys: "none", DetachKeys: "ctrl-p,ctrl-q", Size: "80x24"},
		Agent: config.Agent{
			Contract: "agent", TerminalTool: true, MaxJobs: 100, PollWait: "30s", AutoBackgroundAfter: time.Minute, Window: 50 << 10,
		},
		NetworkRules: config.NetworkRules{AskTime: 30 * time.Second, Limits: config.NetworkLimits{Connections: 1024, Rate: 1000, Burst: 5000, Header: 64 << 10}},

		Audit: config.Audit{FileMax: 64 << 20},
		Log:   config.Log{Level: "off", Format: "text"},
		Artifacts: config.Artifacts{
			Mode: "overflow", Retention: 14 * 24 * time.Hour, Max: 1 << 30, SessionMax: 4 << 30, TotalMax: 20 << 30,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Load() differs (-want +got):\n%s", diff)
	}
}

// Each source is above the one before: default, file, environment, flag.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	file := write(t, "timeout: 10s\nlimits: {memory: 1g, cpus: 1.5, pids: 100}\nnetwork: bridge\n")
	for _, test := range []struct {
		name    string
		environ []string
		args    []string
		timeout time.Duration
		memory  int64
	}{
		{"file", nil, nil, 10 * time.Second, 1 << 30},
		{"environment", []string{"SANDBOXBASH_TIMEOUT=20s", "SANDBOXBASH_LIMITS_MEMORY=2g"}, nil, 20 * time.Second, 2 << 30},
		{"flags", []string{"SANDBOXBASH_TIMEOUT=20s"}, []string{"--timeout=30s", "--memory=512m"}, 30 * time.Second, 512 << 20},
		{"flag like the default", nil, []string{"--timeout=300s"}, 300 * time.Second, 1 << 30},
		{"empty variable", []string{"SANDBOXBASH_TIMEOUT="}, nil, 10 * time.Second, 1 << 30},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := config.Load(config.Source{File: file, Environ: test.environ, Flags: flags(t, test.args...)})
			if err != nil {
				t.Fatal(err)
			}
			if got.Timeout != test.timeout || got.Limits.Memory != test.memory {
				t.Errorf("Load() = timeout %v, memory %d; want %v, %d", got.Timeout, got.Limits.Memory, test.timeout, test.memory)
			}
			// What no later source says stays.
			if got.Network != "bridge" || got.Limits.CPUs != 1.5 || got.Limits.Pids != 100 {
				t.Errorf("Load() = network %s, cpus %v, pids %d; want those of the file", got.Network, got.Limits.CPUs, got.Limits.Pids)
			}
		})
	}
}

func TestFilePlaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sandboxbash"), 0o700); err != nil {
		t.Fatal(err)
	}
	inDir := filepath.Join(dir, "sandboxbash", "config.yaml")
	if err := os.WriteFile(inDir, []byte("shell: sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	named, other := write(t, "shell: bash\n"), write(t, "shell: sh\n")
	for _, test := range []struct {
		name string
		src  config.Source
		file string
	}{
		{"none", config.Source{}, ""},
		{"directory without one", config.Source{Dir: t.TempDir()}, ""},
		{"directory", config.Source{Dir: dir}, inDir},
		{"variable", config.Source{Dir: dir, Environ: []string{"SANDBOXBASH_CONFIG=" + named}}, named},
		{"flag", config.Source{Dir: dir, File: other, Environ: []string{"SANDBOXBASH_CONFIG=" + named}}, other},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := config.Load(test.src)
			if err != nil || got.File != test.file {
				t.Errorf("Load() = file %q, %v; want %q", got.File, err, test.file)
			}
		})
	}
}

// A workspace may be hostile, and is where people stand when they call us.
func TestCurrentDirectoryIsNotRead(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Mkdir("sandboxbash", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"config.yaml", "sandboxbash.yaml", ".sandboxbash.yaml", "sandboxbash/config.yaml"} {
		if err := os.WriteFile(name, []byte("network: bridge\nengine: tcp://evil:1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, src := range []config.Source{{}, {Dir: "."}, {Dir: ""}} {
		got, err := config.Load(src)
		if err != nil || got.Network != "none" || got.Engine != "" || got.File != "" {
			t.Errorf("Load(%+v) = %+v, %v; want the defaults", src, got, err)
		}
	}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		key, value string
		ok         bool
		get        func(*config.Config) any
		want       any
	}{
		{"SANDBOXBASH_TIMEOUT", "30", true, func(c *config.Config) any { return c.Timeout }, 30 * time.Second},
		{"SANDBOXBASH_TIMEOUT", "0.5", true, func(c *config.Config) any { return c.Timeout }, 500 * time.Millisecond},
		{"SANDBOXBASH_TIMEOUT", "1h30m", true, func(c *config.Config) any { return c.Timeout }, 90 * time.Minute},
		{"SANDBOXBASH_TIMEOUT", "30d", true, func(c *config.Config) any { return c.Timeout }, 30 * 24 * time.Hour},
		{"SANDBOXBASH_TIMEOUT", "100000", true, func(c *config.Config) any { return c.Timeout }, 100000 * time.Second},
		{"SANDBOXBASH_TIMEOUT", "5 parsecs", false, nil, nil},
		{"SANDBOXBASH_TIMEOUT", "0", false, nil, nil},
		{"SANDBOXBASH_TIMEOUT", "-3s", false, nil, nil},
		{"SANDBOXBASH_TIMEOUT", "NaN", false, nil, nil},
		{"SANDBOXBASH_TIMEOUT", "1e300", false, nil, nil},
		{"SANDBOXBASH_LIMITS_MEMORY", "512m", true, func(c *config.Config) any { return c.Limits.Memory }, int64(512 << 20)},
		{"SANDBOXBASH_LIMITS_MEMORY", "1.5g", true, func(c *config.Config) any { return c.Limits.Memory }, int64(3 << 29)},
		{"SANDBOXBASH_LIMITS_MEMORY", "1048576", true, func(c *config.Config) any { return c.Limits.Memory }, int64(1 << 20)},
		{"SANDBOXBASH_LIMITS_MEMORY", "512 apples", false, nil, nil},
		{"SANDBOXBASH_LIMITS_MEMORY", "-1", false, nil, nil},
		{"SANDBOXBASH_LIMITS_CPUS", "0.25", true, func(c *config.Config) any { return c.Limits.CPUs }, 0.25},
		{"SANDBOXBASH_LIMITS_CPUS", "+Inf", false, nil, nil},
		{"SANDBOXBASH_LIMITS_PIDS", "128", true, func(c *config.Config) any { return c.Limits.Pids }, int64(128)},
		{"SANDBOXBASH_LIMITS_PIDS", "1.5", false, nil, nil},
		{"SANDBOXBASH_PROFILE", "dev", true, func(c *config.Config) any { return c.Profile }, "dev"},
		{"SANDBOXBASH_PROFILE", "root", false, nil, nil},
		{"SANDBOXBASH_JSON", "true", true, func(c *config.Config) any { return c.JSON }, true},
		{"SANDBOXBASH_JSON", "perhaps", false, nil, nil},
		{"SANDBOXBASH_SESSION_IDLE", "10ms", false, nil, nil},
		{"SANDBOXBASH_OUTPUT_WINDOW", "1g", false, nil, nil},
		{"SANDBOXBASH_ARTIFACTS_MAX", "0", false, nil, nil},
	} {
		t.Run(test.key+"="+test.value, func(t *testing.T) {
			t.Parallel()
			got, err := config.Load(config.Source{Environ: []string{test.key + "=" + test.value}})
			switch {
			case !test.ok:
				bad, is := errors.AsType[*config.Error](err)
				if !is || bad.Origin != test.key {
					t.Errorf("Load() = %v; want an *Error from %s", err, test.key)
				}
			case err != nil:
				t.Errorf("Load() = %v; want no error", err)
			case test.get(got) != test.want:
				t.Errorf("Load() = %v; want %v", test.get(got), test.want)
			}
		})
	}
}

// An error names the key, the value, where it came from and what is accepted.
func TestErrorTexts(t *testing.T) {
	t.Parallel()
	file := write(t, "timeout: [1, 2]\n")
	for _, test := range []struct {
		name string
		src  config.Source
		want string
	}{
		{
			"flag",
			config.Source{Flags: flags(t, "--memory=5q")},
			`limits.memory (from --memory): "5q" is not a size: give bytes, or a number with a unit k, m, g or t, as in 512m or 2g`,
		},
		{
			"variable",
			config.Source{Environ: []string{"SANDBOXBASH_GRACE=x"}},
			`grace (from SANDBOXBASH_GRACE): "x" is not a duration: give a number with a unit ms, s, m, h or d, as in 30s or 5m; a bare number is seconds`,
		},
		{
			"choice",
			config.Source{Flags: flags(t, "--network=host")},
			`network (from --network): "host" is unknown: it can be none or bridge`,
		},
		{"file", config.Source{File: file}, `timeout (from ` + file + `): it must be a single value, not a list or a table`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := config.Load(test.src)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Load() = %v; want %s", err, test.want)
			}
		})
	}
}

func TestUnknownKeys(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, key, nearest string }{
		{"netwerk: bridge\n", "netwerk", "network"},
		{"limits: {memroy: 1g}\n", "limits.memroy", "limits.memory"},
		{"memory: 1g\n", "memory", "limits.memory"},
		{"limits: 5\n", "limits", ""},
		{"zzzzzzzzzz: 1\n", "zzzzzzzzzz", ""},
		{"secret: []\n", "secret", "secrets"},
	} {
		t.Run(test.text, func(t *testing.T) {
			t.Parallel()
			file := write(t, test.text)
			_, err := config.Load(config.Source{File: file})
			got, ok := errors.AsType[*config.UnknownKeyError](err)
			if !ok || got.Key != test.key || got.File != file || got.Nearest != test.nearest {
				t.Errorf("Load(%q) = %v; want unknown key %q, nearest %q", test.text, err, test.key, test.nearest)
			}
		})
	}
}

func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	big := write(t, "# "+strings.Repeat("x", 1<<20)+"\n")
	for name, file := range map[string]string{
		"missing": filepath.Join(t.TempDir(), "no.yaml"), "directory": t.TempDir(), "not YAML": write(t, "a: [\n"),
		"twice": write(t, "image: a\nimage: b\n"), "too large": big, "a list": write(t, "- a\n"),
	} {
		if _, err := config.Load(config.Source{File: file}); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("Load(%s) = %v; want an error that names %s", name, err, file)
		}
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	file := write(t, "env: {pass: [LANG, TZ], set: ['A=1,2', B=]}\n")
	for _, test := range []struct {
		name      string
		src       config.Source
		pass, set []string
	}{
		{"file", config.Source{File: file}, []string{"LANG", "TZ"}, []string{"A=1,2", "B="}},
		{
			"environment",
			config.Source{File: file, Environ: []string{"SANDBOXBASH_ENV_PASS=TERM, LANG", "SANDBOXBASH_ENV_SET=X=a,b\nY=c d"}},
			[]string{"TERM", "LANG"},
			[]string{"X=a,b", "Y=c d"},
		},
		{
			"flags keep every byte",
			config.Source{File: file, Flags: flags(t, "--env", "A=\"x\"\r\n,y ", "--env", "b=")},
			[]string{"LANG", "TZ"},
			[]string{"A=\"x\"\r\n,y ", "b="},
		},
		{
			"a flag with a name alone",
			config.Source{Flags: flags(t, "--env", "LANG", "--env", "EMPTY", "--env", "A=b"), Environ: []string{"LANG=de", "EMPTY="}},
			nil,
			[]string{"LANG=de", "EMPTY=", "A=b"},
		},
		{"unset flags", config.Source{Flags: flags(t)}, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := config.Load(test.src)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([][]string{test.pass, test.set}, [][]string{got.Env.Pass, got.Env.Set}); diff != "" {
				t.Errorf("Load() differs (-want +got):\n%s", diff)
			}
		})
	}
}

// Nothing that looks like a secret is passed on by name, and errors about the
// environment never repeat a value.
func loader(name, value string) bool { return name == "LD_PRELOAD" && value != "" }

// What is said to be meant is taken, behind what is not; what is not there, or empty,
// loads nothing.
func TestEnvUnsafe(t *testing.T) {
	t.Parallel()
	got, err := config.Load(config.Source{
		Flags: flags(t, "--env-unsafe", "LD_PRELOAD=x", "--env", "A=b"), Environ: []string{"SANDBOXBASH_ENV_PASS=LD_PRELOAD"}, LoadsCode: loader,
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"A=b", "LD_PRELOAD=x"}; !slices.Equal(got.Env.Set, want) {
		t.Errorf("Set = %q; want %q", got.Env.Set, want)
	}
}

func TestEnvironmentRules(t *testing.T) {
	t.Parallel()
	const value = "hunter2-hunter2"
	for _, test := range []struct {
		name string
		src  config.Source
		want string
	}{
		{"secret name", config.Source{Environ: []string{"SANDBOXBASH_ENV_PASS=LANG,GH_TOKEN"}}, "secrets: [{name: GH_TOKEN, from: env, inject: true}]"},
		{"value in pass", config.Source{Environ: []string{"SANDBOXBASH_ENV_PASS=A=" + value}}, "Invalid bash env name: \"A\""},
		{"bad name", config.Source{Flags: flags(t, "--env", "1A="+value)}, "Invalid bash env name: \"1A\""},
		{"no name", config.Source{Flags: flags(t, "--env", "="+value)}, "Invalid bash env name: \"\""},
		{"name alone, not set here", config.Source{Flags: flags(t, "--env", "HOME")}, "HOME is not set in this environment"},
		{"no value, meant", config.Source{Flags: flags(t, "--env-unsafe", "HOME")}, "HOME has no value"},
		{"secret by name alone", config.Source{Flags: flags(t, "--env", "GH_TOKEN"), Environ: []string{"GH_TOKEN=" + value}}, "secrets: [{name: GH_TOKEN, from: env, inject: true}]"},
		{"loader by name alone", config.Source{Flags: flags(t, "--env", "LD_PRELOAD"), Environ: []string{"LD_PRELOAD=" + value}}, "with its value in env.unsafe"},
		{"loader", config.Source{Flags: flags(t, "--env", "LD_PRELOAD="+value)}, "in env.unsafe"},
		{"loader of a variable", config.Source{Environ: []string{"SANDBOXBASH_ENV_SET=A=b\nLD_PRELOAD=" + value}}, "env.unsafe"},
		{"loader passed on", config.Source{Environ: []string{"SANDBOXBASH_ENV_PASS=LD_PRELOAD", "LD_PRELOAD=" + value}}, "env.unsafe"},
		{"meant, with a bad name", config.Source{Flags: flags(t, "--env-unsafe", "1A="+value)}, "Invalid bash env name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.src.SecretName, test.src.LoadsCode = secretLooking, loader
			_, err := config.Load(test.src)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Load() = %v; want %q in it", err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), value) {
				t.Errorf("Load() = %v; the value must not be in it", err)
			}
		})
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	file := write(t, `secrets:
  - {name: GH_TOKEN, from: env, inject: true}
  - {name: deploy.key, from: file, source: key.pem}
  - {name: db, from: command, source: pass show db}
`)
	got, err := config.Load(config.Source{File: file, SecretName: secretLooking})
	if err != nil {
		t.Fatal(err)
	}
	want := []config.Secret{
		{Name: "GH_TOKEN", From: config.FromEnv, Source: "GH_TOKEN", Inject: true},
		{Name: "deploy.key", From: config.FromFile, Source: filepath.Join(filepath.Dir(file), "key.pem")},
		{Name: "db", From: config.FromCommand, Source: "pass show db"},
	}
	if diff := cmp.Diff(want, got.Secrets); diff != "" {
		t.Errorf("Secrets differ (-want +got):\n%s", diff)
	}
	for text, want := range map[string]string{
		"secrets: [{name: a, from: vault}]":                          `"vault"`,
		"secrets: [{from: env}]":                                     "entry 1 has no usable name",
		"secrets: [{name: a b, from: env}]":                          "entry 1 has no usable name",
		"secrets: [{name: a, from: file}]":                           "a has no source",
		"secrets: [{name: a, from: env}, {name: a, from: env}]":      "a is there twice",
		"secrets: [{name: a.b, from: env, inject: true}]":            "a.b cannot be injected",
		"secrets: [{name: a, from: env, value: canary-of-a-secret}]": "secrets",
		"secrets: canary-of-a-secret":                                "secrets",

		"secrets: [{name: A, from: env, hosts: [api.example.com, 'GET api.example.com/a b']}]": "A: hosts, entry 2, column 23: ",
		"secrets: [{name: A, from: env, hosts: []}]":                                           "A has an empty list of hosts",
		"secrets: [{name: A, from: env, hosts: ['*']}]":                                        "A: hosts, entry 1: it is every host",
		"secrets: [{name: A, from: env, hosts: ['@github']}]":                                  "a preset is for many hosts",
		"secrets: [{name: A, from: env, hosts: ['api.example.com:80']}]":                       "over TLS only",
		"secrets: [{name: A, from: env, hosts: [api.example.com], inject: true}]":              "A has both inject and hosts",
		"secrets: [{name: a.b, from: env, hosts: [api.example.com]}]":                          "a.b cannot have hosts",
		"secrets: [{name: A, from: env, hosts: [api.example.com], in: path}]":                  `in is "path"`,
		"secrets: [{name: A, from: env, in: query}]":                                           "A: in says where",
	} {
		_, err := config.Load(config.Source{File: write(t, text)})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("Load(%s) = %v; want %q in it, and no value", text, err, want)
		}
	}
}

// A secret with hosts has the rules of its hosts, in their one form.
func TestSecretHosts(t *testing.T) {
	t.Parallel()
	got, err := config.Load(config.Source{File: write(t, `secrets:
  - {name: GH_TOKEN, from: env, hosts: [API.GitHub.com., "POST,GET api.example.com/v1/*"], in: query}
`)})
	if err != nil {
		t.Fatal(err)
	}
	one := got.Secrets[0]
	if want := "[api.github.com GET,POST api.example.com/v1/*]"; fmt.Sprint(one.Hosts) != want || one.In != config.InQuery {
		t.Errorf("hosts %v in %s; want %s in query", one.Hosts, one.In, want)
	}
}

func TestSettingsAreDistinct(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for s := range config.Settings() {
		for _, name := range []string{"key " + s.Key, "variable " + s.Env(), "flag " + s.Flag, "short " + s.Short} {
			if strings.HasSuffix(name, " ") {
				continue
			}
			// -f is a file, and follows as that of tail(1) does. No command has both: it
			// could not be made.
			if name == "short f" && s.Key == "job.follow" {
				continue
			}
			if other, twice := seen[name]; twice {
				t.Errorf("%s and %s share the %s", other, s.Key, name)
			}
			seen[name] = s.Key
		}
		if s.Usage == "" {
			t.Errorf("setting %s has no usage", s.Key)
		}
		if s.Env() == config.EnvFile {
			t.Errorf("setting %s has the variable of the file", s.Key)
		}
	}
}

func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	got := config.UnknownVariables([]string{
		"HOME=/root", "SANDBOXBASH_TIMEOUT=5", "SANDBOXBASH_CONFIG=x", "SANDBOXBASH_NETWERK=none", "SANDBOXBASH_TEST_ENGINE=none",
	})
	want := map[string]string{"SANDBOXBASH_NETWERK": "SANDBOXBASH_NETWORK"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("UnknownVariables() differs (-want +got):\n%s", diff)
	}
}

// Whatever a file holds, Load ends with a configuration or an error.
func FuzzFile(f *testing.F) {
	for _, text := range []string{"", "timeout: 5\n", "secrets: [{name: a}]", "limits: {memory: 1e400}", "env: {set: [1, {}]}", "json: ~", "? [a]: b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cfg, err := config.Load(config.Source{File: write(t, text)})
		if (cfg == nil) == (err == nil) {
			t.Errorf("Load(%q) = %v, %v; want one of them", text, cfg, err)
		}
		if cfg != nil && (cfg.Timeout <= 0 || cfg.Network != "none" && cfg.Network != "bridge" || cfg.Limits.Memory < 0) {
			t.Errorf("Load(%q) = %+v; want a valid configuration", text, cfg)
		}
	})
}
