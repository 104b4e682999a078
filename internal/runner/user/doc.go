// Package user has the runner's verbs that act with the rights of the session's user, each in
// a process of its own. They report facts about the session, and transfer files. Package wire
// describes their answers.
package user
