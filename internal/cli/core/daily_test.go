package core

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/config"
)

func TestFirstToday(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	dir := filepath.Join(state, "sandboxbash", "notes")
	e := &Environment{vars: []string{"XDG_STATE_HOME=" + state}}
	if !e.firstToday("a") || e.firstToday("a") || !e.firstToday("b") || e.firstToday("a") {
		t.Error("a note is not the first of the day exactly once")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Fatalf("there are %d files: %v; want 2", len(entries), err)
	}
	for _, row := range []struct {
		name string
		at   time.Duration // from now
		want bool
	}{
		{"an hour ago", -time.Hour, false},
		{"yesterday", -noteEvery - time.Minute, true},
		{"next week, by a clock that was wrong", 7 * 24 * time.Hour, true},
	} {
		for _, one := range entries {
			at := time.Now().Add(row.at)
			if err := os.Chtimes(filepath.Join(dir, one.Name()), at, at); err != nil {
				t.Fatal(err)
			}
		}
		if got := e.firstToday("a"); got != row.want {
			t.Errorf("printed %s: firstToday() = %t; want %t", row.name, got, row.want)
		}
	}
	for _, vars := range [][]string{nil, {"XDG_STATE_HOME=/proc/nothing"}} {
		none := &Environment{vars: vars}
		if first, again := none.firstToday("a"), none.firstToday("a"); !first || !again {
			t.Errorf("with %q a note is not printed", vars)
		}
	}
}

// What was printed long ago does not stay for ever.
func TestForgetSaid(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	dir := filepath.Join(state, "sandboxbash", "notes")
	e := &Environment{vars: []string{"XDG_STATE_HOME=" + state}}
	old := time.Now().Add(-2 * noteEvery)
	for i := range maxSaid {
		e.firstToday(fmt.Sprint(i))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range entries[1:] {
		if err := os.Chtimes(filepath.Join(dir, one.Name()), old, old); err != nil {
			t.Fatal(err)
		}
	}
	e.firstToday("new")
	if entries, err = os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("there are %d files: %v; want the one of today and the new one", len(entries), err)
	}
}

// Notes that are so for each call are printed once a day; a JSON result always has them.
func TestAddDaily(t *testing.T) {
	t.Parallel()
	environ := []string{"XDG_STATE_HOME=" + t.TempDir()}
	say := func(cfg config.Config) (string, []string) {
		var errs bytes.Buffer
		p := New("", environ, strings.NewReader(""), io.Discard, &errs)
		p.Cfg.Config = &cfg
		p.Notes.gatherIf(cfg.JSON)
		p.Notes.AddDaily("so it is")
		p.Notes.Add("this time")
		return errs.String(), p.Notes.Gathered()
	}
	const always = "sandboxbash: note: this time\n"
	for i, want := range []string{"sandboxbash: note: so it is\n" + always, always} {
		if i == 0 { // what was not printed does not count
			if got, _ := say(config.Config{Quiet: true}); got != "" {
				t.Errorf("with --quiet it says %q", got)
			}
		}
		if _, got := say(config.Config{JSON: true}); !slices.Equal(got, []string{"so it is", "this time"}) {
			t.Errorf("--json has the notes %q", got)
		}
		if got, _ := say(config.Config{}); got != want {
			t.Errorf("call %d says %q; want %q", i+1, got, want)
		}
	}
}
