//go:build race

package policy

// slowdown is what the race detector makes of time.
const slowdown = 20
