package core

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// wordsOf parses a command line of a command that has --session.
func wordsOf(t *testing.T, line string) (*cobra.Command, []string) {
	t.Helper()
	cmd := &cobra.Command{Use: "x"}
	flags.Add(cmd, "session.id", "quiet")
	if err := cmd.ParseFlags(strings.Fields(line)); err != nil {
		t.Fatal(err)
	}
	return cmd, cmd.Flags().Args()
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		line, ref, rest string
		bad             bool
	}{
		{"", "", "", false},
		{"web", "web", "", false},
		{"web a b", "web", "a b", false},
		{"web -- a b", "web", "a b", false},
		{"web a -- b", "web", "a b", false},
		{"-- a b", "", "a b", false},
		{"--", "", "", false},
		{"-s web a b", "", "a b", false},
		{"a -s web b", "", "a b", false},
		{"-s web -- a", "", "a", false},
		{"-s web a -- b", "", "", true},
		{"-q web a", "web", "a", false},
	} {
		cmd, args := wordsOf(t, test.line)
		ref, rest, err := (&Configuration{}).Split(cmd, args)
		if (err != nil) != test.bad || ref != test.ref || strings.Join(rest, " ") != test.rest {
			t.Errorf("Split(%q) = %q, %q, %v; want %q and %q, an error: %v", test.line, ref, rest, err, test.ref, test.rest, test.bad)
		}
	}
	cmd, _ := wordsOf(t, "x")
	if _, _, err := (&Configuration{}).Split(cmd, []string{""}); !errors.Is(err, ErrNoSessionID) {
		t.Errorf(`Split("") = %v; want %v`, err, ErrNoSessionID)
	}
}

func TestSplitScript(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		line, ref, script string
		bad               bool
	}{
		{"", "", "", false},
		{"web", "web", "", false},
		{"web -- vi x", "web", "vi x", false},
		{"-- vi x", "", "vi x", false},
		{"-s web -- vi", "", "vi", false},
		{"web vi", "", "", true},
		{"web vi -- x", "", "", true},
		{"-s web other", "", "", true},
		{"-s web other -- vi", "", "", true},
	} {
		cmd, args := wordsOf(t, test.line)
		ref, script, err := (&Configuration{}).SplitScript(cmd, args)
		if (err != nil) != test.bad || ref != test.ref || strings.Join(script.List, " ") != test.script {
			t.Errorf("SplitScript(%q) = %q, %q, %v; want %q and %q, an error: %v", test.line, ref, script.List, err, test.ref, test.script, test.bad)
		}
	}
}

// The hint for a word that names no session is added to an unknown session alone.
func TestUnnamed(t *testing.T) {
	t.Parallel()
	lost := &exec.Error{Outcome: exec.Lost, Cause: sandbox.CauseRemoved, Err: sandbox.ErrUnknownSession}
	for _, test := range []struct {
		err  error
		ref  string
		want bool
	}{
		{sandbox.ErrUnknownSession, "src", true},
		{sandbox.ErrUnknownSession, "", false},
		{lost, "src", false},
		{errors.New("x"), "src", false},
		{nil, "src", false},
	} {
		got := Unnamed(test.err, test.ref, "x -- y")
		if !errors.Is(got, test.err) || got != nil && strings.Contains(exit.Judge(got).Todo, "as in `x -- y`") != test.want {
			t.Errorf("Unnamed(%v, %q) = %v; want the hint: %v", test.err, test.ref, got, test.want)
		}
	}
	if v := exit.Judge(Unnamed(sandbox.ErrUnknownSession, "src", "x")); v.Status != exit.Usage || v.Cause != "unknown-session" || v.Outcome != exec.NotStarted {
		t.Errorf("Judge() = %+v; want what it is without the hint", v)
	}
}

func TestOfDirectory(t *testing.T) {
	t.Parallel()
	copied := sandbox.Workspace{Kind: sandbox.WorkspaceCopy, Dir: "/no/copied"}
	list := []sandbox.Info{
		{Name: "top", Directory: "/no/a"},
		{Name: "deep", Directory: "/no/a/b/c"},
		{Name: "twin", Directory: "/no/a/b/c"},
		{Name: "copy", Directory: "/no/else", Workspace: copied},
		{Name: "run", Workspace: copied}, // its process's own
		{Name: "bound", Directory: "/no/bound", Workspace: sandbox.Workspace{Kind: sandbox.WorkspaceBind, Dir: "/no/bound"}},
	}
	for dir, want := range map[string]string{
		"/no/a": "top", "/no/a/x/y": "top", "/no/a/b": "top", "/no/a/b/c": "deep twin", "/no/a/b/c/d": "deep twin", "/no/ab": "", "/": "", "": "",
		"/no/copied/sub": "copy", "/no/else": "copy", "/no/bound": "bound",
	} {
		var names []string
		for _, i := range ofDirectory(list, dir) {
			names = append(names, i.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("ofDirectory(%q) = %q; want %q", dir, got, want)
		}
	}
}

// A workspace that is found through a link is that of the directory.
func TestOfDirectoryLinked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	list := []sandbox.Info{{Name: "web", Directory: "/no", Workspace: sandbox.Workspace{Kind: sandbox.WorkspaceCopy, Dir: link}}}
	if got := ofDirectory(list, resolved(dir)); len(got) != 1 {
		t.Errorf("ofDirectory() of a linked workspace = %v; want it", got)
	}
}

func TestTheOne(t *testing.T) {
	t.Parallel()
	up := func(name string) sandbox.Info { return sandbox.Info{Name: name, Status: engine.StatusRunning} }
	ended := func(name string) sandbox.Info {
		return sandbox.Info{Name: name, Status: sandbox.StatusKept, Kept: &sandbox.Kept{}}
	}
	for _, test := range []struct {
		list []sandbox.Info
		want string // the name, or of the error
	}{
		{nil, "no session of yours"},
		{[]sandbox.Info{up("a")}, "a"},
		{[]sandbox.Info{ended("a")}, "a"},
		{[]sandbox.Info{ended("a"), up("b"), ended("c")}, "b"},
		{[]sandbox.Info{up("a"), up("b")}, "2 sessions were started in this directory or above: a (), b ()"},
		{[]sandbox.Info{ended("a"), ended("b")}, "2 sessions"},
	} {
		got, err := theOne(test.list, whyDirectory)
		if err == nil && got.Name != test.want || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("theOne(%v) = %q, %v; want %q", test.list, got.Name, err, test.want)
		}
	}
}

func TestUsed(t *testing.T) {
	t.Parallel()
	const first, second, old = "0199aaaa-bbbb-7ccc-8ddd-eeeeffff0001", "0199aaaa-bbbb-7ccc-8ddd-eeeeffff0002", "0199aaaa-bbbb-7ccc-8ddd-eeeeffff0003"
	e := &Environment{vars: []string{"XDG_STATE_HOME=" + t.TempDir()}}
	e.NoteUse(first)
	e.NoteUse("../x") // not an id: nothing is written
	e.NoteUse(second)
	e.NoteUse(old)
	at := time.Now()
	for id, when := range map[string]time.Time{first: at, second: at.Add(-time.Hour), old: at.Add(-2 * usedFor)} {
		if err := os.Chtimes(filepath.Join(e.usedDir(), id), when, when); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := e.usedSessions(), []string{first, second, old}; !slices.Equal(got, want) {
		t.Errorf("usedSessions() = %q; want %q", got, want)
	}
	if got := e.LastUsed(second); !got.Equal(at.Add(-time.Hour).Truncate(0)) && got.Sub(at.Add(-time.Hour)).Abs() > time.Second {
		t.Errorf("LastUsed() = %v; want %v", got, at.Add(-time.Hour))
	}
	e.NoteUse(second)
	if e.LastUsed(second).Before(at) {
		t.Errorf("LastUsed() after NoteUse() = %v; want it renewed", e.LastUsed(second))
	}
	e.ForgetUse(first)
	if got, want := e.usedSessions(), []string{second}; !slices.Equal(got, want) {
		t.Errorf("usedSessions() after ForgetUse() = %q; want %q: what is old goes too", got, want)
	}
	none := &Environment{}
	none.NoteUse(first)
	none.ForgetUse(first)
	if !none.LastUsed(first).IsZero() || none.usedSessions() != nil {
		t.Error("without a home something was used")
	}
}
