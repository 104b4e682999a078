// Package keeper leaves idle runners of a session to later calls of the program. A keeper is a
// small process that the first call leaves behind. It holds the connections to runners, and hands
// them over a Unix socket to the calls that ask: a call has the connection for itself while its
// command runs, so that its death ends the command, and the keeper's death does not. The keeper
// reads and writes nothing of what goes over the connections, and asks no engine.
//
// A client and a keeper say this to each other, each in one message:
//
//	client  T                    I need a runner
//	keeper  R {…} and the file   here is one; the keeper has closed its own copy
//	keeper  N                    there is none
//	client  L {…} and the file   here is one that is idle
//	keeper  K                    it is taken over, or closed, as there are enough
//
// A keeper ends when it has no runner and no client is connected: when runners have been idle for
// long enough, or when their session has ended.
package keeper

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// MaxStay is the longest time that a runner stays without a caller. The runner itself ends after
// wire.IdleLease without a word, and a keeper says nothing to it: that would keep the session alive.
const MaxStay = wire.IdleLease - time.Minute

// protocol is part of the names of sockets, like the version of the program: an earlier program's
// keeper gets no new clients.
const protocol = "1"

// What is said.
const (
	sayTake  = 'T'
	sayLeave = 'L'
	sayHere  = 'R'
	sayNone  = 'N'
	sayKept  = 'K'
)

// maxMessage bounds a message in bytes. The longest is the description of a runner.
const maxMessage = 4 << 10

// mostIdle is how many idle runners a keeper has; those beyond the first stay for extraStay only.
// More commands than this do not run in a session at once.
const (
	mostIdle  = 8
	extraStay = time.Minute
)

// Options of a Store.
type Options struct {
	Env     holder.Environment
	Engine  string        // its address
	Version string        // of this program
	Stay    time.Duration // how long runners stay without a caller; at most MaxStay
	// Note tells the user of what keeps runners from being kept, and Daily does so once a day.
	Note, Daily func(text string)
}

// nameLen is the length of a socket's name in characters.
const nameLen = 16

// socketName is the name of the socket for a session's runners.
func (o Options) socketName(of engine.Handle) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{o.Engine, o.Version, protocol, of.ID, of.Ref}, "\x00")))
	return hex.EncodeToString(sum[:])[:nameLen]
}

// handover is what a keeper reads from its standard input when it starts, as a line of JSON. Its
// file 3 is the socket, and file 4 the first runner.
type handover struct {
	Path   string        `json:"path"` // of the socket
	Stay   time.Duration `json:"stay"`
	Runner runner        `json:"runner"`
}
