package sandbox

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
)

// When a session ends by itself, or its client leaves it, its workspace may be kept. A kept
// workspace has no container; its labels describe the session's end. See engine.Workspaces
// and docs/adr/0025.

// Labels of workspaces that may be kept, and of those that are kept.
const (
	labelKeep    = "sandboxbash.keep"    // a duration; "" if it will not be kept
	labelSince   = "sandboxbash.since"   // when it was kept, RFC 3339
	labelCause   = "sandboxbash.cause"   // an exec.Cause: what ended the session
	labelBytes   = "sandboxbash.bytes"   // on the disk; "" if they could not be counted in time
	labelEntries = "sandboxbash.entries" // files and directories
)

// StatusKept is the Info.Status of a session that has ended and whose workspace is kept.
const StatusKept = engine.StatusKept

// CauseLeft means that the session ended because its client had gone.
const CauseLeft exec.Cause = "client-gone"

// Keep limits the kept workspaces of an engine, whichever process kept them. With the zero
// value each workspace is kept as long as its Spec.Keep says, and number and size are not
// limited by this process.
type Keep struct {
	For   time.Duration // 0: as long as its Spec.Keep says
	Count int           // workspaces; 0: any number
	Disk  int64         // bytes of all together; 0: any number
	// Told, if not nil, is called with each kept workspace that is removed, and the
	// reason. It must not block.
	Told func(Info, Dropped)
}

// Dropped says why a kept workspace was removed.
type Dropped string

// Reasons for removing a kept workspace.
const (
	DroppedAge   Dropped = "age"   // its time was over
	DroppedCount Dropped = "count" // there were as many newer ones as Keep.Count allows
	DroppedDisk  Dropped = "disk"  // together with the newer ones it exceeded Keep.Disk
)

// Kept describes a kept workspace.
type Kept struct {
	Since   time.Time  `json:"since"`
	Until   time.Time  `json:"until"` // the first start of a session after this time removes it
	Cause   exec.Cause `json:"cause"` // what ended the session
	Bytes   *int64     `json:"bytes"` // on the disk; null if they could not be counted in time
	Entries int64      `json:"entries"`
}

// usage is the result of a survey of one workspace.
type usage struct {
	digest  string // "" if the survey was not complete
	entries int64
	bytes   int64
}

// keeps reports whether the session's workspace is kept when the session ends.
func (i Info) keeps() bool {
	return i.keep > 0 && i.Workspace.Kind != WorkspaceBind && i.Limits.Disk == 0
}

// keepLabels returns the labels that say whether a session's workspace will be kept.
func keepLabels(spec Spec) map[string]string {
	l := map[string]string{labelKeep: ""}
	if spec.Keep > 0 && spec.Workspace.Kind != WorkspaceBind && spec.Limits.Disk == 0 {
		l[labelKeep] = spec.Keep.String()
	}
	return l
}

// empty reports whether the workspace is known to be empty.
func (u usage) empty() bool { return u.entries == 0 && u.digest != "" }

// with returns u plus bytes that the session uses elsewhere.
func (u usage) with(bytes int64) usage {
	u.bytes += bytes
	return u
}

// readKeep reads the labels that keepLabels returns.
func (i *Info) readKeep(labels map[string]string) {
	i.keep, _ = time.ParseDuration(labels[labelKeep]) // 0 if there is none
}

// keptLabels are the labels of a kept workspace.
func keptLabels(info Info, cause exec.Cause, use usage) map[string]string {
	shape := info.labels
	shape.Workspace = info.Workspace // the label of a prepared session does not have its directory
	labels := map[string]string{
		labelOwner: info.Owner, labelShape: shape.encode(), labelCreated: info.Created.UTC().Format(time.RFC3339Nano),
		labelSince: time.Now().UTC().Format(time.RFC3339Nano), labelKey: hex.EncodeToString(info.key), labelLease: info.Lease.String(),
		labelKeep: info.keep.String(), labelCause: string(cause), labelEntries: strconv.FormatInt(use.entries, 10), labelBytes: "",
	}
	if use.digest != "" {
		labels[labelBytes] = strconv.FormatInt(use.bytes, 10)
	}
	return labels
}

// record marks a workspace as kept. It returns false if the workspace has gone in the
// meantime.
func (e *Engine) record(ctx context.Context, info Info, cause exec.Cause, use usage) (bool, error) {
	err := e.workspaces.Keep(ctx, info.ID, keptLabels(info, cause, use))
	if errors.Is(err, engine.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// describeKept reads the labels that keptLabels returns.
func (e *Engine) describeKept(state engine.Session, keep time.Duration) (*Kept, error) {
	l := state.Labels
	since, err := time.Parse(time.RFC3339Nano, l[labelSince])
	entries, entriesErr := strconv.ParseInt(l[labelEntries], 10, 64)
	if err = errors.Join(err, entriesErr); err != nil {
		return nil, fmt.Errorf("session %s: %w", state.ID, err)
	}
	kept := &Kept{Since: since, Until: e.until(since, keep), Cause: exec.Cause(l[labelCause]), Entries: entries}
	if bytes, err := strconv.ParseInt(l[labelBytes], 10, 64); err == nil {
		kept.Bytes = &bytes
	}
	return kept, nil
}

// until returns when a workspace that has been kept since then may be removed.
func (e *Engine) until(since time.Time, keep time.Duration) time.Time {
	if e.opts.Keep.For > 0 {
		keep = e.opts.Keep.For
	}
	return since.Add(keep)
}

// kept describes the kept workspaces, the oldest first. It leaves out those that it cannot
// read because another version of this program kept them.
func (e *Engine) kept(all []engine.Session) []Info {
	var list []Info
	for _, state := range all {
		if state.Status != engine.StatusKept {
			continue
		}
		if info, err := e.describe(state); err == nil {
			list = append(list, info)
		}
	}
	slices.SortFunc(list, func(a, b Info) int { return a.Kept.Since.Compare(b.Kept.Since) })
	return list
}

// keptOne returns the kept workspace of a session, nil if there is none.
func (e *Engine) keptOne(ctx context.Context, id string) (*Info, error) {
	state, err := e.backend.Find(ctx, id)
	if errors.Is(err, engine.ErrNotFound) || err == nil && state.Status != engine.StatusKept {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := e.describe(state)
	return &info, err
}

// enforce removes the kept workspaces whose time is over, and then the oldest until the rest
// is within the limits. A workspace that is being read is not removed.
func (e *Engine) enforce(ctx context.Context, now time.Time) error {
	all, err := e.backend.List(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, state := range all {
		since, err := time.Parse(time.RFC3339Nano, state.Labels[labelSince])
		if state.Status == engine.StatusStray && err == nil && time.Since(since).Abs() > settleTime {
			errs = append(errs, e.remove(ctx, state.Handle))
		}
	}
	for _, one := range surplus(e.kept(all), e.opts.Keep, now) {
		start := time.Now()
		switch err := e.backend.Remove(ctx, engine.Handle{ID: one.ID}); {
		case err == nil:
			e.noteSession(EventReap, one.ID, start, nil)
			if e.opts.Keep.Told != nil {
				e.opts.Keep.Told(one.Info, one.why)
			}
		case !errors.Is(err, engine.ErrNotFound) && !errors.Is(err, engine.ErrConflict):
			errs = append(errs, fmt.Errorf("session %s: %w", one.ID, err))
		}
	}
	return errors.Join(errs...)
}

// drop is a kept workspace to remove, and the reason.
type drop struct {
	Info
	why Dropped
}

// surplus returns the workspaces to remove from a list that is sorted by age, the oldest
// first. A workspace that alone exceeds the limit for all is chosen before any other.
func surplus(list []Info, limit Keep, now time.Time) []drop {
	var out []drop
	left := list[:0:0]
	total := int64(0)
	for _, one := range list {
		size := sizeOf(one, limit)
		switch {
		case now.After(one.Kept.Until):
			out = append(out, drop{one, DroppedAge})
		case limit.Disk > 0 && size > limit.Disk:
			out = append(out, drop{one, DroppedDisk})
		default:
			left = append(left, one)
			total += size // does not overflow: each is within the limit, if there is one
		}
	}
	for len(left) > 0 && (limit.Count > 0 && len(left) > limit.Count || limit.Disk > 0 && total > limit.Disk) {
		why := DroppedCount
		if limit.Count == 0 || len(left) <= limit.Count {
			why = DroppedDisk
		}
		out = append(out, drop{left[0], why})
		total -= sizeOf(left[0], limit)
		left = left[1:]
	}
	return out
}

// sizeOf returns how much of the limit a workspace uses. A workspace of unknown size uses
// all of it.
func sizeOf(one Info, limit Keep) int64 {
	if one.Kept.Bytes == nil {
		return limit.Disk
	}
	return *one.Kept.Bytes
}

// lostKept returns the error for using a session that has ended and whose workspace is kept.
func lostKept(info Info) *exec.Error {
	return &exec.Error{Outcome: exec.Lost, Cause: info.Kept.Cause, Err: &hinted{hint: HintKept, about: info.ID, error: fmt.Errorf(
		"it has ended, and only its workspace is left, until %s; start another session", info.Kept.Until.Local().Format(time.RFC3339))}}
}
