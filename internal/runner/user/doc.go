// Package user has the runner's verbs that act with the rights of the session's user,
// each in a process of its own: they report what there is, and transfer files. What
// they answer with is described in internal/wire.
package user
