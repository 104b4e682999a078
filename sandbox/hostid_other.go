//go:build !linux && !darwin && !windows

package sandbox

// machineID returns "": this system has no id that we know of.
func machineID() string { return "" }
