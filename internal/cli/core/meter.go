package core

import (
	"context"
	"sync/atomic"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/telemetry"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// meter counts what happens, for Prometheus and for a collector.
type meter struct{ to *telemetry.Telemetry }

// newMeter starts what the configuration and the variables OTEL_* want; nil is
// nothing. Commands run also when the collector cannot be reached.
func (o *Observers) newMeter(levels func() telemetry.Levels) *meter {
	build := Build(o.version)
	tel, err := telemetry.Start(context.Background(), telemetry.Options{
		Version: build.Version, Revision: build.Commit, Go: build.Go, Getenv: o.env.Getenv, Listener: o.metricsAt, Levels: levels,
		Warn: func(err error) { o.notes.Add("warning: " + err.Error()) },
	})
	if err != nil {
		o.notes.Add("warning: " + err.Error())
	}
	if tel == nil {
		return nil
	}
	return &meter{tel}
}

func (m *meter) close() { _ = m.to.Close(context.Background()) } // what is lost was warned of

// levels reads the numbers of a moment.
type levels struct {
	sessions atomic.Pointer[sandbox.Engine]
	log      *auditor // nil: there is none
}

func (l *levels) now() telemetry.Levels {
	var now telemetry.Levels
	if e := l.sessions.Load(); e != nil {
		s := e.Stats()
		now = telemetry.Levels{Sessions: s.Sessions, Warm: s.Warm, IdleRunners: s.Idle, BusyRunners: s.Busy, Waiting: s.Waiting}
	}
	if l.log != nil {
		now.Unrecorded = l.log.lost()
	}
	return now
}

// Intend implements sandbox.Observer.
func (*meter) Intend(context.Context, sandbox.Observation) error { return nil }

// Note implements sandbox.Observer.
func (m *meter) Note(e sandbox.Observation) {
	switch e.Kind { //nolint:exhaustive // answers of people are not measured
	case sandbox.EventCommand:
		m.to.Command(measured(e))
	case sandbox.EventTransfer:
		m.to.Transfer(measured(e))
	case sandbox.EventConnection:
		c := e.Connection
		m.to.Connection(string(c.Kind), c.Allowed, c.Sent, c.Received)
	case sandbox.EventDenied:
		m.to.Denied(string(e.Policy.Verdict))
	case sandbox.EventSessionStart:
		m.to.SessionStarted(telemetry.Session{ID: e.Session, Start: e.Start, End: e.End, Failed: e.Err != nil})
	case sandbox.EventSessionStop:
		m.to.SessionEnded("stopped")
	case sandbox.EventReap:
		m.to.SessionEnded("reaped")
	case sandbox.EventJobEnd:
		m.to.JobEnded(measured(e).Outcome)
	}
}

// measured is an observation without its texts.
func measured(e sandbox.Observation) telemetry.Command {
	c := telemetry.Command{
		Session: e.Session, ID: e.ID, Start: e.Start, End: e.End, Mode: string(e.Mode), Where: string(e.Where), Verdict: string(e.Policy.Verdict),
		Outcome: endReason(e), CPU: e.Status.CPU, Stdout: e.Status.Stdout, Stderr: e.Status.Stderr, Survivors: e.Status.Left, Masked: e.Masked,
	}
	if e.Artifact.Stored {
		c.Artifact = e.Artifact.Bytes
	}
	if e.Receipt != nil {
		c.Killed = e.Receipt.Killed
	}
	switch {
	case e.Err != nil:
		v := failure(e)
		c.Outcome, c.Cause = string(v.Outcome), v.Cause
	case e.Status.Reason == exec.Exited:
		c.Code = &e.Status.Code
	}
	return c
}

// ServeMetrics opens the address of the metrics, for what lives long.
func (o *Observers) ServeMetrics(ctx context.Context) error {
	if o.cfg.Metrics.Address == "" {
		return nil
	}
	l, err := telemetry.Listen(ctx, o.cfg.Metrics.Address)
	if err != nil {
		return exit.Misuse("", "%v", err)
	}
	o.metricsAt = l
	o.Observer()
	if !o.cfg.Quiet {
		o.notes.Add("serving metrics at http://" + l.Addr().String() + telemetry.Path)
	}
	return nil
}
