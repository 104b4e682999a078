package configcmd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// home is an environment with a configuration directory of its own, and the file in it.
func home(t *testing.T) (environ []string, file string) {
	t.Helper()
	dir := t.TempDir()
	return []string{"HOME=" + dir, "XDG_CONFIG_HOME=" + dir}, filepath.Join(dir, "sandboxbash", "config.yaml")
}

// A day with the file: it is named, created, changed and shown.
func TestConfig(t *testing.T) {
	t.Parallel()
	environ, file := home(t)
	call := func(want int, args ...string) (out, errs string) {
		t.Helper()
		status, out, errs := clitest.Call(t, environ, append([]string{"config"}, args...)...)
		if status != want {
			t.Errorf("config %q = %d, %q, %q; want %d", args, status, out, errs, want)
		}
		return out, errs
	}
	if out, errs := call(0, "path"); out != file+"\n" || !strings.Contains(errs, "does not exist; `sandboxbash config init`") {
		t.Errorf("config path prints %q, %q; want %s, and how it is created", out, errs, file)
	}
	if out, errs := call(0, "init"); out != file+"\n" || errs != "" {
		t.Errorf("config init prints %q, %q", out, errs)
	}
	if out, errs := call(0, "path"); out != file+"\n" || errs != "" {
		t.Errorf("config path prints %q, %q; want the name alone", out, errs)
	}
	if _, errs := call(exit.Usage, "init"); !strings.Contains(errs, "it exists already") || !strings.Contains(errs, "config set") {
		t.Errorf("config init again says %q", errs)
	}
	if out, errs := call(0, "set", "limits.memory", "4g"); out+errs != "" {
		t.Errorf("config set prints %q, %q; want silence", out, errs)
	}
	call(0, "set", "env.pass", "LANG", "TZ")
	if out, _ := call(0, "get", "limits.memory"); out != "4g\n" {
		t.Errorf("config get prints %q; want 4g", out)
	}
	out, _ := call(0, "show", "limits", "env.pass", "timeout")
	for _, want := range []string{"KEY", "limits.memory  4g", "env.pass       LANG, TZ", "timeout        300s", file, "default"} {
		if !strings.Contains(out, want) {
			t.Errorf("config show prints %q; want %q in it", out, want)
		}
	}
	if strings.Contains(out, "profile") {
		t.Errorf("config show prints %q; want what was asked for alone", out)
	}
	b, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(b), "\nlimits:\n  memory: 4g\n") || !strings.Contains(string(b), "#  memory:") {
		t.Errorf("the file is %q, %v; want its comments, and what was set", b, err)
	}
}

// What a flag or a variable says counts more than the file, and both commands tell so.
func TestOrigin(t *testing.T) {
	t.Parallel()
	environ, file := home(t)
	environ = append(environ, "SANDBOXBASH_TIMEOUT=9s")
	status, out, errs := clitest.Call(t, environ, "config", "set", "timeout", "6m")
	if status != 0 || out != "" || !strings.Contains(errs, "timeout is set in the file, but SANDBOXBASH_TIMEOUT counts more") {
		t.Errorf("config set = %d, %q, %q; want a note", status, out, errs)
	}
	status, out, errs = clitest.Call(t, environ, "config", "set", "--quiet", "timeout", "7m")
	if status != 0 || out+errs != "" {
		t.Errorf("config set --quiet = %d, %q, %q; want silence", status, out, errs)
	}
	status, out, errs = clitest.Call(t, environ, "--log-level", "error", "config", "show", "--json")
	var list []struct{ Key, Value, Origin string }
	if err := json.Unmarshal([]byte(out), &list); status != 0 || errs != "" || err != nil {
		t.Fatalf("config show --json = %d, %q, %q: %v", status, out, errs, err)
	}
	got := map[string][2]string{}
	for _, v := range list {
		got[v.Key] = [2]string{v.Value, v.Origin}
	}
	for key, want := range map[string][2]string{
		"timeout": {"9s", "SANDBOXBASH_TIMEOUT"}, "log.level": {"error", "--log-level"}, "profile": {"strict", "default"},
	} {
		if got[key] != want {
			t.Errorf("%s is %q; want %q", key, got[key], want)
		}
	}
	for s := range config.Settings() {
		if _, ok := got[s.Key]; !ok {
			t.Errorf("%s is not shown", s.Key)
		}
	}
	if _, out, _ = clitest.Call(t, environ[:2], "config", "show", "timeout"); !strings.Contains(out, "7m") || !strings.Contains(out, file) {
		t.Errorf("without the variable: %q; want the file's", out)
	}
}

// The error for a mistake says what would be right, and nothing is changed.
func TestMistakes(t *testing.T) {
	t.Parallel()
	environ, file := home(t)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"set", "timout", "5m"}, "did you mean timeout?"},
		{[]string{"set", "timeout", "5x"}, `timeout (from config set): "5x" is not a duration`},
		{[]string{"set", "timeout"}, "it takes one value, and was given 0"},
		{[]string{"set"}, "a key and its value"},
		{[]string{"set", "run.file", "x"}, "give --file"},
		{[]string{"get", "memory"}, "did you mean limits.memory?"},
		{[]string{"get"}, "one key"},
		{[]string{"show", "limit"}, "unknown key \"limit\""},
		{[]string{"path", "x"}, "no arguments"},
		{[]string{"init", "x"}, "no arguments"},
		{[]string{"nosuch"}, "has no command"},
	} {
		status, out, errs := clitest.Call(t, environ, append([]string{"config"}, test.args...)...)
		if status != exit.Usage || out != "" || !strings.Contains(errs, test.want) {
			t.Errorf("config %q = %d, %q, %q; want %d and %q", test.args, status, out, errs, exit.Usage, test.want)
		}
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a mistake has created the file")
	}
	if status, _, errs := clitest.Call(t, []string{"HOME="}, "config", "path"); status != exit.Usage || !strings.Contains(errs, "name a file with --config") {
		t.Errorf("config path without a home = %d, %q", status, errs)
	}
}

// The help of config is a page about all settings; that of its commands is their own.
func TestHelp(t *testing.T) {
	t.Parallel()
	_, page, _ := clitest.Call(t, nil, "help", "config")
	for s := range config.Settings() {
		if !strings.Contains(page, s.Env()) {
			t.Errorf("the page does not name %s", s.Env())
		}
	}
	if _, help, _ := clitest.Call(t, nil, "config", "set", "--help"); strings.Contains(help, "SANDBOXBASH_IMAGE") || !strings.Contains(help, "KEY VALUE...") {
		t.Errorf("the help of config set is %q", help)
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	_, out, _ := clitest.Call(t, nil, "__complete", "config", "set", "limits.m")
	if !strings.HasPrefix(out, "limits.memory\tmemory of the session") {
		t.Errorf("completion offers %q", out)
	}
	if _, out, _ = clitest.Call(t, nil, "__complete", "config", "get", "timeout", ""); strings.Contains(out, "timeout") {
		t.Errorf("completion of a second word offers %q", out)
	}
}
