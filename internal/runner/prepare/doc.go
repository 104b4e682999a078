// Package prepare has the runner's verbs that work on a volume before any command runs:
// as uid 0 of a container that was made for that alone. Every byte they read is the
// image's choice: they run nothing of it, follow no link, and stop at bounds.
package prepare
