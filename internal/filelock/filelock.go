// Package filelock locks open files against other processes, and against other open
// files of this process. A lock ends with Unlock, with the file, or with the process.
package filelock
