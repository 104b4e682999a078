package config_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/config"
)

// perCall are the flags that say what one call is to do. No file and no variable may.
var perCall = []string{
	"add", "all", "ask-network", "background", "background-after", "bytes", "command", "end", "exclusive", "exit-code", "file", "follow", "for",
	"forward", "from", "head", "input", "jsonl", "keys", "limit", "lines", "merge", "name", "no-stdin", "paste", "pattern", "preview", "pty",
	"quiet-for", "remove", "resolve", "since", "stdin", "text", "unused-for",
}

// A flag is a setting with a key and a variable, or of a single call with neither.
func TestPerCallFlags(t *testing.T) {
	t.Parallel()
	defaults, err := config.Load(config.Source{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for s := range config.Flags() {
		if !s.PerCall {
			continue
		}
		got = append(got, s.Flag)
		if s.Env() != "" {
			t.Errorf("--%s has the variable %s; want none", s.Flag, s.Env())
		}
		value := map[config.Kind]string{config.Switch: "true", config.Count: "7", config.Duration: "7s"}[s.Kind]
		if value == "" {
			value = "x"
		}
		// In a file it is refused, with the flag's name.
		text := s.Key + ": " + value + "\n"
		if group, name, ok := strings.Cut(s.Key, "."); ok {
			text = group + ": {" + name + ": " + value + "}\n"
		}
		_, err := config.Load(config.Source{File: write(t, text)})
		if bad, ok := errors.AsType[*config.UnknownKeyError](err); !ok || bad.Flag != s.Flag || !strings.Contains(err.Error(), "give --"+s.Flag) {
			t.Errorf("Load() of %q = %v; want an unknown key, and --%s", text, err, s.Flag)
		}
		// A variable changes nothing, and is reported.
		name := strings.NewReplacer(".", "_", "-", "_").Replace("SANDBOXBASH_" + strings.ToUpper(s.Key))
		environ := []string{name + "=" + value}
		c, err := config.Load(config.Source{Environ: environ})
		if err != nil {
			t.Errorf("Load() with %s = %v", name, err)
		} else if diff := cmp.Diff(defaults, c); diff != "" {
			t.Errorf("%s changes the configuration (-want +got):\n%s", name, diff)
		}
		if meant := config.UnknownVariables(environ)[name]; meant != "--"+s.Flag {
			t.Errorf("UnknownVariables() of %s = %q; want --%s", name, meant, s.Flag)
		}
		if i := slices.IndexFunc(slices.Collect(config.Settings()), func(x config.Setting) bool { return x.Key == s.Key }); i >= 0 {
			t.Errorf("Settings() has %s; want it among the flags only", s.Key)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(perCall, got); diff != "" {
		t.Errorf("the flags of single calls differ (-want +got):\n%s", diff)
	}
}

// An error about a flag of a single call names the flag alone.
func TestPerCallError(t *testing.T) {
	t.Parallel()
	_, err := config.Load(config.Source{Flags: flags(t, "--from=x")})
	if want := `--from: "x" is not a count: give a whole number from 0 on, as in 512`; err == nil || err.Error() != want {
		t.Errorf("Load() = %v; want %s", err, want)
	}
}
