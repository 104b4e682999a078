// Package prepare has the runner's verbs that work on a volume before any command runs. They
// run as uid 0 of a container that was created for that. The image chooses every byte that
// they read, so they run nothing of it, follow no link, and stop at bounds.
package prepare
