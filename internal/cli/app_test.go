package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli"
	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// everyCommand calls do for each command of the tree.
func everyCommand(do func(*cobra.Command)) {
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		do(c)
		for _, child := range c.Commands() {
			walk(child)
		}
	}
	walk(cli.Tree())
}

func TestEveryFlagIsASetting(t *testing.T) {
	t.Parallel()
	known := map[string]config.Setting{}
	for s := range config.Flags() {
		known[s.Flag] = s
	}
	used := map[string]bool{}
	everyCommand(func(c *cobra.Command) {
		check := func(f *pflag.Flag) {
			if f.Name == "help" || f.Name == "config" || f.Name == "version" { // they choose what is read, and are not settings
				return
			}
			switch f.Name {
			case "fix": // it repairs in one call: no file and no variable makes every doctor change something
				return
			case "force": // it is said for one call: no file and no variable makes every pull overwrite
				return
			case "branch", "report": // they name what one call writes
				return
			case "exclude", "exclude-from", "gitignore", "recursive", "watch", "back": // they say what one call copies
				return
			case "name-only", "patch", "stat", "ids", "filter", "format": // they choose the form of one answer, as git's and docker's flags do
				return
			}
			used[f.Name] = true
			if _, ok := known[f.Name]; !ok {
				t.Errorf("%s has a flag --%s that no setting has", c.CommandPath(), f.Name)
			}
		}
		c.LocalFlags().VisitAll(check)
		c.PersistentFlags().VisitAll(check)
	})
	for name := range known {
		if name != "" && !used[name] {
			t.Errorf("no command has the flag --%s of setting %s", name, known[name].Key)
		}
	}
}

func TestEveryCommandHasHelp(t *testing.T) {
	t.Parallel()
	everyCommand(func(c *cobra.Command) {
		if c.Short == "" || c.Example == "" || !strings.Contains(c.Example, "sandboxbash") {
			t.Errorf("%s: Short %q, Example %q; want both", c.CommandPath(), c.Short, c.Example)
		}
		args := append([]string{"help"}, strings.Fields(c.CommandPath())[1:]...)
		status, out, errs := clitest.Call(t, nil, args...)
		if status != 0 || errs != "" || !strings.Contains(out, c.Example) {
			t.Errorf("%v = %d, %q, %q; want help with the example", args, status, out, errs)
		}
	})
}

// Wrong use ends with status 2, says what is wrong and what to do, and never
// with a page of help.
func TestWrongUse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"frobnicate"}, []string{`no command "frobnicate"`, "sandboxbash --help"}},
		{[]string{"sesion"}, []string{"did you mean `sandboxbash session`?"}},
		{[]string{"session", "starrt"}, []string{"did you mean `sandboxbash session start`?"}},
		{[]string{"run"}, []string{"there is no command", "'echo hi'"}},
		{[]string{"run", ""}, []string{"the script is empty"}},
		{[]string{"run", " \n\t"}, []string{"the script is empty"}},
		{[]string{"run", "echo \x00"}, []string{"NUL byte at offset 5"}},
		{[]string{"run", "--netwerk", "none", "true"}, []string{"unknown flag: --netwerk", "did you mean --network?", "sandboxbash run --help"}},
		{[]string{"run", "--tiemout", "1s", "true"}, []string{"unknown flag: --tiemout", "did you mean --timeout?"}},
		{[]string{"session", "start", "--imgae", "x"}, []string{"did you mean --image?"}},
		{[]string{"job", "logs", "--folow", "bg_1"}, []string{"did you mean --follow?"}},
		{[]string{"--engin", "x", "session", "ls"}, []string{"did you mean --engine?"}},
		{[]string{"session", "exec", "--workspace", "copy:.", "web", "true"}, []string{"unknown flag: --workspace", "it is a flag of `sandboxbash run`, `sandboxbash serve mcp`, `sandboxbash serve rpc` or another"}},
		{[]string{"run", "--frobnicate", "true"}, []string{"unknown flag: --frobnicate", "see `sandboxbash run --help`; give a script that starts with - as -c SCRIPT"}},
		{[]string{"run", "-Z", "true"}, []string{"'Z' in -Z", "-c SCRIPT"}},
		{[]string{"exec", "web", "true"}, []string{"did you mean `sandboxbash session exec`?"}},
		{[]string{"ls"}, []string{"did you mean `sandboxbash artifact ls`, `sandboxbash cache ls`, `sandboxbash image ls` or another?"}},
		{[]string{"session", "log"}, []string{"did you mean `sandboxbash session logs`"}},
		{[]string{"session", "logs", "--folow"}, []string{"did you mean --follow?"}},
		{[]string{"job", "lgs"}, []string{"did you mean `sandboxbash job logs`"}},
		{[]string{"run", "--network", "host", "true"}, []string{"network (from --network)", "none or bridge"}},
		{[]string{"run", "--timeout", "never", "true"}, []string{"timeout (from --timeout)", `"never"`, "30s"}},
		{[]string{"run", "--timeout", "0", "true"}, []string{"more than 0"}},
		{[]string{"run", "--env", "A-B=c", "true"}, []string{"Invalid bash env name"}},
		{[]string{"run", "--cwd", "/a\x00b", "true"}, []string{"NUL byte"}},
		{[]string{"run", "--env", "A=\x00", "true"}, []string{"NUL byte"}},
		{[]string{"run", "--user", "root", "true"}, []string{`user "root": it must be numeric`}},
		{[]string{"run", "--workspace", "nfs:/x", "true"}, []string{"copy:DIR"}},
		{[]string{"run", "--memory", "1m", "true"}, []string{"at least"}},
		{[]string{"run", "--session", "0199abcd", "--image", "x", "true"}, []string{"--image cannot change session 0199abcd"}},
		{[]string{"run", "--file", "/no/such/script", "x"}, []string{"/no/such/script", "--file"}},
		{[]string{"run", "--stdin", "-"}, []string{"--stdin"}},
		{[]string{"run", "--stdin", "-n", "true"}, []string{"--stdin and --no-stdin contradict each other"}},
		{[]string{"session", "attach", "--detach-keys", "hyper-x"}, []string{"not a terminal to attach"}},
		{[]string{"pty", "attach", "pty_1"}, []string{"not a terminal to attach"}},
		{[]string{"pty", "attach", "a", "b"}, []string{"the id of a terminal"}},
		{[]string{"run", "--config", "/no/such/config", "true"}, []string{"/no/such/config"}},
		{[]string{"session", "exec"}, []string{"the id of a session and a command"}},
		{[]string{"session", "exec", "0199", "--frob", "x"}, []string{"unknown flag: --frob"}},
		{[]string{"session", "show", "a", "b"}, []string{"takes one session"}},
		{[]string{"session", "show", "--session", "a", "--", "b"}, []string{"takes one session"}},
		{[]string{"session", "apply", "--session", "a", "b", "--", "c"}, []string{"the session is named twice"}},
		{[]string{"session", "stop", "--session", "a", "b"}, []string{"the session is named twice"}},
		{[]string{"session", "stop", ""}, []string{"the session's id is empty"}},
		{[]string{"session", "exec", "--session", "a"}, []string{"script"}},
		{[]string{"session", "exec", "make test"}, []string{"given one word", "session exec -- COMMAND"}},
		{[]string{"session", "exec", "a", "--session", "b", "true"}, []string{"the session is named twice"}},
		{[]string{"session", "attach", "a", "b"}, []string{"given 2 arguments", "session attach web -- vi"}},
		{[]string{"session", "attach", "--session", "a", "b"}, []string{"the session is named twice"}},
		{[]string{"session", "start", "--name", "Not OK"}, []string{`name "Not OK"`}},
		{[]string{"session", "start", "--name", "last"}, []string{"started last"}},
		{[]string{"session", "ls", "--filter", "owner=me"}, []string{"is not FIELD=VALUE", "directory, id, image"}},
		{[]string{"session", "ls", "--filter", "name="}, []string{"is not FIELD=VALUE"}},
		{[]string{"session", "ls", "--format", "{{"}, []string{"--format"}},
		{[]string{"session", "ls", "x"}, []string{"takes no arguments"}},
		{[]string{"image", "rm"}, []string{"--all"}},
		{[]string{"artifact", "cat", "--bytes", "9-1"}, []string{"is not a range"}},
		{[]string{"artifact", "grep", "("}, []string{"RE2"}},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Parallel()
			status, out, errs := clitest.Call(t, clitest.NoEngine(t), test.args...)
			if status != exit.Usage || out != "" || !strings.HasPrefix(errs, "sandboxbash: ") || strings.Contains(errs, "Usage:") {
				t.Errorf("execute(%q) = %d, %q, %q; want status %d and an error", test.args, status, out, errs, exit.Usage)
			}
			for _, want := range test.want {
				if !strings.Contains(errs, want) {
					t.Errorf("execute(%q) says %q; want %q in it", test.args, errs, want)
				}
			}
		})
	}
}

func TestUnreachableEngine(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"run", "true"}, {"session", "ls"}, {"session", "start"}, {"session", "exec", "0199", "true"}, {"image", "ls"}, {"session", "stop", "0199"},
	} {
		environ := clitest.NoEngine(t)
		address := strings.TrimPrefix(environ[0], "SANDBOXBASH_ENGINE=")
		status, out, errs := clitest.Call(t, environ, args...)
		if status != exit.Engine || out != "" || !strings.Contains(errs, address) {
			t.Errorf("execute(%q) = %d, %q, %q; want status %d and the address", args, status, out, errs, exit.Engine)
		}
	}
}

func TestErrorAsJSON(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args   []string
		status int
		cause  string
	}{
		{[]string{"run", "--json", "true"}, exit.Engine, "unreachable"},
		{[]string{"run", "--json", ""}, exit.Usage, "bad-script"},
		{[]string{"run", "--json", "--timeout", "x", "true"}, exit.Usage, "bad-config"},
		{[]string{"run", "--json"}, exit.Usage, "usage"},
		{[]string{"session", "exec", "0199", "--json", "true"}, exit.Engine, "unreachable"},
	} {
		status, out, errs := clitest.Call(t, clitest.NoEngine(t), test.args...)
		want := `"error":{"outcome":"not-started","cause":"` + test.cause + `"`
		if status != test.status || errs != "" || strings.Count(out, "\n") != 1 || !strings.Contains(out, want) || !strings.Contains(out, `"reason":null,"exitCode":null`) {
			t.Errorf("execute(%q) = %d, %q, %q; want %d and one object with %s", test.args, status, out, errs, test.status, want)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	status, out, errs := clitest.Call(t, nil, "version")
	if status != 0 || errs != "" || !strings.HasPrefix(out, "sandboxbash ") || !strings.Contains(out, "protocol") {
		t.Errorf("version = %d, %q, %q; want the version", status, out, errs)
	}
	if status, out, _ := clitest.Call(t, nil, "version", "--json"); status != 0 || !strings.Contains(out, fmt.Sprintf(`"protocol":%d`, wire.Version)) {
		t.Errorf("version --json = %d, %q; want an object", status, out)
	}
}

// A setting that is misspelt in the environment causes a note, and no other
// variable does.
func TestUnknownVariableIsNoted(t *testing.T) {
	t.Parallel()
	status, out, errs := clitest.Call(t, []string{"SANDBOXBASH_TIMEOT=5"}, "version")
	if status != 0 || out == "" || !strings.Contains(errs, "did you mean SANDBOXBASH_TIMEOUT?") {
		t.Errorf("version = %d, %q, %q; want a note", status, out, errs)
	}
	if _, _, errs := clitest.Call(t, []string{"SANDBOXBASH_TIMEOT=5", "SANDBOXBASH_QUIET=true"}, "version"); errs != "" {
		t.Errorf("version with quiet says %q; want nothing", errs)
	}
}

// Secrets planted wherever this process could pick them up never come out of
// it, whatever goes wrong.
func TestSecretsNeverInErrors(t *testing.T) {
	t.Parallel()
	const inEnv, inFile, inFlag = "canary-env-5f3a9c", "canary-file-81d2b7", "canary-flag-c07e44"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte(inFile+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := filepath.Join(dir, "config.yaml")
	text := "secrets:\n  - {name: file, from: file, source: key}\n  - {name: MY_VALUE, from: env, inject: true}\n"
	if err := os.WriteFile(cfg, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := append(clitest.NoEngine(t), "GH_TOKEN="+inEnv, "MY_VALUE="+inEnv, "SANDBOXBASH_CONFIG="+cfg)
	for _, args := range [][]string{
		{"run", "--env", "API_TOKEN=" + inFlag, "--image", inFlag, "echo " + inFlag},
		{"run", "--env", "API_TOKEN=" + inFlag, "--json", "--cwd", "/" + inFile, "true"},
		{"run", "--env", "API TOKEN=" + inFlag, "true"},
		{"run", "--env", "=" + inFlag, "true"},
		{"run", "--timeout", inEnv, "true"},
		{"run", "--user", inEnv, "true"},
		{"run", "--workspace", "copy:/" + inEnv, "true"},
		{"run", "--" + inEnv, "true"},
		{"run", "--file", "/" + inFile, "true"},
		{inEnv},
		{"session", "exec", inEnv, "true"},
		{"session", "show", inEnv},
		{"session", "push", inFile, inEnv + ":/x"},
		{"session", "pull", inEnv, "."},
		{"image", "pull", inEnv},
		{"image", "load", "/" + inEnv},
		{"artifact", "cat", inEnv},
		{"artifact", "grep", "(" + inEnv},
		{"doctor", "--runtime", inEnv},
		{"doctor", "--json", "--engine", "unix:///" + inEnv},
	} {
		status, out, errs := clitest.Call(t, environ, args...)
		if status == 0 {
			t.Errorf("execute(%q) = 0; want a failure", args)
		}
		for _, secret := range []string{inEnv, inFlag} {
			if strings.Contains(out+errs, secret) {
				t.Errorf("execute(%q) = %q, %q; a secret is in it", args, out, errs)
			}
		}
	}
	// What a file holds is known once a command that runs something has read it.
	p := core.New("", environ, nil, nil, nil)
	var err error
	if p.Cfg.Config, err = config.Load(config.Source{File: cfg}); err != nil {
		t.Fatal(err)
	}
	if err := p.Secrets.Ready(); err != nil {
		t.Fatal(err)
	}
	if got, want := p.Streams.Scrub("x "+inFile+" y"), "x [REDACTED:file] y"; got != want {
		t.Errorf("scrub() = %q; want %q", got, want)
	}
}

// docs/usage.md and the program's help list the exit statuses that there are.
func TestStatusesAreListed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "usage.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range []int{exit.Usage, exit.OutputLimit, exit.HandedOver, exit.Timeout, exit.Engine, exit.Denied, exit.Cancelled} {
		if !strings.Contains(string(text), fmt.Sprintf("\n| %d | ", status)) {
			t.Errorf("docs/usage.md does not list the exit status %d", status)
		}
		if !regexp.MustCompile(fmt.Sprintf(`\b%d\b`, status)).MatchString(cli.StatusText) {
			t.Errorf("the topic status of help does not list the exit status %d", status)
		}
	}
}

// A file of another user is left as it is, and nothing runs.
func TestReportsAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := filepath.Join(dir, "other.xml")
	if err := os.WriteFile(other, []byte("<testsuite name='pytest'/>"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--junit", other}, {"--junit", dir}, {"--summary", filepath.Join(dir, "no", "file")}, {"--summary", "auto"}} {
		status, _, stderr := clitest.Call(t, clitest.NoEngine(t), append(append([]string{"run"}, args...), "true")...)
		if status != exit.Usage || !strings.Contains(stderr, args[0][2:]) {
			t.Errorf("run %q = %d, %q; want it refused", args, status, stderr)
		}
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != "<testsuite name='pytest'/>" {
		t.Errorf("the file is now %q, %v", text, err)
	}
}
