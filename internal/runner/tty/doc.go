// Package tty finds out whether the program on a terminal waits for input.
package tty
