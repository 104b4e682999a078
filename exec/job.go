package exec

import (
	"context"
	"fmt"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Job lets a command be handed over to its runner. Until then it is a command like any other
// and ends with this process. At the hand-over Run returns with the Reason HandedOver. From
// then on the runner keeps the command and all of its output without this process.
type Job struct {
	// After is how long after its start the command is handed over. 0 means at once, and a
	// negative value means never. If the command ends before that, it is not handed over.
	After time.Duration
	// Detach hands the command over when it is closed. It may be nil.
	Detach <-chan struct{}
	// Asked, if not nil, is called when the runner is asked to take over a running
	// command. It must not block.
	Asked func()
	// Refused, if not nil, is called with an *Error if the command could not be handed
	// over. The command goes on as before. Refused must not block.
	Refused func(error)

	Tag   string // identifies the job for ever; Tag, Owner and Label are at most wire.MaxJobText bytes
	Owner string
	Label string
	Cap   int64 // bytes of output that are kept
	Most  int   // how many jobs may run in the session; 0: any number
	Keep  wire.JobKeep
	Key   []byte // seals the records that the runner writes
}

// Started describes a job at its hand-over. Its file also has the output from before.
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

// patience is how long to wait for the answer to a hand-over before the output is abandoned.
// The answer comes after all output so far, which a writer of the caller may not take.
const patience = 5 * time.Second

// await waits for the command or ctx to end, and asks for the hand-over when it is due. The
// table at Run has its states. end is nil if none came; over means that the runner is gone.
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

// detached handles the answer to a hand-over.
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
