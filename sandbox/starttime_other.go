//go:build !linux && !darwin && !windows

package sandbox

// startTime knows nothing of this system's processes.
func startTime(int) (text string, ok bool) { return "", false }
