package cli

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/sink"
)

func TestParseRange(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text     string
		from, to int64
		ok       bool
	}{
		{"-", 0, -1, true},
		{"5-", 5, -1, true},
		{"-7", 0, 7, true},
		{"5-7", 5, 7, true},
		{"7-7", 7, 7, true},
		{"7-5", 0, 0, false},
		{"5", 0, 0, false},
		{"a-b", 0, 0, false},
		{"1-2-3", 0, 0, false},
		{"--5", 0, 0, false},
		{"99999999999999999999-", 0, 0, false},
		{"", 0, 0, false},
	} {
		from, to, err := parseRange(test.text)
		if from != test.from || to != test.to || (err == nil) != test.ok {
			t.Errorf("parseRange(%q) = %d, %d, %v; want %d, %d, ok %v", test.text, from, to, err, test.from, test.to, test.ok)
		}
	}
}

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
		status, out, errs := call(t, environ, append([]string{"artifact"}, test.args...)...)
		if status != test.status || out != test.stdout {
			t.Errorf("artifact %q = %d, %q, %q; want %d, %q", test.args, status, out, errs, test.status, test.stdout)
		}
	}
	status, out, _ := call(t, environ, "artifact", "ls", "--json")
	if status != 0 || strings.Count(out, `"state":"complete"`) != 3 || !strings.Contains(out, `{"session":"aaaa-1","id":"0","name":"0.bash.log","bytes":19,`) {
		t.Errorf("artifact ls --json = %d, %s; want three artifacts", status, out)
	}
}

func TestArtifactRemoval(t *testing.T) {
	t.Parallel()
	environ, dir := stored(t)
	count := func() int {
		t.Helper()
		_, out, _ := call(t, environ, "artifact", "ls")
		return strings.Count(out, "\n") - 1
	}
	if status, _, errs := call(t, environ, "artifact", "rm", "--session", "aaaa", "0", "9"); status != exit.Usage || count() != 2 {
		t.Errorf("rm of one that is there and one that is not = %d, %q, and %d are left; want %d and 2", status, errs, count(), exit.Usage)
	}
	old := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "bbbb-2", "0.bash.log"), old, old); err != nil {
		t.Fatal(err)
	}
	status, out, errs := call(t, append(environ, "SANDBOXBASH_ARTIFACTS_RETENTION=1d"), "artifact", "gc")
	if status != 0 || out != "bbbb-2/0\n" || count() != 1 {
		t.Errorf("gc = %d, %q, %q, and %d are left; want bbbb-2/0 and 1", status, out, errs, count())
	}
	if status, _, errs := call(t, environ, "artifact", "rm", "--all"); status != 0 || count() != 0 {
		t.Errorf("rm --all = %d, %q, and %d are left; want 0", status, errs, count())
	}
}

// Whatever starts a session collects what is past its retention first.
func TestCollect(t *testing.T) {
	t.Parallel()
	environ, dir := stored(t)
	old := filepath.Join(dir, "bbbb-2", "0.bash.log")
	past := time.Now().Add(-15 * 24 * time.Hour)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	a := core.New("", environ, nil, io.Discard, io.Discard)
	a.Cfg = &config.Config{Artifacts: config.Artifacts{Retention: 14 * 24 * time.Hour}}
	a.Collect()()
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after collect: Stat(%s) = %v; want it gone", old, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "aaaa-1", "0.bash.log")); err != nil {
		t.Errorf("after collect: %v; want what is young to stay", err)
	}
}

func TestArtifactCompletion(t *testing.T) {
	t.Parallel()
	environ, _ := stored(t)
	_, out, _ := call(t, environ, "__complete", "artifact", "cat", "--session", "")
	if !strings.HasPrefix(out, "aaaa-1\nbbbb-2\n:") {
		t.Errorf("completion of --session = %q; want both sessions", out)
	}
	_, out, _ = call(t, environ, "__complete", "run", "--profile", "")
	if !strings.HasPrefix(out, "strict\ndev\n:") {
		t.Errorf("completion of --profile = %q; want its choices", out)
	}
}

func TestNoPlaceForArtifacts(t *testing.T) {
	t.Parallel()
	status, _, errs := call(t, nil, "artifact", "ls")
	if status != exit.Usage || !strings.Contains(errs, "artifacts.dir") {
		t.Errorf("artifact ls without a home = %d, %q; want %d and what to set", status, errs, exit.Usage)
	}
}
