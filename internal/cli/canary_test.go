package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/internal/cli"
	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
)

// canary is a secret with all that quoting changes.
const canary = `c4nary "51f0' $é\-value`

// shownForms are those in which it would be found.
var shownForms = []string{canary, `c4nary \"51f0' $é\\-value`, `c4nary \"51f0' $é`, "4nary", "c4nar"}

// canaryRows are what each verb is given. C is the canary, S a session, T a terminal, and
// D a directory with files. A verb without a row fails the test.
var canaryRows = map[string][]string{
	"":                      {"C", "--C", "--config C version", "--config=C version", "--engine C session ls"},
	"run":                   {"--session S 'echo C; echo C >&2; echo $CANARY'", "--json --session S 'echo C'", "--timeout C x", "--cwd C x", "--session C x", "--image C x", "--file C", "--artifacts always --session S 'printf %s \"$CANARY\"; seq 1 99'", "--workspace copy:D/C true", "--workspace bind:D/C true", "--preview --session S 'echo C'", "--junit D/x --summary D/y --session S 'echo C; false'", "--env C --session S true", "--user C x", "--session S --log-level debug 'echo C'", "--session S --log-level debug --log-format json 'echo C'", "-p C --session S true", "-p 0:80 --session S 'echo C'"},
	"session":               {"C"},
	"session start":         {"--workspace copy:D/C", "--image C --json", "--memory C", "--runtime C --json", "C", "--env C", "--env A=C", "--env-unsafe A=C", "--env C=x", "--mount C", "--mount D/C:/d", "--mount D:/C", "--cache C", "--cache C:/d"},
	"cache ls":              {"", "--json", "C"},
	"cache rm":              {"C", "x C"},
	"cache prune":           {"", "C", "--unused-for C"},
	"du":                    {"", "--json", "C"},
	"session ls":            {"", "--json", "C"},
	"session show":          {"S", "--json S", "C", "--json C"},
	"session exec":          {"S 'echo C; touch C; false'", "--json S 'echo C; exit 3'", "C x", "--cwd C --json S x", "--shell sh S 'echo $CANARY'", "S -- echo C", "S -c 'echo $1' C", "S 'sleep 600 C' &", "S --background 'echo C; sleep 600'", "--json --background S 'echo C $CANARY; printf C'"},
	"session attach":        {"S -- C", "-c C S", "C"},
	"session logs":          {"S", "--json S", "C"},
	"session ps":            {"S", "--json S", "C"},
	"session ports":         {"S", "--json S", "C"},
	"session forward":       {"C 80", "S C", "S C:80:80", "S 80:C", "S 192.0.2.1:0:80", "S 192.0.2.1:0:80/C"},
	"session cp":            {"D/C S:", "C S:", "D/C C:C", "S:C D/out", "S:x/C D", "S:C -", "- S:C", "--exclude C D S:C", "--exclude [C D S:", "--exclude-from C D S:", "--gitignore D/C S:", "C C"},
	"session sync":          {"S", "--check S", "--json S", "--back S", "C"},
	"session push":          {"D/C S:.", "C S:", "D/C C:C", "D/C S:C/C"},
	"session pull":          {"S:C D/out", "S:x/C D", "C:x D", "S:C S:x/C D/C", "S:x/C S:C D/out", "S:C S:y D/out"},
	"session diff":          {"S D", "--json S D", "S C", "--json S C", "--exit-code S D", "-u S", "--stat S", "--name-only S", "-u S C"},
	"session apply":         {"S", "--check S C", "--json S C", "C", "S D/C", "--branch C S", "--json --branch main:C S", "--branch C:x S", "--branch C S C", "--stat S", "--stat --check S", "-p S C"},
	"session allow":         {"S C", "C x.example", "--remove C S", "--json S x.example"},
	"session deny":          {"S C", "C x.example", "--remove C S", "--json S x.example"},
	"session network":       {"S", "--json S", "C", "--limit C S"},
	"session hold":          {"C", "S"},
	"session reap":          {"", "C"},
	"session pause":         {"C", "S"},
	"session resume":        {"S", "C"},
	"session keep":          {"S", "C", "--for C S", "--for 1h S"},
	"session wait":          {"C", "--json C"},
	"job ls":                {"--session S", "--json --session S", "--session C"},
	"job show":              {"--session S", "--json --session S", "--session S C", "--json --session S C"},
	"job logs":              {"--session S", "--session S --artifacts always", "--session S C"},
	"job wait":              {"--session S --artifacts always", "--json --session S", "--session S C", "--json --session S C"},
	"job stop":              {"--session S C", "--session S bg_1"},
	"job rm":                {"--session S C", "--session S bg_1"},
	"pty start":             {"S -c 'echo C; exec -a C sleep 600'", "--json S -c 'echo C; exec -a C sleep 600'", "--session C -- x", "--size C --session S -- x"},
	"pty ls":                {"", "--json", "C"},
	"pty show":              {"T", "--json T", "C", "--json C"},
	"pty write":             {"T C", "C x", "--key C T"},
	"pty resize":            {"T C", "C 10x10"},
	"pty logs":              {"T", "--json T", "C"},
	"pty screen":            {"T", "--json T", "C"},
	"pty attach":            {"T", "C", "--detach-keys C T"},
	"pty wait":              {"--timeout 1s --text C T", "--json --timeout 1s --text C T", "--timeout 1s C", "--timeout 1s --text '(C' T"},
	"pty stop":              {"C", "T"},
	"pty hold":              {"C", "--C"},
	"artifact ls":           {"", "--json", "--session C"},
	"artifact show":         {"", "--json", "C", "--json C", "--session C", "--session S", "--json --session S"},
	"artifact cat":          {"", "C", "--lines C", "--session C", "--lines 1-9"},
	"artifact grep":         {"4nary", "C", "'(C'", ". C"},
	"artifact rm":           {"C", "--session C --all", ""},
	"artifact gc":           {"", "C"},
	"image ls":              {"", "--json", "C"},
	"image host":            {"C"},
	"image pull":            {"C", "x/C"},
	"image load":            {"C", "D/C"},
	"image build":           {"C", "D/C"},
	"image rm":              {"C"},
	"image prune":           {"", "C"},
	"audit show":            {"", "--json", "--since C", "--session C"},
	"audit verify":          {"", "--json", "C"},
	"policy check":          {"'rm -rf / C'", "--json 'sudo C'", "'echo \"C'", "--contract C x"},
	"policy explain":        {"'rm -rf C; C'", "--json 'sudo C; C x'"},
	"policy rules":          {"", "--json", "C"},
	"policy test":           {"C", "D/C"},
	"network check":         {"C", "--json C", "--allow C x.com", "https://example.com/C", "--json https://example.com/C"},
	"network explain":       {"C", "--allow C", "--json --allow C"},
	"plan":                  {"C", "'{\"command\":\"C\"}'"},
	"serve rpc":             {"C", "--contract C"},
	"serve mcp":             {"C", "--contract C", "--http C", "--http 127.0.0.1:0 --token-file C"},
	"doctor":                {"--runtime C", "--json --runtime C", "C", "--fix --runtime C"},
	"version":               {"", "--json", "C"},
	"config show":           {"", "--json", "C", "timeout", "--json C"},
	"config get":            {"C", "timeout", ""},
	"config set":            {"C x", "timeout C", "--quiet env.set C"},
	"config path":           {"", "C"},
	"config init":           {"", "C"},
	"help":                  {"C", "run C"},
	"completion bash":       {"C"},
	"completion zsh":        {"C"},
	"completion fish":       {"C"},
	"completion powershell": {"C"},
	"__complete":            {"run --session C", "job show --session S ''", "session show ''", "pty logs ''"},
	"session stop":          {"C", "S"},
}

// canaryLab is where the canary is looked for.
type canaryLab struct {
	t             *testing.T
	home, dir     string
	environ       []string
	session, term string
	start         time.Time
	masks         int // that were seen
}

// No verb and no method of a server shows, stores or logs a configured secret, in
// whatever words of the user's it is.
func TestNothingShowsASecret(t *testing.T) {
	t.Parallel()
	dockertest.Connect(t)
	l := newCanaryLab(t)
	root := cli.Tree()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	verbs := leaves(root, nil)
	known := map[string]bool{"": true, "session": true, "__complete": true}
	for _, v := range verbs {
		if known[v] = true; len(canaryRows[v]) == 0 {
			t.Errorf("%s has no row: give it one with the canary in every word of it", v)
		}
	}
	for v := range canaryRows {
		if !known[v] {
			t.Errorf("there is no verb %q", v)
		}
	}
	slices.SortFunc(verbs, func(a, b string) int { return l.order(a) - l.order(b) })
	for _, v := range append([]string{"", "session", "__complete"}, verbs...) {
		if v == "session stop" {
			l.servers()
			l.everywhere()
		}
		for _, row := range canaryRows[v] {
			l.run(v, row)
		}
	}
	l.everywhere()
	if l.masks < len(canaryRows) {
		t.Errorf("%d masks were seen; the secret was nowhere to be shown", l.masks)
	}
}

// order runs what makes things first, and what removes them last.
func (l *canaryLab) order(verb string) int {
	first := []string{"session exec", "run", "pty start"}
	last := []string{"session pause", "session resume", "job stop", "job rm", "pty stop", "session stop"}
	if i := slices.Index(first, verb); i >= 0 {
		return i - 100
	}
	return slices.Index(last, verb) + 1
}

func leaves(cmd *cobra.Command, path []string) (all []string) {
	for _, c := range cmd.Commands() {
		all = append(all, leaves(c, append(slices.Clone(path), c.Name()))...)
	}
	if len(path) > 0 && len(all) == 0 {
		all = []string{strings.Join(path, " ")}
	}
	return all
}

func newCanaryLab(t *testing.T) *canaryLab {
	t.Helper()
	l := &canaryLab{t: t, home: t.TempDir(), dir: t.TempDir(), start: time.Now()}
	for path, text := range map[string]string{
		filepath.Join(l.home, "config.yaml"): "secrets:\n  - {name: CANARY, from: env, source: X_MINE, inject: true}\naudit: {enabled: true}\n",
		filepath.Join(l.dir, canary):         "text " + canary + "\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(l.dir, "out"), 0o700); err != nil {
		t.Fatal(err)
	}
	l.environ = []string{
		clitest.AsMain + "=1", "HOME=" + l.home, "PATH=" + os.Getenv("PATH"), "DOCKER_HOST=" + os.Getenv("DOCKER_HOST"),
		"SANDBOXBASH_CONFIG=" + filepath.Join(l.home, "config.yaml"), "X_MINE=" + canary,
	}
	out, errs := l.program(nil, "session", "start")
	if l.session = strings.TrimSpace(out); l.session == "" {
		t.Fatalf("no session: %s", errs)
	}
	t.Cleanup(func() { l.cleanUp() })
	return l
}

func (l *canaryLab) cleanUp() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := osexec.CommandContext(ctx, os.Args[0], "session", "stop", l.session)
	cmd.Env = l.environ
	_ = cmd.Run() // as a rule it is stopped already
}

// program runs one command, and returns what it said.
func (l *canaryLab) program(stdin io.Reader, args ...string) (stdout, stderr string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 30*time.Second)
	defer cancel()
	cmd := osexec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env, cmd.Dir, cmd.Stdin = l.environ, l.dir, stdin
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit, ended := errors.AsType[*osexec.ExitError](err); err != nil && (!ended || exit.ExitCode() < 0) {
		l.t.Errorf("sandboxbash %q: %v", args, err)
	}
	return out.String(), errs.String()
}

// run runs one row, and looks at what it says.
func (l *canaryLab) run(verb, row string) {
	l.t.Helper()
	args := strings.Fields(verb)
	for i, part := range strings.Split(row, "'") {
		if quoted := i%2 == 1; quoted {
			args = append(args, part)
			continue
		}
		args = append(args, strings.Fields(part)...)
	}
	for i, arg := range args[len(strings.Fields(verb)):] {
		at := i + len(strings.Fields(verb))
		args[at] = l.fill(arg)
	}
	out, errs := l.program(strings.NewReader("{}\n"), args...)
	l.clean(fmt.Sprintf("sandboxbash %s %s", verb, row), out+errs)
	for line := range strings.Lines(out) {
		if slices.Contains(args, "--json") && !json.Valid([]byte(line)) {
			l.t.Errorf("sandboxbash %s %s: no JSON: %s", verb, row, line)
		}
	}
	if verb == "pty start" && l.term == "" && errs == "" {
		l.term = strings.TrimSpace(out)
	}
}

// fill puts things into a word: a capital letter that stands alone.
func (l *canaryLab) fill(word string) string {
	var b strings.Builder
	letter := func(i int) bool {
		return i >= 0 && i < len(word) && (word[i]|0x20 >= 'a' && word[i]|0x20 <= 'z' || word[i] == '_')
	}
	for i := range len(word) {
		with, ok := map[byte]string{'C': canary, 'S': l.session, 'T': l.term, 'D': l.dir}[word[i]]
		if !ok || letter(i-1) || letter(i+1) {
			b.WriteByte(word[i])
			continue
		}
		b.WriteString(with)
	}
	return b.String()
}

func (l *canaryLab) clean(where, text string) {
	l.t.Helper()
	l.masks += strings.Count(text, "[REDACTED:CANARY]")
	for _, form := range shownForms {
		if i := strings.Index(text, form); i >= 0 {
			l.t.Errorf("%s shows the secret: …%q", where, text[max(0, i-80):min(len(text), i+80)])
			return
		}
	}
}

// everywhere looks where things are kept: the user's directories, and the engine with
// its log.
func (l *canaryLab) everywhere() {
	l.t.Helper()
	files := 0
	err := filepath.WalkDir(l.home, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		files++
		l.clean(path, path+string(b))
		return err
	})
	if err != nil || files < 3 {
		l.t.Errorf("%d files in the user's directory, %v; want artifacts and an audit log", files, err)
	}
	for _, name := range []string{"x", "y"} { // the reports
		if b, err := os.ReadFile(filepath.Join(l.dir, name)); err == nil {
			l.clean("the report "+name, string(b))
		}
	}
	var list []struct {
		ID string `json:"Id"`
	}
	if err := json.Unmarshal(l.engine("/containers/json?all=1"), &list); err != nil {
		l.t.Error(err)
	}
	for _, c := range list {
		l.clean("container "+c.ID, string(l.engine("/containers/"+c.ID+"/json")))
	}
	l.clean("volumes", string(l.engine("/volumes")))
	l.clean("images", string(l.engine("/images/json?all=1")))
	l.clean("events", string(l.engine(fmt.Sprintf("/events?since=%d&until=%d", l.start.Unix(), time.Now().Unix()+1))))
}

// engine asks the engine.
func (l *canaryLab) engine(path string) []byte {
	l.t.Helper()
	socket := "/var/run/docker.sock"
	if at, err := url.Parse(os.Getenv("DOCKER_HOST")); err == nil && at.Scheme == "unix" {
		socket = at.Path
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(l.t.Context(), http.MethodGet, "http://engine"+path, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		l.t.Errorf("engine %s: %v", path, err)
		return nil
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		l.t.Errorf("engine %s: %v", path, err)
	}
	return b
}
