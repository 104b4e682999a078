//go:build linux

package network

import (
	"context"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/mux"
	"github.com/sandboxbash/sandboxbash/internal/runner/proc"
)

const (
	// maxMade bounds connections whose owner is not known so far. Of more the host hears
	// nothing.
	maxMade = 256
	// searchShare is how many times as long as a search took there is none. While each pause
	// ends with more than fewMade connections that wait, the next is shareGrowth times as long, up
	// to mostShare times the search: a flood of connections costs the session little, and a few get
	// their owners. A search takes milliseconds: the kernel goes through the sockets of the whole
	// machine for it.
	searchShare = 4
	fewMade     = 8
	shareGrowth = 4
	mostShare   = 128
)

// owners tells the host which processes have made connections. It does so next to the
// connections, which never wait for it. A connection that is over before it was looked at has
// no owner, and a host must not allow anything by one: processes of a session share sockets.
type owners struct{ made chan made }

// made is a stream whose connection a process has made.
type made struct{ st *mux.Stream }

// note does not wait.
func (o *owners) note(st *mux.Stream) {
	select {
	case o.made <- made{st}:
	default:
	}
}

// tell searches for owners until ctx ends.
func (o *owners) tell(ctx context.Context, sess *mux.Session) {
	share := searchShare
	for {
		var batch []made
		share = nextShare(share, len(o.made))
		select {
		case m := <-o.made:
			batch = append(batch, m)
		case <-ctx.Done():
			return
		}
		for len(o.made) > 0 {
			batch = append(batch, <-o.made)
		}
		began := time.Now()
		search(sess, batch)
		select {
		case <-time.After(time.Duration(share) * time.Since(began)):
		case <-ctx.Done():
			return
		}
	}
}

// nextShare returns the next share after one whose pause has ended with so many connections that wait.
func nextShare(share, waiting int) int {
	if waiting <= fewMade {
		return searchShare
	}
	return min(shareGrowth*share, mostShare)
}

// search looks for the other ends of connections, all in one pass over /proc.
func search(sess *mux.Session, batch []made) {
	streams := map[proc.Pair]*mux.Stream{}
	for _, m := range batch {
		at := m.st.Target()
		streams[proc.Pair{Local: at.Remote, Remote: at.Local}] = m.st
	}
	uid := sess.UID()
	for pair, owner := range proc.Owners(streams, uid) {
		leader, runner := proc.Leader(owner, uid)
		sess.Tell(streams[pair], mux.Owner{PID: owner, Session: leader, Runner: runner})
	}
}
