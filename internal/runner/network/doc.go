// Package network carries connections between the host and a session whose only interface
// is lo: it accepts them at addresses that the host names, and connects to ports of the
// session for the host. It runs as uid 0 next to hostile programs, so it reads none of what
// it carries: HTTP, TLS and DNS are the host's business.
//
// The session's programs may connect to its listeners, and that is all they can do to it. A
// connection that does not end cleanly is reset, even if this process is killed, so that a
// part never passes for the whole: package mux has the details (Join).
package network
