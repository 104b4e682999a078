//go:build !race

package policy

const slowdown = 1
