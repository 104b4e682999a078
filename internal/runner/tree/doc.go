// Package tree takes a whole workspace: copied into another, packed into one stream, and unpacked from one. The runner's
// verb clone is a Copy. Kinds, modes, owners, times, links, hard links, holes and the extended attributes that a user can
// set come back exactly; of names that lead nowhere but to a running program, such as sockets, the report has a list.
//
// It runs as uid 0 of a container that was made for them. What it reads is hostile, and may change while it is
// read: no link is followed, every directory is opened from the one above, and all stops at bounds. What it writes to
// is new, and no other process has it.
package tree
