package agent

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
)

func TestEffectOf(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		script    string
		want      effect
		functions bool
	}{
		{"", noEffect, false},
		{"echo hi | grep h && ls -la > x; (make); ! test -e y", noEffect, false},
		{"A=1 make test", noEffect, false},
		{"if true; then echo \"$A\"; fi", noEffect, false},
		{"A=1", changes, false},
		{"export A=1", changes, false},
		{"(cd x && declare -x B)", changes, false},
		{"for i in 1 2; do echo $i; done", changes, false},
		{"echo ${A:=1}", changes, false},
		{"echo $((A++))", changes, false},
		{"printf -v A x", changes, false},
		{"read A", changes, false},
		{"echo hi {fd}>x", changes, false},
		{"f() { echo; }", changes, true},
		{"exec true", replaces, false},
		{"echo $(exec true)", replaces, false},
		{"trap 'echo bye' EXIT", replaces, false},
		{"eval \"$X\"", replaces, false},
		{". ./env.sh", replaces, false},
		{"$cmd", replaces, false},
		{`\exec true`, replaces, false},
		{"command exec true", replaces, false},
		{"f() { exec true; }", replaces, true},
		{"echo )", replaces, true},
		{strings.Repeat("#", tool.MaxFixup+1), replaces, true},
	} {
		got, functions := effectOf(test.script)
		if got != test.want || functions != test.functions {
			t.Errorf("effectOf(%.40q) = %d, %v; want %d, %v", test.script, got, functions, test.want, test.functions)
		}
	}
}

// What every call is given is what the shell does not keep.
func TestShellFiles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("shell", "save.bash"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), `"${@:4}" \`)
	list, _, _ = strings.Cut(list, "\n{")
	names := regexp.MustCompile(`[A-Za-z_]+`).FindAllString(list, -1)
	slices.Sort(names)
	if want := slices.Sorted(maps.Keys(tool.NonInteractive())); !slices.Equal(names, want) {
		t.Errorf("save.bash leaves out %q; want %q", names, want)
	}
}

func TestMinimizerFilters(t *testing.T) {
	t.Parallel()
	on := tool.Minimizer{Enabled: true, MaxBytes: 30, Except: []string{"git"}}
	only := tool.Minimizer{Enabled: true, MaxBytes: 30, Only: []string{"make"}}
	for _, test := range []struct {
		m       tool.Minimizer
		command string
		want    bool
	}{
		{on, "make test", true},
		{on, "/usr/bin/make", true},
		{on, "A=1 make 2>&1", true},
		{tool.Minimizer{}, "make", false},
		{on, "make | cat", false},
		{on, "make; ls", false},
		{on, "make &", false},
		{on, "! make", false},
		{on, "(make)", false},
		{on, "$x", false},
		{on, "echo )", false},
		{on, "A=1", false},
		{on, "git log", false},
		{only, "make", true},
		{only, "ls", false},
	} {
		if got := filters(test.m, test.command); (got != nil) != test.want {
			t.Errorf("%d filters for %q under %+v; want some: %v", len(got), test.command, test.m, test.want)
		}
	}
	last := filters(on, "make")[2]
	if got := last("a\na\na\na\n"); got != "a\n[the line above came 4 times]\n" {
		t.Errorf("the last filter makes %q", got)
	}
	if long := strings.Repeat("a\n", 16); last(long) != long {
		t.Error("a text beyond the limit is minimized")
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	minimizer := tool.DefaultSettings()
	minimizer.Minimizer.Enabled, minimizer.Minimizer.SettingsPath = true, "x.toml"
	for want, o := range map[string]SessionOptions{
		"unknown contract": {Contract: "D"},
		"settingsPath":     {Settings: minimizer},
	} {
		if _, err := open(nil, directories{}, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("open(%+v) = %v; want %q in it", o, err, want)
		}
	}
	s, err := open(nil, directories{dir: "/w"}, SessionOptions{Settings: asyncSettings()})
	if err != nil {
		t.Fatal(err)
	}
	if d := s.Definitions(); len(d) != 2 || d[1].Name != tool.JobName || !strings.Contains(string(d[0].InputSchema), "async") {
		t.Errorf("Definitions() = %+v; want bash with async, and job", d)
	}
	if r := s.Call(t.Context(), "read", nil, Events{}); r.Text != "Unknown tool: read" || r.Thrown != tool.ToolError {
		t.Errorf("Call(read) = %+v", r)
	}
}

// Deliveries within a window are handed over together, and those that are on
// their way are waited for, but not for ever.
func TestBatcher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type handed struct {
			after time.Duration
			ids   string
		}
		var mu sync.Mutex
		var got []handed // guarded by mu
		start := time.Now()
		broken := errors.New("broken")
		b := batcher{hand: func(_ context.Context, list []tool.Delivery) error {
			ids := ""
			for _, d := range list {
				ids += d.JobID
			}
			mu.Lock()
			got = append(got, handed{time.Since(start), ids})
			mu.Unlock()
			if ids == "d" {
				return broken
			}
			return nil
		}}
		add := func(id string, expected, added time.Duration, want error) {
			time.Sleep(time.Until(start.Add(expected)))
			b.expect(1)
			time.Sleep(time.Until(start.Add(added)))
			if err := b.add(t.Context(), tool.Delivery{JobID: id}); !errors.Is(err, want) {
				t.Errorf("add(%s) = %v; want %v", id, err, want)
			}
		}
		const ms = time.Millisecond
		go add("a", 0, 0, nil)
		go add("b", 0, 90*ms, nil)
		go add("c", 95*ms, 150*ms, nil) // on its way when the window ends
		go add("d", 1000*ms, 1000*ms, broken)
		go add("e", 1050*ms, 5000*ms, nil) // too slow
		time.Sleep(10 * time.Second)
		b.timers.Wait()
		mu.Lock()
		defer mu.Unlock()
		want := []handed{{200 * ms, "abc"}, {2000 * ms, "d"}, {5100 * ms, "e"}}
		if !slices.Equal(got, want) {
			t.Errorf("handed over %v; want %v", got, want)
		}
	})
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := urlFiles{urls: tool.URLs{Skills: []tool.Skill{{Name: "s", Dir: dir}}}}
	at := func(name string) string {
		t.Helper()
		src, err := p.source(tool.Expansion{Kind: "skill", Path: filepath.Join(dir, name)})
		if err != nil {
			t.Fatal(err)
		}
		if src.root != nil {
			defer src.root.Close()
		}
		return sandbox.PlacedPath(src.at, src.as)
	}
	first := at("a.txt")
	if again := at("a.txt"); again != first || !strings.HasSuffix(first, "/a.txt") {
		t.Errorf("places %s and %s; want the same", first, again)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if other := at("a.txt"); other == first {
		t.Errorf("place %s of what has changed; want another", other)
	}
	// Links are followed of what the host has named itself, and of nothing else.
	elsewhere := filepath.Join(t.TempDir(), "rule.md")
	if err := errors.Join(os.WriteFile(elsewhere, nil, 0o600), os.Symlink(elsewhere, filepath.Join(dir, "link.md"))); err != nil {
		t.Fatal(err)
	}
	for kind, follows := range map[string]bool{"rule": true, "agent": false, "skill": false} {
		src, err := p.source(tool.Expansion{Kind: kind, Path: filepath.Join(dir, "link.md")})
		if (err == nil) != follows {
			t.Errorf("a link of kind %s: %v; want it followed: %v", kind, err, follows)
		}
		if err == nil {
			_ = src.root.Close()
		}
	}
	if got := at("none/x"); got != sandbox.PlacedPath("none", "x") {
		t.Errorf("place %s of nothing", got)
	}
}
