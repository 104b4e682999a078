package core

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/docker/go-units"

	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Notes tell the user what is not an error: on standard error or, gathered, in the JSON
// result. They may be used concurrently.
type Notes struct {
	streams *stdio.Streams
	cfg     *Configuration
	env     *Environment

	mu     sync.Mutex
	gather bool     // guarded by mu; notes go to the JSON result, not to standard error
	list   []string // guarded by mu
}

// Add tells the user something.
func (n *Notes) Add(text string) {
	text = n.streams.Safe(text)
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.gather:
		n.list = append(n.list, text)
	case !n.cfg.Silent():
		fmt.Fprintf(n.streams.Stderr, "sandboxbash: %s %s\n", n.streams.Paint(n.streams.Stderr, stdio.Yellow, "note:"), text)
	}
}

// AddDaily tells the user of something that is so for each call: what was printed in the last 24
// hours is not printed again. A JSON result always has it.
func (n *Notes) AddDaily(text string) {
	n.mu.Lock()
	printed := !n.gather && !n.cfg.Silent()
	n.mu.Unlock()
	if !printed || n.env.firstToday(text) {
		n.Add(text)
	}
}

// gatherIf keeps the notes from now on for a JSON result, or prints them.
func (n *Notes) gatherIf(gather bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gather = gather
}

// Print has notes printed from now on, whatever else is.
func (n *Notes) Print() { n.gatherIf(false) }

// Restart drops the notes so far, and keeps those from now on for Gathered.
func (n *Notes) Restart() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gather, n.list = true, nil
}

// Gathered returns the notes for a JSON result.
func (n *Notes) Gathered() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.list
}

// OfSession tells what the owner of a fresh session should know.
func (n *Notes) OfSession(s *sandbox.Session) {
	standing := s.StandingNotes()
	for _, text := range s.Notes() {
		if slices.Contains(standing, text) {
			n.AddDaily(text)
		} else {
			n.Add(text)
		}
	}
	n.Listed("left out of the workspace, because they look like credentials: ", s.LeftOut())
}

// maxNamed is how many names a note lists.
const maxNamed = 10

// Listed is a note that ends with names, of which it says how many more there are. Without
// names there is none.
func (n *Notes) Listed(text string, names []string) {
	if len(names) > 0 {
		n.Add(text + someOf(n.streams.Names(names)))
	}
}

func someOf(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
}

// KeepLimits bound what is kept. Where nothing is to be kept, what others keep is left
// to them.
func (n *Notes) KeepLimits() sandbox.Keep {
	k := sandbox.Keep{Told: n.dropped}
	if n.cfg.KeepFor() > 0 {
		k.For, k.Count, k.Disk = n.cfg.Keep.For, n.cfg.Keep.Count, n.cfg.Keep.Disk
	}
	return k
}

// dropped says that a kept workspace was removed, and why.
func (n *Notes) dropped(s sandbox.Info, why sandbox.Dropped) {
	reason := map[sandbox.Dropped]string{
		sandbox.DroppedAge:   "it was kept until " + s.Kept.Until.Local().Format(time.RFC3339) + " (keep.for)",
		sandbox.DroppedCount: fmt.Sprintf("no more than the newest %d are kept (keep.count)", n.cfg.Keep.Count),
		sandbox.DroppedDisk:  fmt.Sprintf("together they may take %s (keep.disk)", units.BytesSize(float64(n.cfg.Keep.Disk))),
	}[why]
	n.Add(fmt.Sprintf("removed the kept workspace of session %s (%s, %s): %s", s.ID, WorkspaceText(s.Workspace), KeptSize(s.Kept), reason))
}

// Kept says that a workspace is kept, and how to get at it.
func (n *Notes) Kept(s sandbox.Info) {
	n.Add(fmt.Sprintf("kept the workspace of session %s (%s, %s) until %s: `sandboxbash session diff %[1]s`, `sandboxbash session pull %[1]s:. DIR`, `sandboxbash session stop %[1]s`",
		s.ID, WorkspaceText(s.Workspace), KeptSize(s.Kept), s.Kept.Until.Local().Format(time.RFC3339)))
}

// KeptSize is the size of a kept workspace, for people.
func KeptSize(k *sandbox.Kept) string {
	if k.Bytes == nil {
		return "of unknown size"
	}
	return units.BytesSize(float64(*k.Bytes))
}

// WorkspaceText writes a workspace as --workspace takes it.
func WorkspaceText(w sandbox.Workspace) string {
	if w.Kind == sandbox.WorkspaceVolume {
		return string(w.Kind)
	}
	text := string(w.Kind) + ":" + w.Dir
	if w.ReadOnly {
		text += ":ro"
	}
	return text
}
