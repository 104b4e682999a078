package e2e

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// ciJob is a job of a CI runner: a directory, the runner's own directory next to it,
// and a container that has both, the runner's variables, and the engine's socket.
type ciJob struct {
	t         *testing.T
	dir       string
	workspace string
	temp      string
	image     string // of its container, and of sessions
	env       []string
}

func newCIJob(t *testing.T) *ciJob {
	t.Helper()
	needEngine(t)
	dir := t.TempDir()
	j := &ciJob{t: t, dir: dir, workspace: filepath.Join(dir, "work", "repo"), temp: filepath.Join(dir, "work", "_temp")}
	for _, d := range []string{j.workspace, j.temp, filepath.Join(dir, "home")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	j.write(filepath.Join(j.workspace, "file"), "from the checkout\n")
	image, err := exec.CommandContext(t.Context(), filepath.Join(built, "sandboxbash"), "image", "host").Output()
	if err != nil {
		t.Fatal(err)
	}
	j.image = strings.TrimSpace(string(image)) // "host" would mean the container's programs
	j.env = []string{"PATH=" + built + ":/usr/local/bin:/usr/bin:/bin", "HOME=" + filepath.Join(dir, "home"), "SANDBOXBASH_IMAGE=" + j.image, "CI=true"}
	return j
}

// container returns the command line of a container like that of a CI job. It has the job's
// directories at the same paths, and the socket of the engine.
func (j *ciJob) container(env []string, args ...string) []string {
	j.t.Helper()
	socket, ok := strings.CutPrefix(cmp.Or(os.Getenv("DOCKER_HOST"), "unix:///var/run/docker.sock"), "unix://")
	if !ok {
		j.t.Skip("a container can only be given an engine that listens on a Unix socket")
	}
	templates, err := filepath.Abs("../ci")
	if err != nil {
		j.t.Fatal(err)
	}
	line := []string{"run", "--rm", "--network", "none", "--workdir", j.workspace, "--volume", socket + ":/var/run/docker.sock"}
	for _, dir := range []string{j.dir, built + ":" + built + ":ro", templates + ":" + templates + ":ro"} {
		line = append(line, "--volume", dir+map[bool]string{true: ":" + dir}[dir == j.dir])
	}
	for _, kv := range slices.Concat(j.env, env) {
		line = append(line, "--env", kv)
	}
	return slices.Concat(line, []string{j.image}, args)
}

func (j *ciJob) write(path, text string) {
	j.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		j.t.Fatal(err)
	}
}

func (j *ciJob) read(path string) string {
	j.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		j.t.Error(err)
	}
	return string(text)
}

// bash runs a script as the runners do, in a container, and returns its log and
// exit status.
func (j *ciJob) bash(script string, env ...string) (log string, status int) {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(j.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", j.container(env, "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script)...)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		j.t.Fatalf("%v\n%s", err, out)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// noSession fails unless the session is gone.
func (j *ciJob) noSession(id string) {
	j.t.Helper()
	out, err := exec.CommandContext(j.t.Context(), "docker", "ps", "-aq", "--filter", "name=sandboxbash-"+id).Output()
	if err != nil || len(out) > 0 || id == "" {
		j.t.Errorf("session %q: containers %q, %v; want none", id, out, err)
	}
}

// action is a composite action of GitHub's.
type action struct {
	Inputs map[string]struct{ Default string }
	Runs   struct {
		Using string
		Steps []struct {
			Name, ID, If, Shell, Run string
			Env                      map[string]string
		}
	}
}

var expression = regexp.MustCompile(`^\$\{\{ (.+) \}\}$`)

// evaluate knows the few forms of expression that the action has.
func evaluate(t *testing.T, text string, inputs map[string]string, session string) string {
	t.Helper()
	m := expression.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	name, is := strings.CutPrefix(m[1], "inputs.")
	switch {
	case m[1] == "steps.start.outputs.session":
		return session
	case m[1] == "inputs.version != '' && format('{0}/sandboxbash/sandboxbash', runner.temp) || inputs.program":
		return inputs["program"] // no test of the steps installs a release: see TestGitHubInstall
	case m[1] == "inputs.summary == 'true' && 'auto' || ''":
		return map[bool]string{true: "auto"}[inputs["summary"] == "true"]
	case is && !strings.Contains(name, " "):
		value, ok := inputs[name]
		if !ok {
			t.Errorf("%q is not an input of the action", name)
		}
		return value
	}
	t.Fatalf("the test does not know the expression %q", text)
	return ""
}

// The steps of the action for GitHub, as its runner would run them: with its
// variables and files, in order, the last one whatever happened before.
func TestGitHubAction(t *testing.T) {
	t.Parallel()
	var a action
	text, err := os.ReadFile("../ci/github/action.yml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &a); err != nil || a.Runs.Using != "composite" || len(a.Runs.Steps) < 3 {
		t.Fatalf("the action is read as %+v, %v", a, err)
	}
	if end := a.Runs.Steps[len(a.Runs.Steps)-1]; end.If != "always()" || !strings.Contains(end.Run, "session reap") {
		t.Errorf("the last step is %q, if %q; want session reap, always", end.Run, end.If)
	}
	for _, test := range []struct {
		name   string
		inputs map[string]string
		status int
		log    []string
		not    []string
		pulled string
	}{
		{
			"good",
			map[string]string{
				"script": "cat file; echo '::set-output name=a::b'; echo '##[add-path]/x'; env; mkdir d e; echo made >d/out; echo more >e/out",
				"pull":   "e taken-too\nd e both\nd taken\n", "junit": "junit.xml", "junit-name": "all tests",
			},
			0,
			[]string{"from the checkout", ": :set-output", "## [add-path]"},
			[]string{"\n::", "##[", "canary"},
			"taken/out",
		},
		{
			"quotes of the script are its own",
			map[string]string{"script": `printf '<%s>' "a'b" '"; exit 9; "'`, "summary": "false"},
			0,
			[]string{`<a'b><"; exit 9; ">`},
			nil, "",
		},
		{"bad", map[string]string{"script": "echo no; exit 3", "junit": "junit.xml"}, 3, []string{"no"}, nil, ""},
		{"no session", map[string]string{"script": "true", "workspace": "copy:.."}, 2, []string{"belongs to the runner"}, nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			j := newCIJob(t)
			for _, name := range []string{"GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STATE", "GITHUB_STEP_SUMMARY"} {
				j.write(filepath.Join(j.temp, name), "")
				j.env = append(j.env, name+"="+filepath.Join(j.temp, name))
			}
			j.env = append(j.env, "GITHUB_ACTIONS=true", "RUNNER_TEMP="+j.temp, "GITHUB_WORKSPACE="+j.workspace, "GITHUB_TOKEN=ghs_canary0000000000000000000000",
				"ACTIONS_RUNTIME_TOKEN=canary-runtime", "ACTIONS_ID_TOKEN_REQUEST_URL=https://canary", "ACTIONS_ID_TOKEN_REQUEST_TOKEN=canary-oidc")
			inputs := map[string]string{}
			for name, input := range a.Inputs {
				inputs[name] = input.Default
			}
			maps.Copy(inputs, test.inputs)
			status, session := 0, ""
			var log strings.Builder
			for _, step := range a.Runs.Steps {
				switch {
				case step.If == "" && status != 0, step.If == "inputs.version != ''" && inputs["version"] == "":
					continue
				case strings.Contains(step.If, "inputs.pull != ''") && (inputs["pull"] == "" || session == ""):
					continue
				}
				var env []string
				for name, value := range step.Env {
					env = append(env, name+"="+evaluate(t, value, inputs, session))
				}
				out, exit := j.bash(step.Run, env...)
				fmt.Fprintf(&log, "%s", out)
				if status == 0 {
					status = exit
				}
				if id, ok := strings.CutPrefix(strings.TrimSpace(j.read(filepath.Join(j.temp, "GITHUB_OUTPUT"))), "session="); ok {
					session = id
				}
			}
			if status != test.status {
				t.Errorf("exit status %d; want %d:\n%s", status, test.status, &log)
			}
			for _, want := range test.log {
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log does not hold %q:\n%s", want, &log)
				}
			}
			for _, not := range test.not {
				if strings.Contains(log.String(), not) {
					t.Errorf("the log holds %q:\n%s", not, &log)
				}
			}
			if session != "" {
				j.noSession(session)
				if summary := j.read(filepath.Join(j.temp, "GITHUB_STEP_SUMMARY")); strings.Contains(summary, "####") != (inputs["summary"] == "true") {
					t.Errorf("the summary is %q, with summary: %s", summary, inputs["summary"])
				}
			}
			for _, name := range []string{"GITHUB_ENV", "GITHUB_PATH", "GITHUB_STATE"} {
				if text := j.read(filepath.Join(j.temp, name)); text != "" {
					t.Errorf("$%s holds %q; want nothing", name, text)
				}
			}
			if test.pulled != "" && j.read(filepath.Join(j.workspace, test.pulled)) != "made\n" {
				t.Errorf("%s was not taken out", test.pulled)
			}
			if file := inputs["junit"]; file != "" && session != "" && !strings.Contains(j.read(filepath.Join(j.workspace, file)), `tests="1"`) {
				t.Errorf("%s does not tell of one command", file)
			}
		})
	}
}

// The action's installer takes the program from an archive with the right checksum, and from no other.
func TestGitHubInstall(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the archive of this test is for linux/amd64")
	}
	dir := t.TempDir()
	name := "sandboxbash_1.2.3_linux_amd64"
	at := filepath.Join(dir, "v1.2.3")
	for _, d := range []string{filepath.Join(dir, name), at} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, name, "sandboxbash"), []byte("#!/bin/sh\necho the program\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(at, name+".tar.gz")
	if out, err := exec.CommandContext(t.Context(), "tar", "-C", dir, "-czf", archive, name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	content, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	if err := os.WriteFile(filepath.Join(at, "SHA256SUMS"), []byte(sum+"  "+name+".tar.gz\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	wrong := strings.Repeat("0", 64)
	for i, test := range []struct {
		version, sha256, sums string
		status                int
		want                  string
	}{
		{"1.2.3", "", sum, 0, "the program"},
		{"v1.2.3", sum, wrong, 0, "the program"},
		{"1.2.3", "", wrong, 1, "SHA256SUMS says " + wrong + ": it is not installed"},
		{"1.2.3", wrong, sum, 1, "the input sha256 says " + wrong},
		{"1.2.4", "", sum, 1, "cannot be fetched"},
		{"latest", "", sum, 2, "is not a version"},
		{"../1.2.3", "", sum, 2, "is not a version"},
	} {
		if err := os.WriteFile(filepath.Join(at, "SHA256SUMS"), []byte(test.sums+"  "+name+".tar.gz\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, fmt.Sprint("to", i))
		cmd := exec.CommandContext(t.Context(), "bash", "../ci/github/install.sh", test.version, to)
		cmd.Env = append(os.Environ(), "RELEASES=file://"+dir, "SHA256="+test.sha256)
		out, _ := cmd.CombinedOutput()
		_, missing := os.Stat(filepath.Join(to, "sandboxbash"))
		if got := cmd.ProcessState.ExitCode(); got != test.status || !strings.Contains(string(out), test.want) || (missing == nil) != (test.status == 0) {
			t.Errorf("install %s, sha256 %q = %d, %s; want %d and %q", test.version, test.sha256, got, out, test.status, test.want)
		}
	}
}

// GitLab's job runs script, and then after_script in any case.
func TestGitLabJob(t *testing.T) {
	t.Parallel()
	var file map[string]struct {
		Variables map[string]string
		Script    []string
		After     []string `yaml:"after_script"`
		Artifacts struct{ Reports struct{ JUnit string } }
	}
	text, err := os.ReadFile("../ci/gitlab/sandboxbash.yml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	job := file[".sandboxbash"]
	if n := len(job.After); n == 0 || job.After[n-1] != "sandboxbash session reap" {
		t.Errorf("after_script is %q; want session reap at its end", job.After)
	}
	for script, want := range map[string]int{`cat file; printf '\033[0Ksection_start:1:a\r\033[0K'; env`: 0, "exit 7": 7} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			j := newCIJob(t)
			j.env = append(j.env, "GITLAB_CI=true", "CI_JOB_TOKEN=canary-job-token", "CI_PROJECT_DIR="+j.workspace)
			for name, value := range job.Variables {
				j.env = append(j.env, name+"="+value)
			}
			j.env = append(j.env, "SANDBOXED="+script)
			log, status := j.bash(strings.Join(job.Script, "\n"))
			if status != want || strings.Contains(log, "section_start:") || strings.Contains(log, "canary") || want == 0 && !strings.Contains(log, "from the checkout") {
				t.Errorf("%s: exit status %d; want %d, and no section or token:\n%s", script, status, want, log)
			}
			if report := j.read(filepath.Join(j.workspace, job.Artifacts.Reports.JUnit)); !strings.Contains(report, `tests="1"`) {
				t.Errorf("the JUnit report is %q", report)
			}
			if log, status := j.bash(strings.Join(job.After, "\n")); status != 0 {
				t.Errorf("after_script: exit status %d:\n%s", status, log)
			}
		})
	}
}

// In the container of a job, a bind of a directory that exists only in that container is
// refused with advice. A bind of a directory that the engine has at the same path works.
func TestBindInJobContainer(t *testing.T) {
	t.Parallel()
	j := newCIJob(t)
	if log, status := j.bash(`sandboxbash run --workspace bind:. --user 1000 'cat file'`); status != 0 || !strings.Contains(log, "from the checkout") {
		t.Errorf("a bind of the job's directory: exit status %d:\n%s", status, log)
	}
	for _, dir := range []string{"/builds", "/var/tmp"} { // the engine's machine has no such directory, or another one
		log, status := j.bash(`mkdir -p "$AT" && cd "$AT" && echo ours >file && chown -R 1000:1000 . &&
			sandboxbash run --workspace copy:. 'cat file' && sandboxbash run --workspace bind:.:ro 'echo bound'`, "AT="+dir)
		if status != 2 && status != 125 || !strings.Contains(log, "ours\n") || strings.Contains(log, "bound\n") || !strings.Contains(log, "copy:"+dir) {
			t.Errorf("a bind of the container's own %s: exit status %d; want a refusal and advice:\n%s", dir, status, log)
		}
	}
}

// The shell runner's exit status is the script's, and a job that is cancelled
// leaves no session.
func TestShellRunner(t *testing.T) {
	t.Parallel()
	j := newCIJob(t)
	program, err := filepath.Abs("../ci/shell/run.sh")
	if err != nil {
		t.Fatal(err)
	}
	if log, status := j.bash(program + ` 'cat file; exit 5'`); status != 5 || !strings.Contains(log, "from the checkout") {
		t.Errorf("exit status %d, log %q; want 5 and the file", status, log)
	}
	// Words are a command and its arguments, each as it is.
	if log, status := j.bash(program + ` grep -c 'from the' file`); status != 0 || !strings.Contains(log, "1\n") {
		t.Errorf("exit status %d, log %q; want 0 and the number of lines", status, log)
	}
	if log, status := j.bash(program + ` -- sh -c 'printf "<%s>" "$@"; exit 6' sh "it's" '$HOME' '' '*' -n 'two
lines'`); status != 6 || !strings.Contains(log, "<it's><$HOME><><*><-n><two\nlines>") {
		t.Errorf("exit status %d, log %q; want 6 and the words", status, log)
	}
	if log, status := j.bash(program + ` make test`); status != 2 || !strings.Contains(log, "make") || !strings.Contains(log, "test") {
		t.Errorf("make test without a Makefile: exit status %d, log %q; want 2 and make's own words about test", status, log)
	}
	if log, status := j.bash(program+" true", "SANDBOXBASH=/no/such/program"); status != 127 {
		t.Errorf("without the program: exit status %d, log %q; want 127", status, log)
	}

	var log bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, "echo begun; sleep 300")
	cmd.Env = slices.Concat(os.Environ(), j.env, []string{"PATH=" + built + ":" + os.Getenv("PATH"), "SANDBOXBASH_ARTIFACTS_MODE=always", "SANDBOXBASH_JSON=true"})
	cmd.Dir, cmd.Stdout, cmd.Stderr = j.workspace, &log, &log
	cmd.WaitDelay = time.Minute
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	begun := func() bool { // the command has written its artifact
		found, _ := filepath.Glob(filepath.Join(filepath.Dir(j.temp), "..", "home", ".local/state/sandboxbash/artifacts/*/*"))
		return len(found) > 0
	}
	for deadline := time.Now().Add(time.Minute); !begun(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the command does not begin")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 143 {
		t.Errorf("cancelled: %v; want exit status 143\n%s", err, &log)
	}
	var result struct{ Session, Reason string }
	if err := json.Unmarshal(log.Bytes(), &result); err != nil || result.Reason != "cancelled" {
		t.Errorf("the result is %q, %v; want that it was cancelled", &log, err)
	}
	j.noSession(result.Session)
}
