// Package proc reads what /proc says about the processes and the mounts of a container.
// All of it is a snapshot: a process can be gone, or another one have its number, by the
// time it is used.
package proc
