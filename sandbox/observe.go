package sandbox

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Observer is called with what happens to commands and sessions. An audit log, metrics and
// traces are made from these calls. Its methods may be called concurrently. They must be
// quick, because the caller waits for them.
type Observer interface {
	// Intend is called with each command that may run, before it starts. If it returns an
	// error the command is not started, and its error is not-started{unrecorded}.
	Intend(ctx context.Context, e Observation) error
	// Note is called once with each observation. For a command that is when it has ended or
	// has become a job, or when it is clear that it did not start or that its end is
	// unknown.
	Note(e Observation)
}

// EventKind is the kind of an observation.
type EventKind string

// Kinds of observations.
const (
	EventCommand      EventKind = "command"       // see Observer.Note
	EventTransfer     EventKind = "transfer"      // a push or a pull; see Observer.Note
	EventDenied       EventKind = "denied"        // a policy has refused a command; there is no Intend for it
	EventSessionStart EventKind = "session-start" // with an Err the start failed, and there is no session
	EventSessionStop  EventKind = "session-stop"
	EventConnection   EventKind = "connection" // a connection or a request of the session has ended, or was refused
	EventReap         EventKind = "reap"       // the remains of a session were removed
	// EventJobEnd is the end of a job. Each process that waits for the job, or to which its
	// end is delivered, observes it once. All have the same JobTag.
	EventJobEnd EventKind = "job-end"
)

// Mode says how a command was run.
type Mode string

// Modes.
const (
	ModeCommand  Mode = "command"
	ModeTerminal Mode = "terminal" // on a terminal of its own
	ModeJob      Mode = "job"      // without a process that waits
	ModePush     Mode = "push"     // a transfer to the session
	ModePull     Mode = "pull"     // a transfer from the session
)

// Where says where a command ran.
type Where string

// Places.
const (
	InContainer Where = "container"
	InClient    Where = "client" // in the client's own terminal, outside the session
)

// Observation describes one event. Its Kind determines which fields are set.
type Observation struct {
	Kind    EventKind
	ID      string // of a command; the same in Intend and Note
	Session string // "" if there is none yet
	Start   time.Time
	End     time.Time
	Mode    Mode
	Where   Where
	Dir     string          // as it was asked for, secrets masked
	Policy  policy.Decision // the zero value if no policy was asked
	// Status says how the command ended, if Err is nil.
	Status   exec.Status
	Err      error // as Run, Push or Pull returns it; it may hold secrets
	Receipt  *Receipt
	Artifact sink.Artifact
	// Connection is set for EventConnection alone.
	Connection *Connection
	// Decision is set for EventNetworkAnswer alone.
	Decision *NetworkDecision
	Masked   int64  // secrets that were masked in the output
	Job      string // id of the job that the command became, or that has ended
	JobTag   string // identifies that job for ever; its id may be used again

	script  string
	args    []string
	secrets *sink.Secrets
}

// Command returns the text of the command with its arguments, with secrets masked, and the
// length of that text. If it is longer than most bytes, it returns only the start.
func (e Observation) Command(most int) (text string, size int) {
	text = e.script
	for _, arg := range e.args {
		text += " " + strconv.Quote(arg)
	}
	size = len(text)
	text = e.secrets.Scrub(text) // before it is cut: a part of a secret is not recognised
	if len(text) > most {
		text = text[:most]
	}
	return text, size
}

// Scrub masks the known secrets in a text about the observation.
func (e Observation) Scrub(text string) string { return e.secrets.Scrub(text) }

// CauseUnrecorded means that the command was not started because the observer could not
// record it.
const CauseUnrecorded exec.Cause = "unrecorded"

// Denial returns the observation of a command that a policy refused without a Session,
// such as before the session was started. Its text has the secrets masked.
func Denial(session string, c Command, d policy.Decision, secrets *sink.Secrets) Observation {
	e := newObservation(EventDenied, session, c, secrets)
	e.Policy, e.End = d, e.Start
	return e
}

func newObservation(kind EventKind, session string, c Command, secrets *sink.Secrets) Observation {
	return Observation{
		Kind: kind, Session: session, Start: time.Now(), Mode: ModeCommand, Where: InContainer, Policy: c.Decided,
		Dir: secrets.Scrub(c.Dir), script: c.Script, args: c.Args, secrets: secrets,
	}
}

// Denied notifies the observer that a policy has refused a command of this session.
func (s *Session) Denied(c Command, d policy.Decision) {
	if o := s.engine.opts.Observer; o != nil {
		o.Note(Denial(s.ID(), c, d, s.engine.opts.Secrets))
	}
}

// Observe notifies the observer of a command that is about to run. The caller must call the
// returned function once, with the result of the command. An error is an *exec.Error, and
// the command must not run. Run and Terminal call Observe themselves; it is exported for
// commands of the session that run elsewhere.
func (s *Session) Observe(ctx context.Context, c Command, mode Mode, where Where) (func(Result, error), error) {
	o := s.engine.opts.Observer
	if o == nil {
		return func(Result, error) {}, nil
	}
	e, err := s.intend(ctx, o, EventCommand, mode, where, c)
	over := func(res Result, err error) {
		e.End, e.Status, e.Err, e.Artifact, e.Masked = time.Now(), res.Status, err, res.Output.Artifact, res.Output.Masked
		if err == nil && where == InContainer {
			e.Receipt = res.Receipt()
		}
		if res.Job != nil {
			e.Job, e.JobTag = res.Job.info.ID, res.Job.info.tag
		}
		o.Note(e)
	}
	if err != nil {
		over(Result{}, err)
		return nil, err
	}
	return over, nil
}

// intend tells the observer of what is about to happen. An error is an *exec.Error.
func (s *Session) intend(ctx context.Context, o Observer, kind EventKind, mode Mode, where Where, c Command) (Observation, error) {
	e := newObservation(kind, s.ID(), c, s.engine.opts.Secrets)
	e.Mode, e.Where = mode, where
	var err error
	if e.ID = c.id; e.ID == "" {
		e.ID, err = newID()
	}
	if err == nil {
		err = o.Intend(ctx, e)
	}
	if err != nil {
		err = &exec.Error{Outcome: exec.NotStarted, Cause: CauseUnrecorded, Err: err}
	}
	return e, err
}

// observeTransfer tells the observer of a transfer before and after it is done.
func (s *Session) observeTransfer(ctx context.Context, mode Mode, from, to string, do func() error) error {
	o := s.engine.opts.Observer
	if o == nil {
		return do()
	}
	e, err := s.intend(ctx, o, EventTransfer, mode, InContainer, Command{Script: strconv.Quote(from), Args: []string{to}})
	if err == nil {
		err = do()
	}
	e.End, e.Err = time.Now(), err
	o.Note(e)
	return err
}

// noteSession tells the observer of a session's start or end.
func (e *Engine) noteSession(kind EventKind, id string, start time.Time, err error) {
	if o := e.opts.Observer; o != nil {
		o.Note(Observation{Kind: kind, Session: id, Start: start, End: time.Now(), Err: err, secrets: e.opts.Secrets})
	}
}

// noteJob notifies the observer of a job's end, once in this process.
func (s *Session) noteJob(info JobInfo) {
	o := s.engine.opts.Observer
	if o == nil || info.State == JobRunning || info.State == JobUnknown {
		return
	}
	s.mu.Lock()
	if s.noted == nil {
		s.noted = map[string]bool{}
	}
	before := s.noted[info.tag]
	s.noted[info.tag] = true
	s.mu.Unlock()
	if before {
		return
	}
	e := Observation{
		Kind: EventJobEnd, Session: s.ID(), Start: info.Started, End: info.Ended, Mode: ModeJob, Where: InContainer,
		Receipt: info.Receipt(), Job: info.ID, JobTag: info.tag, secrets: s.engine.opts.Secrets,
	}
	if info.Status != nil {
		e.Status = *info.Status
	} else {
		e.Err = &exec.Error{Outcome: exec.Unknown, Cause: exec.CauseRunnerLost, Err: errors.New("its end was not seen")}
	}
	o.Note(e)
}

// Stats counts the sessions of this process and their runners.
type Stats struct {
	Sessions int // opened or started here
	Warm     int // prepared and not yet used
	// Idle and Busy are the runners of those sessions.
	Idle, Busy int
	Waiting    int // commands that wait for a slot
}

// Stats returns the present counts.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	all := make([]*Session, 0, len(e.sessions))
	for _, s := range e.sessions {
		all = append(all, s)
	}
	e.mu.Unlock()
	e.warm.mu.Lock()
	st := Stats{Warm: len(e.warm.ready)}
	e.warm.mu.Unlock()
	st.Sessions = len(all) - st.Warm
	for _, s := range all {
		p := s.pool.Stats()
		st.Idle, st.Busy, st.Waiting = st.Idle+p.Idle, st.Busy+p.Busy, st.Waiting+p.Waiting
	}
	return st
}
