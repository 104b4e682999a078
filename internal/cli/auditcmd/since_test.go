package auditcmd

import (
	"os"
	osexec "os/exec"
	"testing"
	"time"
)

func TestSinceWhen(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		text string
		want time.Time
		bad  bool
	}{
		{"", time.Time{}, false},
		{"90m", now.Add(-90 * time.Minute), false},
		{"7d", now.AddDate(0, 0, -7), false},
		{"2026-01-30T01:02:03Z", time.Date(2026, 1, 30, 1, 2, 3, 0, time.UTC), false},
		{"2026-01-30", time.Date(2026, 1, 30, 0, 0, 0, 0, time.Local), false},
		{"yesterday", time.Time{}, true},
		{"-1h", time.Time{}, true},
		{"d", time.Time{}, true},
	}
	for _, tt := range tests {
		got, err := sinceWhen(tt.text, now)
		if !got.Equal(tt.want) || (err != nil) != tt.bad {
			t.Errorf("sinceWhen(%q) = %v, %v; want %v, bad: %v", tt.text, got, err, tt.want, tt.bad)
		}
	}
}

func TestAlive(t *testing.T) {
	t.Parallel()
	if !alive(os.Getpid()) {
		t.Error("this process is not alive")
	}
	cmd := osexec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if alive(cmd.Process.Pid) {
		t.Errorf("process %d is alive, and has ended", cmd.Process.Pid)
	}
}
