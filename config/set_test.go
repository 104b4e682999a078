package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/config"
)

// fileSource is a source with a file of this text, and its path.
func fileSource(t *testing.T, text string) (config.Source, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil { //nolint:gosec // the mode is to stay
		t.Fatal(err)
	}
	return config.Source{File: path}, path
}

func TestSet(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, was, key string
		texts          []string
		want           string
	}{
		{"an empty file", "", "timeout", []string{"10m"}, "timeout: 10m\n"},
		{"comments at most", "# mine\n", "limits.memory", []string{"4g"}, "# mine\nlimits:\n  memory: 4g\n"},
		{"replaced", "# one\ntimeout: 5m # long\n\nimage: host\n", "timeout", []string{"10m"}, "# one\ntimeout: 10m # long\n\nimage: host\n"},
		{"quoted before", "image: \"a b\"\ntimeout: 5m\n", "image", []string{"host"}, "image: host\ntimeout: 5m\n"},
		{"into a table", "limits:\n    cpus: 1\n\ntimeout: 5m\n", "limits.memory", []string{"4g"}, "limits:\n    cpus: 1\n    memory: 4g\n\ntimeout: 5m\n"},
		{"into an empty table", "limits:\ntimeout: 5m\n", "limits.memory", []string{"4g"}, "limits:\n  memory: 4g\ntimeout: 5m\n"},
		{"without a last newline", "timeout: 5m", "quiet", []string{"true"}, "timeout: 5m\nquiet: true\n"},
		{"other line ends", "timeout: 5m\r\nimage: host\r\n", "timeout", []string{"6m"}, "timeout: 6m\r\nimage: host\r\n"},
		{"a list", "env:\n  pass: [A]\n", "env.pass", []string{"LANG", "TZ"}, "env:\n  pass: [LANG, TZ]\n"},
		{"a list of lines", "env:\n  pass:\n    - A\n    - B\ntimeout: 5m\n", "env.pass", []string{"LANG"}, "env:\n  pass: [LANG]\ntimeout: 5m\n"},
		{"an empty list", "", "env.pass", nil, "env:\n  pass: []\n"},
		{"texts that need quotes", "", "env.set", []string{"A=1, 2", "B=#"}, "env:\n  set: [\"A=1, 2\", \"B=#\"]\n"},
		{"a text that looks like a number", "", "user", []string{"1000"}, "user: \"1000\"\n"},
		{"network, as a name", "network: none\n", "network", []string{"bridge"}, "network: bridge\n"},
		{"network, as a table", "network:\n  allow: [a.example]\n", "network", []string{"bridge"}, "network:\n  allow: [a.example]\n  mode: bridge\n"},
		{"network, as the table it is short for", "network: none # why\n", "network.limits.rate", []string{"5"}, "network: # why\n  mode: none\n  limits:\n    rate: 5\n"},
		{"a key in another case", "Limits:\n  MEMORY: 1g\n", "limits.memory", []string{"2g"}, "Limits:\n  MEMORY: 2g\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			src, path := fileSource(t, test.was)
			if err := config.Set(src, test.key, test.texts...); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil || string(got) != test.want {
				t.Errorf("the file is %q, %v; want %q", got, err, test.want)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
				t.Errorf("its mode is %v, %v; want what it was", info.Mode(), err)
			}
			if _, err := config.Load(src); err != nil {
				t.Error(err)
			}
		})
	}
}

// Whatever is refused, the file stays as it was.
func TestSetRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, was, key string
		texts          []string
		want           string
	}{
		{"an unknown key", "", "timout", []string{"5m"}, "unknown key \"timout\" (did you mean timeout?)"},
		{"a level forgotten", "", "memory", []string{"5m"}, "did you mean limits.memory?"},
		{"a flag of a single call", "", "run.file", []string{"x"}, "give --file"},
		{"a bad value", "", "timeout", []string{"5x"}, `timeout (from config set): "5x" is not a duration`},
		{"another choice", "", "profile", []string{"lax"}, `"lax" is unknown`},
		{"two values", "", "timeout", []string{"5m", "6m"}, "it takes one value, and was given 2"},
		{"no value", "", "timeout", nil, "it takes one value, and was given 0"},
		{"a secret's name", "", "env.set", []string{"a"}, "env.set"},
		{"a table in braces", "limits: {cpus: 1}\n", "limits.memory", []string{"1g"}, "write the setting by hand"},
		{"a text where a table is needed", "limits: none\n", "limits.cpus", []string{"1"}, "write the setting by hand"},
		{"comments in a list", "env:\n  pass:\n    # why\n    - A\n", "env.pass", []string{"B"}, "write the setting by hand"},
		{"no YAML", "a: [\n", "timeout", []string{"5m"}, "config.yaml"},
		{"a list", "- a\n", "timeout", []string{"5m"}, "config.yaml"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			src, path := fileSource(t, test.was)
			if err := config.Set(src, test.key, test.texts...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Set(%s, %q) = %v; want %q", test.key, test.texts, err, test.want)
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != test.was {
				t.Errorf("the file is %q, %v; want %q", got, err, test.was)
			}
		})
	}
	if err := config.Set(config.Source{}, "timeout", "5m"); err == nil || !strings.Contains(err.Error(), "there is no configuration file") {
		t.Errorf("Set() without a file = %v", err)
	}
}

// Every setting that a file can have can be set to its default.
func TestSetDefaults(t *testing.T) {
	t.Parallel()
	src, path := fileSource(t, "")
	for s := range config.Settings() {
		if s.Default == "" || s.Key == "policy.contract" { // a server's default is another
			continue
		}
		if err := config.Set(src, s.Key, s.Default); err != nil {
			t.Errorf("Set(%s, %s) = %v", s.Key, s.Default, err)
		}
	}
	got, err := config.Load(src)
	if err != nil {
		t.Fatal(err)
	}
	want, err := config.Load(config.Source{})
	if err != nil {
		t.Fatal(err)
	}
	want.File = path
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the defaults, written down (-want +got):\n%s", diff)
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	src, path := fileSource(t, "limits: {memory: 4g}\nworkspace: copy:src\nsecrets:\n  - {name: GH_TOKEN, from: env, source: X, inject: true}\n")
	src.Environ = []string{"SANDBOXBASH_TIMEOUT=10m", "SANDBOXBASH_ENV_PASS=LANG,TZ", "X=the-secret-value"}
	values, err := config.Values(src)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []config.Value{
		{"limits.memory", "4g", path},
		{"timeout", "10m", "SANDBOXBASH_TIMEOUT"},
		{"env.pass", "LANG, TZ", "SANDBOXBASH_ENV_PASS"},
		{"grace", "250ms", "default"},
		{"secrets", "GH_TOKEN (env)", path},
	} {
		i := slices.IndexFunc(values, func(v config.Value) bool { return v.Key == want.Key })
		if i < 0 || values[i] != want {
			t.Errorf("%s is not as wanted: %+v", want.Key, values)
		}
	}
	for _, v := range values {
		if strings.Contains(v.Text, "the-secret-value") {
			t.Errorf("%s shows a secret: %q", v.Key, v.Text)
		}
	}
	if _, err := config.Values(config.Source{Environ: []string{"SANDBOXBASH_TIMEOUT=x"}}); err == nil {
		t.Error("Values() of a bad configuration succeeds")
	}
}

func TestInit(t *testing.T) {
	t.Parallel()
	src := config.Source{Dir: t.TempDir()}
	path, err := config.Init(src)
	if err != nil || path != filepath.Join(src.Dir, "sandboxbash", "config.yaml") {
		t.Fatalf("Init() = %q, %v", path, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v, %v; want it private", info.Mode(), err)
	}
	if _, err := config.Init(src); !errors.Is(err, config.ErrExists) {
		t.Errorf("Init() again = %v; want %v", err, config.ErrExists)
	}
	if _, err := config.Init(config.Source{}); err == nil {
		t.Error("Init() without a directory succeeds")
	}
}

// The template is a configuration file with the defaults in it once its comments are taken
// away from the settings.
func TestTemplate(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for line := range strings.Lines(string(config.Template())) {
		given := strings.HasPrefix(line, "#  contract:") || strings.HasPrefix(line, "#  checks:") // means more than its value
		if !strings.HasPrefix(line, "##") && !given {
			b.WriteString(strings.TrimPrefix(line, "#"))
		}
	}
	text := b.String()
	text, _, _ = strings.Cut(text, "secrets:")
	src, path := fileSource(t, text)
	got, err := config.Load(src)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	want, err := config.Load(config.Source{})
	if err != nil {
		t.Fatal(err)
	}
	want.File = path
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the template (-want +got):\n%s", diff)
	}
	for s := range config.Settings() {
		if !strings.Contains(string(config.Template()), s.Usage) {
			t.Errorf("the template does not say of %s: %s", s.Key, s.Usage)
		}
	}
}
