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

// A session that ends by itself, or whose client leaves it, may have its workspace
// kept: without a container, with labels that say what is known at the end. See
// engine.Workspaces and docs/adr/0025.

// Labels of what may be kept, and of what is.
const (
	labelKeep    = "sandboxbash.keep"    // a duration; "" on what is not kept
	labelSince   = "sandboxbash.since"   // when it was kept, RFC 3339
	labelCause   = "sandboxbash.cause"   // an exec.Cause: what has ended the session
	labelBytes   = "sandboxbash.bytes"   // on the disk; "" if that could not be told in time
	labelEntries = "sandboxbash.entries" // files and directories
)

// StatusKept is the Info.Status of a session of which only the workspace is there.
const StatusKept = engine.StatusKept

// CauseLeft is the cause of a session whose client has gone.
const CauseLeft exec.Cause = "client-gone"

// Keep bounds what is kept of workspaces on an engine, by any process. The zero
// value leaves it to each session's own Spec.Keep how long, and to others how much.
type Keep struct {
	For   time.Duration // 0: as long as its Spec.Keep says
	Count int           // workspaces; 0: any number
	Disk  int64         // bytes of all together; 0: any number
	// Told is called with each kept workspace that is removed, and why. It must not
	// block. It may be nil.
	Told func(Info, Dropped)
}

// Dropped says why a kept workspace was removed.
type Dropped string

// Reasons for removing a kept workspace.
const (
	DroppedAge   Dropped = "age"   // it was kept for as long as it was to be
	DroppedCount Dropped = "count" // there were newer ones, as many as are kept
	DroppedDisk  Dropped = "disk"  // with the newer ones it took more than all may take together
)

// Kept describes a kept workspace.
type Kept struct {
	Since   time.Time  `json:"since"`
	Until   time.Time  `json:"until"` // the first start after that removes it
	Cause   exec.Cause `json:"cause"` // what has ended the session
	Bytes   *int64     `json:"bytes"` // on the disk; null if that could not be told in time
	Entries int64      `json:"entries"`
}

// usage is what a survey has found in a workspace.
type usage struct {
	digest  string // "" if not everything could be looked at
	entries int64
	bytes   int64
}

// keeps reports whether the end of a session leaves its workspace.
func (i Info) keeps() bool {
	return i.keep > 0 && i.Workspace.Kind != WorkspaceBind && i.Limits.Disk == 0
}

// keepLabels are those of a session and of its workspace.
func keepLabels(spec Spec) map[string]string {
	l := map[string]string{labelKeep: ""}
	if spec.Keep > 0 && spec.Workspace.Kind != WorkspaceBind && spec.Limits.Disk == 0 {
		l[labelKeep] = spec.Keep.String()
	}
	return l
}

// empty reports whether there is surely nothing in a workspace.
func (u usage) empty() bool { return u.entries == 0 && u.digest != "" }

// with is u and so many bytes elsewhere.
func (u usage) with(bytes int64) usage {
	u.bytes += bytes
	return u
}

// readKeep reads what keepLabels has written.
func (i *Info) readKeep(labels map[string]string) {
	i.keep, _ = time.ParseDuration(labels[labelKeep]) // none is 0
}

// keptLabels are the labels of a kept workspace.
func keptLabels(info Info, cause exec.Cause, use usage) map[string]string {
	shape := info.labels
	shape.Workspace = info.Workspace // a prepared session has got its directory since
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

// record makes a workspace a kept one. It reports false if the workspace has gone
// meanwhile: then nothing is kept.
func (e *Engine) record(ctx context.Context, info Info, cause exec.Cause, use usage) (bool, error) {
	err := e.workspaces.Keep(ctx, info.ID, keptLabels(info, cause, use))
	if errors.Is(err, engine.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// describeKept reads what keptLabels has written.
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

// until is when a workspace that was kept since then is removed.
func (e *Engine) until(since time.Time, keep time.Duration) time.Time {
	if e.opts.Keep.For > 0 {
		keep = e.opts.Keep.For
	}
	return since.Add(keep)
}

// kept describes the kept workspaces, those kept first before the others. Those of other
// versions of ours are left out.
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

// enforce removes kept workspaces that are too old, and of the others the oldest
// until what is left is within the limits. What is being read stays for now.
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

// drop is a kept workspace that has to go.
type drop struct {
	Info
	why Dropped
}

// surplus picks what has to go of a list that begins with the oldest. What alone
// takes more than all may goes before any other.
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
			total += size // each is within the limit, or there is none
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

// sizeOf is how much of the limit a workspace takes. One of unknown size takes all of
// it.
func sizeOf(one Info, limit Keep) int64 {
	if one.Kept.Bytes == nil {
		return limit.Disk
	}
	return *one.Kept.Bytes
}

// lostKept says why a session of which only the workspace is left cannot be used.
func lostKept(info Info) *exec.Error {
	return &exec.Error{Outcome: exec.Lost, Cause: info.Kept.Cause, Err: &hinted{hint: HintKept, about: info.ID, error: fmt.Errorf(
		"it has ended, and only its workspace is left, until %s; start another session", info.Kept.Until.Local().Format(time.RFC3339))}}
}
