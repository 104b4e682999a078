//go:build linux

package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// A failed command reports which limits of the session were met while it ran, and no other command does.
func TestMetLimits(t *testing.T) {
	t.Parallel()
	pids, memory := wire.NoRoom{Path: wire.RoomPids}, wire.NoRoom{Path: wire.RoomMemory}
	for _, tt := range []struct {
		name         string
		pids, events string // the counters at the end
		exit         wire.Exit
		watch        []string
		want         []wire.NoRoom
	}{
		{"neither", "max 3\n", "oom_kill 2\n", wire.Exit{Code: 1}, []string{"/tmp"}, nil},
		{"pids", "max 4\n", "oom_kill 2\n", wire.Exit{Code: 1}, []string{"/tmp"}, []wire.NoRoom{pids}},
		{"memory, of a child", "max 3\n", "oom 7\noom_kill 3\n", wire.Exit{Code: 2}, []string{"/tmp"}, []wire.NoRoom{memory}},
		{"memory, of the command", "max 3\n", "oom_kill 3\n", wire.Exit{Signal: 9, OOM: true}, []string{"/tmp"}, nil},
		{"both", "max 9\n", "oom_kill 9\n", wire.Exit{Signal: 6}, []string{"/tmp"}, []wire.NoRoom{pids, memory}},
		{"a command that has not failed", "max 9\n", "oom_kill 9\n", wire.Exit{}, []string{"/tmp"}, nil},
		{"a host that does not ask", "max 9\n", "oom_kill 9\n", wire.Exit{Code: 1}, nil, nil},
		{"no counters", "", "", wire.Exit{Code: 1}, []string{"/tmp"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			set := func(name, text string) *os.File {
				path := filepath.Join(dir, name)
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				f, err := os.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { f.Close() })
				return f
			}
			s := &server{refusals: eventCounter{f: set("pids", "max 3\n"), key: "max "}, oom: &oomCounter{f: set("memory", "low 0\noom_kill 2\n")}}
			c := &command{server: s, refusals: s.refusals.read(), ooms: s.oom.watch()}
			c.req.Watch = tt.watch
			set("pids", tt.pids)
			set("memory", tt.events)
			if got := c.metLimits(tt.exit); !slices.Equal(got, tt.want) {
				t.Errorf("metLimits(%+v) = %+v; want %+v", tt.exit, got, tt.want)
			}
		})
	}
	if n := (eventCounter{}).read(); n != 0 {
		t.Errorf("a counter without a file reads %d; want 0", n)
	}
}
