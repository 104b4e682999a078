package config_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/config"
)

// other returns values of a setting that are not its default.
func other(t *testing.T, s config.Setting, dir string) []string {
	t.Helper()
	switch {
	case s.Key == "network.proxy":
		return []string{"http://proxy.example:3128"}
	case s.Key == "network.limits.header":
		return []string{"32k"}
	case strings.HasPrefix(s.Key, "network.") && s.Kind == config.Lines:
		return []string{"GET,HEAD a.example/x", "b.example:22"}
	case s.Kind == config.List && len(s.Choices) > 1:
		return s.Choices[:2]
	case len(s.Choices) > 0:
		for _, choice := range s.Choices {
			if choice != s.Default {
				return []string{choice}
			}
		}
	}
	switch s.Kind {
	case config.Duration:
		return []string{"91s"}
	case config.Size:
		return []string{"3m"}
	case config.Count:
		return []string{"7"}
	case config.Number:
		return []string{"1.5"}
	case config.Switch:
		if s.Default == "true" {
			return []string{"false"}
		}
		return []string{"true"}
	case config.List:
		if s.Key == "env.pass" {
			return []string{"LANG", "TZ"}
		}
		return []string{filepath.Join(dir, "one"), filepath.Join(dir, "two")} // some name files
	case config.Lines:
		return []string{"A=1,2", "B= x"}
	case config.Text, config.Choice:
	}
	if s.Key == "workspace" {
		return []string{"copy:" + dir}
	}
	return []string{filepath.Join(dir, "file")}
}

// yaml returns the file in which each of the settings has the values. The keys have the
// same tables.
func yaml(values []string, settings ...config.Setting) string {
	levels := strings.Split(settings[0].Key, ".")
	text := ""
	for i, level := range levels[:len(levels)-1] {
		text += strings.Repeat("  ", i) + level + ":\n"
	}
	for _, s := range settings {
		value := "'" + values[0] + "'"
		switch s.Kind {
		case config.List, config.Lines:
			value = "['" + strings.Join(values, "', '") + "']"
		case config.Count, config.Number, config.Switch:
			value = values[0] // YAML's own types
		case config.Text, config.Choice, config.Duration, config.Size:
		}
		name := s.Key[strings.LastIndexByte(s.Key, '.')+1:]
		text += strings.Repeat("  ", len(levels)-1) + name + ": " + value + "\n"
	}
	return text
}

// Each lasting setting changes the configuration, and in the same way whether it comes
// from the file, from its variable or from its flag.
func TestEachSourceOfEachSetting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	base, err := config.Load(config.Source{Flags: flags(t)})
	if err != nil {
		t.Fatal(err)
	}
	load := func(src config.Source) *config.Config {
		t.Helper()
		got, err := config.Load(src)
		if err != nil {
			t.Fatal(err)
		}
		got.File, got.NetworkRules.AllowFrom, got.NetworkRules.DenyFrom = "", "", "" // they name the source
		return got
	}
	count := 0
	for s := range config.Settings() {
		values := other(t, s, dir)
		settings := []config.Setting{s}
		if s.Key == "serve.tls-cert" || s.Key == "serve.tls-key" { // one is refused without the other
			cert, _ := config.Lookup("serve.tls-cert")
			key, _ := config.Lookup("serve.tls-key")
			settings = []config.Setting{cert, key}
		}
		separator := ","
		if s.Kind == config.Lines {
			separator = "\n"
		}
		var environ, args []string
		for _, one := range settings {
			environ = append(environ, one.Env()+"="+strings.Join(values, separator))
			for _, v := range values {
				args = append(args, "--"+one.Flag+"="+v)
			}
		}
		byFile := load(config.Source{File: write(t, yaml(values, settings...)), Flags: flags(t)})
		if cmp.Equal(base, byFile) {
			t.Errorf("%s: %q in a file changes nothing", s.Key, values)
		}
		if diff := cmp.Diff(byFile, load(config.Source{Environ: environ, Flags: flags(t)})); diff != "" {
			t.Errorf("%s: %q from %s is not as from a file (-file +variable):\n%s", s.Key, values, s.Env(), diff)
		}
		if s.Flag != "" {
			if diff := cmp.Diff(byFile, load(config.Source{Flags: flags(t, args...)})); diff != "" {
				t.Errorf("%s: %q from --%s is not as from a file (-file +flag):\n%s", s.Key, values, s.Flag, diff)
			}
		}
		count++
	}
	if count < 70 {
		t.Errorf("%d settings were tried; want all", count)
	}
}

// Bounds of settings: the last value that is accepted, and the first that is not.
func TestBounds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ key, good, bad string }{
		{"timeout", "1ms", "0"},
		{"timeout", "106751d", "-1"},
		{"timeout", "1d", "1e30"},
		{"grace", "1ms", "0s"},
		{"artifacts.retention", "1s", "0"},
		{"session.idle", "1s", "999ms"},
		{"session.warm", "64", "65"},
		{"session.ahead", "8", "9"},
		{"output.window", "64m", "65m"},
		{"output.window", "1", "0"},
		{"artifacts.max", "1", "0"},
		{"artifacts.session-max", "1", "0"},
		{"artifacts.total-max", "1", "0"},
		{"agent.maxJobs", "100", "101"},
		{"agent.maxJobs", "1", "0"},
		{"agent.window", "64m", "65m"},
		{"agent.window", "1", "0"},
		{"agent.head", "0", "65m"},
		{"audit.file-max", "64k", "63k"},
		{"limits.memory", "0", "-1"},
		{"limits.pids", "2147483647", "2147483648"},
		{"limits.pids", "0", "-1"},
		{"limits.pids", "1", "1.5"},
		{"limits.cpus", "0", "-0.1"},
		{"limits.cpus", "0.01", "Inf"},
		{"limits.cpus", "1e2", "NaN"},
		{"json", "1", "yes"},
		{"keep.count", "0", "many"},
		{"image", "a", "a\x00b"},
	} {
		s, ok := config.Lookup(test.key)
		if !ok {
			t.Fatalf("no setting has the key %s", test.key)
		}
		if _, err := config.Load(config.Source{Environ: []string{s.Env() + "=" + test.good}}); err != nil {
			t.Errorf("%s = %s: %v; want it accepted", test.key, test.good, err)
		}
		_, err := config.Load(config.Source{Environ: []string{s.Env() + "=" + test.bad}})
		if bad, ok := errors.AsType[*config.Error](err); !ok || bad.Key != test.key || bad.Origin != s.Env() || bad.Text == "" {
			t.Errorf("%s = %q: %v; want an error about the key from %s", test.key, test.bad, err, s.Env())
		}
	}
}

// All that is wrong is reported at once, one error for each key.
func TestAllErrors(t *testing.T) {
	t.Parallel()
	file := write(t, "timeout: soon\nlimits: {memory: much}\nenv: {pass: [1]}\n")
	_, err := config.Load(config.Source{File: file, Environ: []string{"SANDBOXBASH_GRACE=x"}})
	if err == nil {
		t.Fatal("Load() has accepted it")
	}
	lines := strings.Split(err.Error(), "\n")
	for _, key := range []string{"timeout (from " + file, "limits.memory (from " + file, "env.pass (from " + file, "grace (from SANDBOXBASH_GRACE"} {
		n := len(slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !strings.HasPrefix(l, key) }))
		if n != 1 {
			t.Errorf("%d errors begin with %q; want one in:\n%v", n, key, err)
		}
	}
	if len(lines) != 4 {
		t.Errorf("%d lines of errors; want 4:\n%v", len(lines), err)
	}
}

// Secrets finds the good entries of a file that Load refuses, so that they are masked
// in what is said about it.
func TestSecretsOfBadFiles(t *testing.T) {
	t.Parallel()
	const good = "  - {name: A, from: env}\n  - {name: B, from: file, source: keys/b}\n"
	for _, test := range []struct {
		name, text string
		want       []string // names
	}{
		{"a good file", "secrets:\n" + good, []string{"A", "B"}},
		{"an unknown key", "nonsense: 1\nsecrets:\n" + good, []string{"A", "B"}},
		{"a bad value", "timeout: soon\nsecrets:\n" + good, []string{"A", "B"}},
		{"a bad entry among good ones", "secrets:\n" + good + "  - {name: 'no good', from: env}\n  - {name: C, from: nowhere}\n", []string{"A", "B"}},
		{"not a list", "secrets: 5\n", nil},
		{"none", "image: x\n", nil},
	} {
		file := write(t, test.text)
		list, from := config.Secrets(config.Source{File: file})
		var names []string
		for _, s := range list {
			names = append(names, s.Name)
			if s.Name == "B" && s.Source != filepath.Join(filepath.Dir(file), "keys", "b") {
				t.Errorf("%s: B is at %s; want a path relative to the file", test.name, s.Source)
			}
		}
		if test.want != nil && from != file || !slices.Equal(names, test.want) {
			t.Errorf("%s: Secrets() = %q, %q; want %q, %q", test.name, names, from, test.want, file)
		}
	}
	home := t.TempDir()
	list, _ := config.Secrets(config.Source{File: write(t, "timeout: soon\nsecrets: [{name: A, from: file, source: ~/key}]\n"), Home: home})
	if len(list) != 1 || list[0].Source != filepath.Join(home, "key") {
		t.Errorf("Secrets() = %v; want A from the home directory", list)
	}
	if list, from := config.Secrets(config.Source{File: filepath.Join(t.TempDir(), "none.yaml")}); list != nil || from != "" {
		t.Errorf("Secrets() without a file = %v, %q; want nothing", list, from)
	}
}

// What audit verify is given is a hash, and an audit log that is required is enabled.
func TestAudit(t *testing.T) {
	t.Parallel()
	head := strings.Repeat("0aB9", 16)
	got, err := config.Load(config.Source{Flags: flags(t, "--head="+head, "--since=24h"), Environ: []string{"SANDBOXBASH_AUDIT_REQUIRED=true"}})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Audit{Enabled: true, Required: true, FileMax: 64 << 20, Since: "24h", Head: strings.ToLower(head)}
	if diff := cmp.Diff(want, got.Audit); diff != "" {
		t.Errorf("Load() differs (-want +got):\n%s", diff)
	}
	for _, bad := range []string{head[1:], head + "0", head[:63] + "g", "latest"} {
		if _, err := config.Load(config.Source{Flags: flags(t, "--head="+bad)}); err == nil || !strings.HasPrefix(err.Error(), "--head: it is not a hash: ") {
			t.Errorf("--head=%s: %v; want an error", bad, err)
		}
	}
}

// Durations are numbers with units, and seconds without one.
func TestDurations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"5": 5 * time.Second, "0.5": 500 * time.Millisecond, "1h30m": 90 * time.Minute, "2d": 48 * time.Hour, "0.5d": 12 * time.Hour, "250ms": 250 * time.Millisecond,
	} {
		got, err := config.Load(config.Source{Environ: []string{"SANDBOXBASH_TIMEOUT=" + text}})
		if err != nil || got.Timeout != want {
			t.Errorf("timeout %s is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, bad := range []string{"d", "1x", "1d12h", "1e400", "99999999999d", "--1", "s"} {
		if _, err := config.Load(config.Source{Environ: []string{"SANDBOXBASH_TIMEOUT=" + bad}}); err == nil {
			t.Errorf("timeout %s is accepted", bad)
		}
	}
}
