package core

import (
	"context"
	"encoding/json"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/journal"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// journaler puts what happens into the journals of the sessions.
type journaler struct {
	to        *journal.Writer
	dir       *journal.Dir
	terminals bool // what they show is kept
}

func (o *Observers) newJournaler(dir string) *journaler {
	c := o.cfg.Journal
	return &journaler{
		dir: journal.Open(dir), terminals: c.Terminals,
		to: journal.NewWriter(dir, journal.Options{
			SessionBytes: c.SessionMax, Output: c.Output, Writer: sandbox.ThisProcess,
			Failed: func(err error) { o.notes.Add("warning: the journal of the session is not complete: " + err.Error()) },
		}),
	}
}

func (j *journaler) close() { j.to.Close() }

// Intend implements sandbox.Observer. It never refuses.
func (j *journaler) Intend(_ context.Context, e sandbox.Observation) error {
	j.describe(e)
	r := journal.Record{Time: e.Start, Kind: journal.Start, ID: e.ID, Cols: e.Size.Cols, Rows: e.Size.Rows}
	j.to.Put(e.Session, r, func(r *journal.Record) { fillCommand(r, e) })
	return nil
}

// journalKinds are the kinds of observations, as a journal has them.
var journalKinds = map[sandbox.EventKind]journal.Kind{
	sandbox.EventCommand: journal.End, sandbox.EventTransfer: journal.End, sandbox.EventDenied: journal.Denied, sandbox.EventJobEnd: journal.JobEnd,
	sandbox.EventConnection: journal.Connection, sandbox.EventNetworkAnswer: journal.Answer, sandbox.EventCheckpoint: journal.Checkpoint,
	sandbox.EventSessionStart: journal.SessionStart, sandbox.EventSessionStop: journal.SessionStop, sandbox.EventReap: journal.Reaped,
	sandbox.EventResize: journal.Resize,
}

// Note implements sandbox.Observer.
func (j *journaler) Note(e sandbox.Observation) {
	kind := journalKinds[e.Kind]
	if kind == "" {
		return
	}
	session := e.Session
	if e.Kind == sandbox.EventDenied && !engine.ValidID(session) {
		// The policy was asked before the session was looked for: only its name is known.
		if session = j.named(session); session == "" {
			return
		}
	}
	j.describe(e)
	r := journal.Record{Time: e.End, Kind: kind, ID: e.ID, JobTag: e.JobTag, Cols: e.Size.Cols, Rows: e.Size.Rows}
	if r.Time.IsZero() {
		r.Time = e.Start
	}
	j.to.Put(session, r, func(r *journal.Record) { fillNote(r, e) })
}

// Output implements sandbox.OutputObserver.
func (j *journaler) Output(e sandbox.OutputEvent) {
	stream := journal.Stdout
	switch e.Stream {
	case sandbox.Stdout:
	case sandbox.Stderr:
		stream = journal.Stderr
	case sandbox.Screen:
		if !j.terminals {
			return
		}
		stream = journal.Terminal
	}
	j.to.Output(e.Session, e.ID, stream, e.Data)
}

// describe says who a session is.
func (j *journaler) describe(e sandbox.Observation) {
	if e.Info == nil {
		return
	}
	j.to.Describe(e.Session, func() journal.Session {
		i := e.Info
		return journal.Session{
			Name: e.Scrub(i.Name), Image: e.Scrub(i.Image), Profile: string(i.Profile), Network: string(i.Network),
			Workspace: e.Scrub(WorkspaceText(i.Workspace)), Created: i.Created,
		}
	})
}

// named returns the id of the last session of a name that has a journal, "" if there is none.
func (j *journaler) named(name string) string {
	if name == "" {
		return ""
	}
	all, err := j.dir.Sessions()
	id := ""
	for _, s := range all { // the last one counts
		if err == nil && s.Name == name {
			id = s.ID
		}
	}
	return id
}

// fillCommand says what a command is.
func fillCommand(r *journal.Record, e sandbox.Observation) {
	r.Mode, r.Where, r.Dir, r.Policy = string(e.Mode), string(e.Where), e.Dir, auditPolicy(e.Policy)
	r.Command, r.Size = e.Command(journal.MaxCommand)
}

// fillNote says what has happened, as the audit log does.
func fillNote(r *journal.Record, e sandbox.Observation) {
	if e.Kind == sandbox.EventDenied {
		fillCommand(r, e)
		return
	}
	if e.Kind == sandbox.EventResize {
		return
	}
	a := noteRecord(e)
	r.Reason, r.Code, r.Signal, r.Error, r.Receipt, r.Artifact = a.Reason, a.Code, a.Signal, a.Error, a.Receipt, a.Artifact
	r.Job, r.JobTag, r.Masked, r.Network = a.Job, a.JobTag, a.Masked, a.Network
	if e.Checkpoint != nil {
		r.Checkpoint, _ = json.Marshal(e.Checkpoint) // words
	}
}
