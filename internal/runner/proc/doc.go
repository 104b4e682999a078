// Package proc reads what /proc says about the processes and the mounts of a container, and
// counts the processes that start. Except for the counts, all of it is a snapshot. By the
// time it is used, a process can have ended, and another process can have its pid.
package proc
