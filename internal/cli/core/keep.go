package core

import (
	"fmt"
	"time"

	"github.com/docker/go-units"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// KeepFor is how long the workspaces of sessions that outlive this process are kept; 0:
// not at all.
func (a *App) KeepFor() time.Duration {
	if k := a.Cfg.Keep; k.Count > 0 && k.Disk > 0 {
		return k.For
	}
	return 0
}

// KeepLimits bound what is kept. Where nothing is to be kept, what others keep is left
// to them.
func (a *App) KeepLimits() sandbox.Keep {
	k := sandbox.Keep{Told: a.tellDropped}
	if a.KeepFor() > 0 {
		k.For, k.Count, k.Disk = a.Cfg.Keep.For, a.Cfg.Keep.Count, a.Cfg.Keep.Disk
	}
	return k
}

// TellPruned logs what was removed of caches: it can be made again.
func (a *App) TellPruned(names []string) {
	if log := a.Log(); log != nil {
		log.Debug("removed what nothing uses any more", "names", names)
	}
}

// tellDropped says that a kept workspace was removed, and why.
func (a *App) tellDropped(s sandbox.Info, why sandbox.Dropped) {
	reason := map[sandbox.Dropped]string{
		sandbox.DroppedAge:   "it was kept until " + s.Kept.Until.Local().Format(time.RFC3339) + " (keep.for)",
		sandbox.DroppedCount: fmt.Sprintf("no more than the newest %d are kept (keep.count)", a.Cfg.Keep.Count),
		sandbox.DroppedDisk:  fmt.Sprintf("together they may take %s (keep.disk)", units.BytesSize(float64(a.Cfg.Keep.Disk))),
	}[why]
	a.Note(fmt.Sprintf("removed the kept workspace of session %s (%s, %s): %s", s.ID, WorkspaceText(s.Workspace), KeptSize(s.Kept), reason))
}

// TellKept says that a workspace is kept, and how to get at it.
func (a *App) TellKept(s sandbox.Info) {
	a.Note(fmt.Sprintf("kept the workspace of session %s (%s, %s) until %s: `sandboxbash session diff %[1]s`, `sandboxbash session pull %[1]s:. DIR`, `sandboxbash session stop %[1]s`",
		s.ID, WorkspaceText(s.Workspace), KeptSize(s.Kept), s.Kept.Until.Local().Format(time.RFC3339)))
}

// KeptSize is the size of a kept workspace, for people.
func KeptSize(k *sandbox.Kept) string {
	if k.Bytes == nil {
		return "of unknown size"
	}
	return units.BytesSize(float64(*k.Bytes))
}
