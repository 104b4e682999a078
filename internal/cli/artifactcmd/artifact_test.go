package artifactcmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/sink"
)

// A store in which session aaaa has artifacts 0 and 1, and session bbbb 0.
func stored(t *testing.T) (environ []string, dir string) {
	t.Helper()
	state := t.TempDir()
	dir = filepath.Join(state, "sandboxbash", "artifacts")
	store, err := sink.NewStore(dir, sink.StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct{ session, text string }{
		{"aaaa-1", "first\nsecond\nthird\n"}, {"aaaa-1", "\x1b[31mred\x1b[0m\xff\n"}, {"bbbb-2", "other\nsecond\n"},
	} {
		s, err := store.Session(one.session)
		if err != nil {
			t.Fatal(err)
		}
		out, err := sink.New(sink.Options{Artifact: sink.Always}, s, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = out.Stdout().Write([]byte(one.text))
		if a := out.Close().Artifact; !a.Complete {
			t.Fatalf("artifact %+v is not complete", a)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"XDG_STATE_HOME=" + state, "HOME=" + state}, dir
}

func TestMain(m *testing.M) { clitest.Main(m) }

func TestArtifactCommands(t *testing.T) {
	t.Parallel()
	environ, _ := stored(t)
	for _, test := range []struct {
		args   []string
		status int
		stdout string
	}{
		{[]string{"cat", "--session", "aaaa", "0"}, 0, "first\nsecond\nthird\n"},
		{[]string{"cat", "1"}, 0, "\x1b[31mred\x1b[0m\xff\n"}, // byte by byte into a pipe
		{[]string{"cat", "--session", "bbbb-2"}, 0, "other\nsecond\n"},
		{[]string{"cat", "--session=a", "--lines", "2-3", "0"}, 0, "second\nthird\n"},
		{[]string{"cat", "--session=a", "--lines", "-1", "0"}, 0, "first\n"},
		{[]string{"cat", "--session=a", "--lines", "9-", "0"}, 0, ""},
		{[]string{"cat", "--session=a", "--bytes", "6-12", "0"}, 0, "second"},
		{[]string{"cat", "--session=a", "--bytes", "13-", "0"}, 0, "third\n"},
		{[]string{"cat", "--session=a", "--bytes", "5-5", "0"}, 0, ""},
		{[]string{"cat", "0"}, exit.Usage, ""}, // two sessions have one
		{[]string{"cat", "7"}, exit.Usage, ""},
		{[]string{"cat", "../0"}, exit.Usage, ""},
		{[]string{"cat", "--session", "cccc"}, exit.Usage, ""},
		{[]string{"cat", "--lines", "0-0", "1"}, exit.Usage, ""},
		{[]string{"cat", "--lines", "1-2", "--bytes", "1-2", "1"}, exit.Usage, ""},
		{[]string{"grep", "--session", "bbbb", "^s"}, 0, "2:second\n"},
		{[]string{"grep", "sec..d"}, 0, "aaaa-1/0:2:second\nbbbb-2/0:2:second\n"},
		{[]string{"grep", "--session", "aaaa", "r", "1"}, 0, "1:\x1b[31mred\x1b[0m\xff\n"},
		{[]string{"grep", "nothing like it"}, exit.Findings, ""},
		{[]string{"ls", "--session", "cccc"}, 0, "SESSION  ID  SIZE  AGE  STATE\n"},
		{[]string{"ls", "--session", "cccc", "--json"}, 0, "[]\n"},
		{[]string{"gc"}, 0, ""},
	} {
		status, out, errs := clitest.Call(t, environ, append([]string{"artifact"}, test.args...)...)
		if status != test.status || out != test.stdout {
			t.Errorf("artifact %q = %d, %q, %q; want %d, %q", test.args, status, out, errs, test.status, test.stdout)
		}
	}
	status, out, _ := clitest.Call(t, environ, "artifact", "ls", "--json")
	if status != 0 || strings.Count(out, `"state":"complete"`) != 3 || !strings.Contains(out, `{"session":"aaaa-1","id":"0","name":"0.bash.log","bytes":19,`) {
		t.Errorf("artifact ls --json = %d, %s; want three artifacts", status, out)
	}
}

func TestArtifactShow(t *testing.T) {
	t.Parallel()
	environ, dir := stored(t)
	status, out, errs := clitest.Call(t, environ, "artifact", "show", "-s", "aaaa", "0")
	for _, want := range []string{"id       0\n", "session  aaaa-1\n", "state    complete\n", "content  output\n", "bytes    19\n", "lines    3\n", "path     " + filepath.Join(dir, "aaaa-1", "0.bash.log") + "\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("artifact show = %d, %q, %q; want %q in it", status, out, errs, want)
		}
	}
	if strings.Contains(out, "cause") || errs != "" {
		t.Errorf("artifact show = %q, %q; want no cause and no word of an engine", out, errs)
	}
	// By default the last one: the engine that would know its session's name is not there.
	status, out, errs = clitest.Call(t, environ, "artifact", "show", "--json")
	if status != 0 || !strings.Contains(out, `"bytes":13,`) || !strings.Contains(out, `"content":"output","lines":2,"path":`) || strings.Contains(out, "sessionName") {
		t.Errorf("artifact show --json = %d, %q, %q; want that of bbbb-2", status, out, errs)
	}
	if err := os.Rename(filepath.Join(dir, "bbbb-2", "0.bash.log"), filepath.Join(dir, "bbbb-2", "0.bash-original.log")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bbbb-2", "0.bash-original.log.partial"), []byte("the disk is full\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	status, out, errs = clitest.Call(t, environ, "artifact", "show", "-s", "bbbb-2", "0")
	if status != 0 || !strings.Contains(out, "cause    the disk is full\ncontent  original\n") {
		t.Errorf("artifact show of an original = %d, %q, %q", status, out, errs)
	}
	status, out, errs = clitest.Call(t, environ, "artifact", "show", "--json", "7")
	if status != exit.Usage || !strings.Contains(out, `"error"`) || errs != "" {
		t.Errorf("artifact show --json 7 = %d, %q, %q; want %d and an object", status, out, errs, exit.Usage)
	}
}

func TestArtifactRemoval(t *testing.T) {
	t.Parallel()
	environ, dir := stored(t)
	count := func() int {
		t.Helper()
		_, out, _ := clitest.Call(t, environ, "artifact", "ls")
		return strings.Count(out, "\n") - 1
	}
	if status, _, errs := clitest.Call(t, environ, "artifact", "rm", "--session", "aaaa", "0", "9"); status != exit.Usage || count() != 2 {
		t.Errorf("rm of one that is there and one that is not = %d, %q, and %d are left; want %d and 2", status, errs, count(), exit.Usage)
	}
	old := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "bbbb-2", "0.bash.log"), old, old); err != nil {
		t.Fatal(err)
	}
	status, out, errs := clitest.Call(t, append(environ, "SANDBOXBASH_ARTIFACTS_RETENTION=1d"), "artifact", "gc")
	if status != 0 || out != "bbbb-2/0\n" || count() != 1 {
		t.Errorf("gc = %d, %q, %q, and %d are left; want bbbb-2/0 and 1", status, out, errs, count())
	}
	if status, _, errs := clitest.Call(t, environ, "artifact", "rm", "--all"); status != 0 || count() != 0 {
		t.Errorf("rm --all = %d, %q, and %d are left; want 0", status, errs, count())
	}
}

func TestArtifactCompletion(t *testing.T) {
	t.Parallel()
	environ, _ := stored(t)
	_, out, _ := clitest.Call(t, environ, "__complete", "artifact", "cat", "--session", "")
	if !strings.HasPrefix(out, "aaaa-1\nbbbb-2\n:") {
		t.Errorf("completion of --session = %q; want both sessions", out)
	}
	for line, want := range map[string]string{
		"cat --session aaaa-1": ":4", "cat": "\tof session ", "rm 99": "\tof session ", "grep": ":4", "grep x": "\tof session ", "cat 0": ":4", "ls": ":4", "show": "\tof session ", "show 0": ":4",
	} {
		_, out, _ := clitest.Call(t, environ, append(append([]string{"__complete", "artifact"}, strings.Fields(line)...), "")...)
		if !strings.Contains(out, want) || want == ":4" && !strings.Contains(line, "session") && strings.Contains(out, "\t") {
			t.Errorf("completion of %q = %q; want %q", line, out, want)
		}
	}
	_, out, _ = clitest.Call(t, environ, "__complete", "run", "--profile", "")
	if !strings.HasPrefix(out, "strict\ndev\n:") {
		t.Errorf("completion of --profile = %q; want its choices", out)
	}
}

func TestNoPlaceForArtifacts(t *testing.T) {
	t.Parallel()
	status, _, errs := clitest.Call(t, nil, "artifact", "ls")
	if status != exit.Usage || !strings.Contains(errs, "artifacts.dir") {
		t.Errorf("artifact ls without a home = %d, %q; want %d and what to set", status, errs, exit.Usage)
	}
}
