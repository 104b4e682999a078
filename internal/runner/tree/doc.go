// Package tree has the runner's verbs that take a whole workspace: copied into another, packed into one stream, and
// unpacked from one. Kinds, modes, owners, times, links, hard links, holes and the extended attributes that a user can
// set come back exactly; of names that lead nowhere but to a running program, such as sockets, the report has a list.
//
// The verbs run as uid 0 of a container that was made for them. What they read is hostile, and may change while it is
// read: no link is followed, every directory is opened from the one above, and all stops at bounds. What they write to
// is new, and no other process has it.
package tree
