package sandbox

import (
	"context"
	"os/exec"
	"strings"
	"time"
)

// machineID returns the UUID of this Mac's hardware, "" if it is not known. Labels of
// sessions hold what has become of it, so its form may not change.
func machineID() string {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second) // it takes some 20 ms
	defer cancel()
	out, err := exec.CommandContext(ctx, "ioreg", "-rd1", "-c", "IOPlatformExpertDevice").Output()
	if err != nil {
		return ""
	}
	for line := range strings.SplitSeq(string(out), "\n") {
		if !strings.Contains(line, "IOPlatformUUID") {
			continue
		}
		if _, value, ok := strings.Cut(line, `" = "`); ok {
			return strings.ToLower(strings.TrimRight(value, `"`))
		}
	}
	return ""
}
