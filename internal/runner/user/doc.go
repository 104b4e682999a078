// Package user has the runner's verbs that act with the rights of the session's user, each in
// a process of its own, and the list of processes, which the runner that is asked makes itself.
// They report facts about the session, and transfer files. Package wire describes their answers.
package user
