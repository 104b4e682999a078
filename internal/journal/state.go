package journal

import (
	"cmp"
	"slices"
	"time"
)

// State is what the records of one session add up to: what runs in it now, as far as the journal knows. The zero value
// is that of an empty journal. It is not safe for concurrent use.
type State struct {
	// Ended is when the session was stopped or its remains were removed; the zero time if the journal does not say so. A
	// session whose lease is over ends without a record.
	Ended time.Time
	// Last is the time of the last record.
	Last time.Time
	// Commands is how many commands and terminals have started, jobs included.
	Commands int
	Denied   int   // commands that a policy has refused
	Missing  int64 // records that are not in the journal

	running map[string]*Running // by ID, and jobs by "job " and their tag
}

// Running is a command, a terminal, a transfer or a job that has begun and has not ended.
type Running struct {
	Start Record
	// Job and JobTag are set once the command has become a job.
	Job, JobTag string
	// Last is when output of it came, or the time of its start.
	Last time.Time
	// Bytes is how much output came so far.
	Bytes int64
	// Cols and Rows are the size of a terminal.
	Cols, Rows int
}

// Add adds the next record of the session.
func (s *State) Add(r Record) {
	if s.running == nil {
		s.running = map[string]*Running{}
	}
	if r.Time.After(s.Last) {
		s.Last = r.Time
	}
	switch r.Kind {
	case Start:
		if r.Mode != "push" && r.Mode != "pull" {
			s.Commands++
		}
		s.running[r.ID] = &Running{Start: r, Last: r.Time, Cols: r.Cols, Rows: r.Rows}
	case End:
		one := s.running[r.ID]
		delete(s.running, r.ID)
		if one != nil && r.JobTag != "" {
			one.Job, one.JobTag = r.Job, r.JobTag
			s.running["job "+r.JobTag] = one
		}
	case JobEnd:
		delete(s.running, "job "+r.JobTag)
	case Output:
		if one := s.running[r.ID]; one != nil {
			one.Last, one.Bytes = r.Time, one.Bytes+r.Skipped+int64(len(r.Data))
		}
	case Resize:
		if one := s.running[r.ID]; one != nil {
			one.Cols, one.Rows = r.Cols, r.Rows
		}
	case Denied:
		s.Denied++
	case Lost:
		s.Missing += r.Lost
	case SessionStop, Reaped:
		s.Ended = r.Time
		clear(s.running) // nothing of a session outlives it
	case SessionStart, Connection, Answer, Checkpoint, Torn, Cut:
	}
}

// Running returns what has begun and not ended, in the order of the starts. A writer that was killed has not
// recorded the ends of its commands: see Record.Writer.
func (s *State) Running() []Running {
	all := make([]Running, 0, len(s.running))
	for _, one := range s.running {
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b Running) int {
		return cmp.Or(a.Start.Time.Compare(b.Start.Time), cmp.Compare(a.Start.ID, b.Start.ID))
	})
	return all
}
