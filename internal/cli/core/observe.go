package core

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/audit"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Observers are those who record or show what happens to commands: the audit log, metrics
// and traces, the log on standard error. They are made when one is first needed.
type Observers struct {
	version string
	env     *Environment
	streams *stdio.Streams
	cfg     *Configuration
	notes   *Notes
	secrets *Secrets

	metricsAt net.Listener // where metrics are served; nil: nowhere; set before making
	making    sync.Once    // of all
	all       fanOut       // made by making

	mu    sync.Mutex
	logTo *logWriter // guarded by mu; nil before Log
}

// fanOut passes events on to observers.
type fanOut struct {
	to     []sandbox.Observer
	close  []func()
	levels levels
}

// Observer receives events; it is nil if the configuration asks for none. It is made
// once, when the configuration is there.
func (o *Observers) Observer() sandbox.Observer {
	o.making.Do(o.begin)
	if len(o.all.to) == 0 {
		return nil
	}
	return &o.all
}

func (o *Observers) begin() {
	f := &o.all
	if c := o.cfg.Audit; c.Enabled {
		keeper := &auditor{note: o.notes.Add, dir: o.cfg.AuditDir(), files: audit.Options{FileBytes: c.FileMax, Retention: c.Retention}, required: c.Required}
		f.to = append(f.to, keeper)
		f.close = append(f.close, keeper.close)
		f.levels.log = keeper
	}
	if m := o.newMeter(f.levels.now); m != nil {
		f.to = append(f.to, m)
		f.close = append(f.close, m.close)
	}
	if log := o.Log(); log != nil {
		f.to = append(f.to, logger{log})
	}
}

// watch has the metrics tell of an owner of sessions. Observer was called before.
func (o *Observers) watch(e *sandbox.Engine) { o.all.levels.sessions.Store(e) }

// close lets those who observe end what they do.
func (o *Observers) close() {
	o.making.Do(func() {}) // nothing happens any more
	for _, end := range o.all.close {
		end()
	}
}

// Intend implements sandbox.Observer: all are asked, and one who refuses refuses.
func (f *fanOut) Intend(ctx context.Context, e sandbox.Observation) error {
	var errs []error
	for _, one := range f.to {
		errs = append(errs, one.Intend(ctx, e))
	}
	return errors.Join(errs...)
}

// Note implements sandbox.Observer.
func (f *fanOut) Note(e sandbox.Observation) {
	for _, one := range f.to {
		one.Note(e)
	}
}

// auditor puts what happens into the audit log.
type auditor struct {
	note     func(text string)
	dir      string
	files    audit.Options
	required bool

	mu     sync.Mutex
	log    *audit.Log // guarded by mu; nil until it could be opened
	warned bool       // guarded by mu
	missed int64      // guarded by mu
}

var errNoAuditDir = errors.New("there is no directory for the audit log: set audit.dir")

// append adds a record. If the log is not required, a failure is reported once.
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
		o.note("warning: not everything is recorded: " + err.Error())
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
	log, err := audit.Open(o.dir, o.files)
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
	sandbox.EventConnection: audit.Connection, sandbox.EventNetworkAnswer: audit.Answer,
	sandbox.EventSessionStart: audit.SessionStart, sandbox.EventSessionStop: audit.SessionStop, sandbox.EventReap: audit.Reaped,
}

// Note implements sandbox.Observer.
func (o *auditor) Note(e sandbox.Observation) {
	r := audit.Record{Session: e.Session, ID: e.ID, Mode: string(e.Mode), Where: string(e.Where)}
	if e.Kind == sandbox.EventDenied { // there is no intent that says what it was
		r = commandRecord(e)
	}
	r.Kind, r.Job, r.JobTag, r.Masked = auditKinds[e.Kind], e.Job, e.JobTag, e.Masked
	switch {
	case e.Connection != nil:
		c := *e.Connection
		c.Path, c.Err = e.Scrub(c.Path), e.Scrub(c.Err)
		r.Network, _ = json.Marshal(c) // numbers and words
	case e.Decision != nil:
		d := *e.Decision // its command is masked
		d.Path, d.Rule, d.Reason = e.Scrub(d.Path), e.Scrub(d.Rule), e.Scrub(d.Reason)
		r.Network, _ = json.Marshal(d) // numbers and words
	case e.Err != nil:
		r.Error = auditFailure(e)
	default:
		recordEnd(&r, e)
	}
	if a := e.Artifact; a.Stored {
		r.Artifact = &audit.Artifact{ID: a.ID, Bytes: a.Bytes, Complete: a.Complete}
	}
	_ = o.append(r) // it has been reported
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
