package core

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/sandboxbash/sandboxbash/engine/docker"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/internal/audit"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// observers pass events on to what records or shows them.
type observers struct {
	all    []sandbox.Observer
	close  []func()
	levels levels
}

// Observed returns an owner of sessions, with the observers that the configuration asks for.
func (a *App) Observed(r *images.Resolver, opts sandbox.Options) *sandbox.Engine {
	opts.Observer = a.Observer()
	e := a.Unobserved(r, opts)
	a.observers.levels.sessions.Store(e)
	return e
}

// Unobserved returns an owner of sessions on the engine of Connect.
func (a *App) Unobserved(r *images.Resolver, opts sandbox.Options) *sandbox.Engine {
	return sandbox.New(docker.NewEngine(a.Docker, images.Runner), r, opts)
}

// Observer receives events; it is nil if the configuration asks for none. It is made
// once, when the configuration is there.
func (a *App) Observer() sandbox.Observer {
	a.observing.Do(func() { a.observers = a.newObservers() })
	if len(a.observers.all) == 0 {
		return nil
	}
	return a.observers
}

func (a *App) newObservers() *observers {
	o := &observers{}
	if a.Cfg.Audit.Enabled {
		keeper := &auditor{App: a, dir: a.AuditDir(), required: a.Cfg.Audit.Required}
		o.all = append(o.all, keeper)
		o.close = append(o.close, keeper.close)
		o.levels.log = keeper
	}
	if m := a.newMeter(a.metricsAt, o.levels.now); m != nil {
		o.all = append(o.all, m)
		o.close = append(o.close, m.close)
	}
	if log := a.Log(); log != nil {
		o.all = append(o.all, logger{log})
	}
	return o
}

// endObserving lets those who observe end what they do.
func (a *App) endObserving() {
	a.observing.Do(func() { a.observers = &observers{} }) // nothing happens any more
	for _, end := range a.observers.close {
		end()
	}
}

// Intend implements sandbox.Observer: all are asked, and one who refuses refuses.
func (o *observers) Intend(ctx context.Context, e sandbox.Observation) error {
	var errs []error
	for _, one := range o.all {
		errs = append(errs, one.Intend(ctx, e))
	}
	return errors.Join(errs...)
}

// Note implements sandbox.Observer.
func (o *observers) Note(e sandbox.Observation) {
	for _, one := range o.all {
		one.Note(e)
	}
}

// AuditDir is where the audit log is kept, "" if there is no place for it.
func (a *App) AuditDir() string {
	if a.Cfg.Audit.Dir != "" || a.stateDir() == "" {
		return a.Cfg.Audit.Dir
	}
	return audit.DefaultDir(a.stateDir())
}

// auditor puts what happens into the audit log.
type auditor struct {
	App      *App
	dir      string
	required bool

	mu     sync.Mutex
	log    *audit.Log // guarded by mu; nil until it could be opened
	warned bool       // guarded by mu
	missed int64      // guarded by mu
}

var errNoAuditDir = errors.New("there is no directory for the audit log: set audit.dir")

// append adds a record. Where that is not required a failure is told once.
func (o *auditor) append(r audit.Record) error {
	log, err := o.open()
	if err == nil {
		err = log.Append(r)
	}
	if err == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.missed++
	if !o.warned {
		o.warned = true
		o.App.Note("warning: not everything is recorded: " + err.Error())
	}
	return err
}

func (o *auditor) open() (*audit.Log, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.log != nil {
		return o.log, nil
	}
	if o.dir == "" {
		return nil, errNoAuditDir
	}
	c := o.App.Cfg.Audit
	log, err := audit.Open(o.dir, audit.Options{FileBytes: c.FileMax, Retention: c.Retention})
	o.log = log
	return log, err
}

// lost is how many records the log lacks.
func (o *auditor) lost() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.missed
}

func (o *auditor) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.log != nil {
		_ = o.log.Close() // every record is in the file
	}
}

// Intend implements sandbox.Observer.
func (o *auditor) Intend(_ context.Context, e sandbox.Observation) error {
	r := commandRecord(e)
	r.Kind = audit.Intent
	if err := o.append(r); err != nil && o.required {
		return err
	}
	return nil
}

// kinds of observations, as the log has them.
var auditKinds = map[sandbox.EventKind]audit.Kind{
	sandbox.EventCommand: audit.Outcome, sandbox.EventTransfer: audit.Outcome, sandbox.EventDenied: audit.Denied, sandbox.EventJobEnd: audit.JobEnd,
	sandbox.EventSessionStart: audit.SessionStart, sandbox.EventSessionStop: audit.SessionStop, sandbox.EventReap: audit.Reaped,
}

// Note implements sandbox.Observer.
func (o *auditor) Note(e sandbox.Observation) {
	r := audit.Record{Session: e.Session, ID: e.ID, Mode: string(e.Mode), Where: string(e.Where)}
	if e.Kind == sandbox.EventDenied { // there is no intent that says what it was
		r = commandRecord(e)
	}
	r.Kind, r.Job, r.JobTag, r.Masked = auditKinds[e.Kind], e.Job, e.JobTag, e.Masked
	if e.Err != nil {
		r.Error = auditFailure(e)
	} else {
		recordEnd(&r, e)
	}
	if a := e.Artifact; a.Stored {
		r.Artifact = &audit.Artifact{ID: a.ID, Bytes: a.Bytes, Complete: a.Complete}
	}
	_ = o.append(r) // it has been told
}

// commandRecord says what a command is.
func commandRecord(e sandbox.Observation) audit.Record {
	r := audit.Record{
		ID: e.ID, Session: e.Session, Mode: string(e.Mode), Where: string(e.Where), Dir: e.Dir, Policy: auditPolicy(e.Policy),
	}
	r.Command, r.Bytes = e.Command(audit.MaxCommand)
	return r
}

func auditPolicy(d policy.Decision) *audit.Policy {
	if d.Verdict == "" {
		return nil
	}
	return &audit.Policy{Verdict: string(d.Verdict), Rule: d.Rule, Reason: d.Reason}
}

// recordEnd says how a command ended.
func recordEnd(r *audit.Record, e sandbox.Observation) {
	r.Reason, r.Signal = endReason(e), e.Status.Signal
	if e.Status.Reason == exec.Exited {
		r.Code = &e.Status.Code
	}
	if e.Receipt != nil {
		r.Receipt, _ = json.Marshal(e.Receipt) // numbers and a word
	}
}

// copied is the reason of a transfer that has ended without an error.
const copied = "copied"

// endReason is how what ended without an error did.
func endReason(e sandbox.Observation) string {
	if e.Kind == sandbox.EventTransfer {
		return copied
	}
	return string(e.Status.Reason)
}

// failure says what an observation's error means. A transfer that was cut off may have
// copied a part.
func failure(e sandbox.Observation) exit.Verdict {
	v := exit.Judge(e.Err)
	_, known := errors.AsType[*exec.Error](e.Err)
	if e.Kind == sandbox.EventTransfer && !known && (v.Status == exit.Engine || v.Status == exit.Cancelled) {
		v.Outcome = exec.Unknown
	}
	return v
}

// maxMessage bounds what a record repeats of an error, in bytes.
const maxMessage = 1 << 10

func auditFailure(e sandbox.Observation) *audit.Failure {
	v := failure(e)
	text := e.Scrub(exit.Words(e.Err))
	return &audit.Failure{Outcome: string(v.Outcome), Cause: cmp.Or(v.Cause, "engine"), Message: text[:min(len(text), maxMessage)]}
}
