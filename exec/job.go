package exec

import (
	"context"
	"fmt"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Job makes a command one that can be handed over. Until the hand-over it is a command
// like any other, and ends with this process. Then Run returns HandedOver, and the
// runner keeps the command and all of its output without this process.
type Job struct {
	// After is when the command is handed over, counted from its start: at once if
	// it is 0, and never if it is negative. A command that ends first has ended.
	After time.Duration
	// Detach hands it over when it is closed. It may be nil.
	Detach <-chan struct{}
	// Asked is called, if not nil, when the runner is asked to keep a command that
	// had been running. It must not block.
	Asked func()
	// Refused is called, if not nil, with an *Error when the command could not be
	// handed over; it goes on as it was. It must not block.
	Refused func(error)

	Tag   string // names it for good; at most wire.MaxJobText bytes, as the next two
	Owner string
	Label string
	Cap   int64 // bytes of output that are kept
	Most  int   // how many jobs may run in the session; 0: any number
	Keep  wire.JobKeep
	Key   []byte // what the runner seals its records with
}

// Started is a job as it was when it was handed over. What has been written until
// then is in its file too.
type Started struct {
	ID  string // bg_1, bg_2, …
	PID int    // of the leader, and its process group, in the container
}

func (j *Job) request(c Command) *wire.Job {
	if j == nil {
		return nil
	}
	return &wire.Job{
		Background: j.After == 0, Tag: j.Tag, Owner: j.Owner, Label: j.Label, Timeout: c.Timeout, Grace: graceOf(c),
		Cap: uint64(j.Cap), Most: uint64(j.Most), Keep: j.Keep, Key: j.Key,
	}
}

func graceOf(c Command) time.Duration {
	if c.Grace <= 0 {
		return DefaultGrace
	}
	return c.Grace
}

// patience is how long a writer may take nothing after a hand-over has been asked
// for: the answer stands behind the output so far.
const patience = 5 * time.Second

// await waits for the command's end, or for that of ctx, and has the command
// handed over when its time has come. It reports over when the runner is gone.
func (r *Runner) await(ctx context.Context, run *running, j *Job) (end any, over bool) {
	var detach <-chan struct{}
	var due, slow <-chan time.Time
	if j != nil && j.After != 0 {
		detach = j.Detach
		if j.After > 0 {
			timer := time.NewTimer(j.After)
			defer timer.Stop()
			due = timer.C
		}
	}
	ask := func() {
		detach, due, slow = nil, nil, time.After(patience)
		if j.Asked != nil {
			j.Asked()
		}
		// A stuck engine may not take it: the goroutine ends with the stream.
		go func() { _ = r.send(wire.TypeDetach, wire.Detach{Seq: run.seq}.Append(nil)) }()
	}
	for {
		select {
		case end := <-run.end:
			return end, false
		case <-r.dead:
			return nil, true
		case <-ctx.Done():
			return nil, false
		case <-detach:
			ask()
		case <-due:
			ask()
		case d := <-run.refused:
			slow = nil
			if j.Refused != nil {
				j.Refused(failure(wire.Failed{Failure: d.Failure, Errno: d.Errno, Detail: d.Detail}))
			}
		case <-slow:
			run.abandon()
		}
	}
}

// detached takes the answer to a hand-over.
func (r *Runner) detached(run *running, payload []byte) error {
	d, err := wire.ParseDetached(payload)
	if err != nil {
		return err
	}
	if run == nil || run.seq != d.Seq || run.refused == nil {
		return fmt.Errorf("%w: a hand-over that was not asked for", wire.ErrFrame)
	}
	if d.ID != "" {
		run.end <- d
		return nil
	}
	select {
	case run.refused <- d:
		return nil
	default:
		return fmt.Errorf("%w: a second refusal", wire.ErrFrame)
	}
}
