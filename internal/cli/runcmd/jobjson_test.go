package runcmd

import (
	"testing"
	"time"
)

func TestTimeoutText(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "none", 90 * time.Second: "1m30s", 10 * time.Minute: "10m", 2 * time.Hour: "2h", 100 * time.Minute: "1h40m", 250 * time.Millisecond: "250ms",
		time.Hour + time.Second: "1h0m1s",
	} {
		if got := (JobJSON{TimeoutMs: d.Milliseconds()}).TimeoutText(); got != want {
			t.Errorf("TimeoutText() of %v = %q; want %q", d, got, want)
		}
	}
}
