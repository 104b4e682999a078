package tool

import (
	"fmt"
	"math"
	"time"
)

// Bounds of contract agent's timeout, in seconds.
const (
	defaultTimeout = 300
	leastTimeout   = 1
	mostTimeout    = 3600
)

// Timeout is how long a command may run.
type Timeout struct {
	Seconds   float64
	Requested *float64 // the requested timeout, if it differs
	most      float64  // the longest that can be requested
}

// clampTimeout brings a timeout in seconds, nil for none, into the range of
// contract agent. A ceiling above 0 lowers the range's end, and the default.
func clampTimeout(requested *float64, ceiling float64) Timeout {
	t := Timeout{Seconds: defaultTimeout, most: mostTimeout}
	if requested != nil {
		t.Seconds = *requested
	}
	if ceiling > 0 {
		t.most = max(leastTimeout, min(ceiling, mostTimeout))
	}
	t.Seconds = max(leastTimeout, min(t.Seconds, t.most))
	if requested != nil && *requested != t.Seconds {
		t.Requested = requested
	}
	return t
}

// Duration returns the timeout, rounded to milliseconds.
func (t Timeout) Duration() time.Duration {
	return time.Duration(math.Round(t.Seconds*1000)) * time.Millisecond
}

// notice says that the timeout is not the requested one; "" if it is.
func (t Timeout) notice() string {
	if t.Requested == nil {
		return ""
	}
	return fmt.Sprintf("Timeout clamped to %ss (requested %ss; allowed range %d-%ss).",
		jsNumber(t.Seconds), jsNumber(*t.Requested), leastTimeout, jsNumber(t.most))
}

// Message says that the timeout is over. It rounds half a second up, as JavaScript does.
func (t Timeout) Message() string {
	return fmt.Sprintf("Command timed out after %.0f seconds", math.Floor(t.Seconds+0.5))
}

// autoBackgroundWait returns how long a command may run before it becomes a job: the
// threshold, but at least a second less than its timeout. 0 makes it a job at once.
func autoBackgroundWait(thresholdMs float64, timeout time.Duration) time.Duration {
	if !(thresholdMs >= 1) { // less than a millisecond, or NaN
		return 0
	}
	threshold := time.Duration(min(math.Floor(thresholdMs), mostTimeout*1000)) * time.Millisecond
	return max(0, min(threshold, timeout-time.Second))
}
