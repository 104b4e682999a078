package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Command says how a command ended, without its text. All strings are from small sets,
// except Session and ID, which are used in traces only.
type Command struct {
	Session, ID string
	Start, End  time.Time
	Mode, Where string
	Outcome     string // "exited", "timed-out", …; "not-started", "outcome-unknown", "session-lost"
	Cause       string // if Outcome is not a reason; else ""
	Code        *int   // exit code
	Verdict     string // of the policy; "" if there is none
	Killed      string // how far the kill went; "" if there was none
	CPU         time.Duration
	Stdout      int64 // bytes
	Stderr      int64 // bytes
	Survivors   int
	Masked      int64
	Artifact    int64 // bytes kept
}

// Session is the start of a session.
type Session struct {
	ID         string
	Start, End time.Time
	Failed     bool
}

// latencies are the buckets of durations, in seconds: from a fork to a build.
var latencies = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}

// instruments are the metrics. For Prometheus their names get underscores, units and
// _total, by its conventions.
type instruments struct {
	duration  metric.Float64Histogram
	commands  metric.Int64Counter
	cpu       metric.Float64Counter
	output    metric.Int64Counter
	kills     metric.Int64Counter
	survivors metric.Int64Counter
	decisions metric.Int64Counter
	masked    metric.Int64Counter
	artifacts metric.Int64Counter
	starts    metric.Float64Histogram
	ends      metric.Int64Counter
	jobs      metric.Int64Counter
	transfers metric.Float64Histogram

	connections metric.Int64Counter
	traffic     metric.Int64Counter
}

// maker creates instruments and keeps the first error.
type maker struct {
	meter metric.Meter
	err   error
}

func (m *maker) counter(name, unit, description string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.keep(err)
	return c
}

func (m *maker) seconds(name, description string) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(latencies...))
	m.keep(err)
	return h
}

func (m *maker) gauge(name, description string) metric.Int64ObservableGauge {
	g, err := m.meter.Int64ObservableGauge(name, metric.WithDescription(description))
	m.keep(err)
	return g
}

func (m *maker) keep(err error) {
	if m.err == nil {
		m.err = err
	}
}

func (in *instruments) make(meter metric.Meter, o Options) error {
	m := maker{meter: meter}
	m.build(o)
	in.duration = m.seconds("sandboxbash.command.duration", "Time from the start of a command's call to its end.")
	in.commands = m.counter("sandboxbash.commands", "{command}", "Commands, by how they ended.")
	var err error
	in.cpu, err = meter.Float64Counter("sandboxbash.command.cpu.time", metric.WithUnit("s"), metric.WithDescription("User and system time of commands."))
	m.keep(err)
	in.output = m.counter("sandboxbash.command.output", "By", "Output of commands.")
	in.kills = m.counter("sandboxbash.kills", "{command}", "Commands that had to be killed, by how far it went.")
	in.survivors = m.counter("sandboxbash.survivors", "{process}", "Processes that commands left running.")
	in.decisions = m.counter("sandboxbash.policy.decisions", "{command}", "What the policy has decided of commands.")
	in.masked = m.counter("sandboxbash.secrets.masked", "{secret}", "Secrets masked in the output of commands.")
	in.artifacts = m.counter("sandboxbash.artifact.written", "By", "Output kept in artifacts.")
	in.starts = m.seconds("sandboxbash.session.start.duration", "Time that the start of a session took.")
	in.ends = m.counter("sandboxbash.sessions.ended", "{session}", "Sessions that were stopped, or reaped.")
	in.jobs = m.counter("sandboxbash.jobs.ended", "{job}", "Jobs whose end was seen, by how they ended.")
	in.transfers = m.seconds("sandboxbash.transfer.duration", "Time that pushes and pulls took.")
	in.connections = m.counter("sandboxbash.network.connections", "{connection}", "Connections and requests of sessions, by what the rules said.")
	in.traffic = m.counter("sandboxbash.network.traffic", "By", "Bytes that connections have carried.")
	if o.Levels != nil {
		m.levels(o.Levels)
	}
	return m.err
}

// build creates the gauge that says which build of this program reports: it is always 1.
func (m *maker) build(o Options) {
	info := m.gauge("sandboxbash.build.info", "The build of this program: always 1.")
	if m.err != nil {
		return
	}
	labels := with("version", o.Version, "revision", o.Revision, "goversion", o.Go)
	_, err := m.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		to.ObserveInt64(info, 1, labels.(metric.ObserveOption))
		return nil
	}, info)
	m.keep(err)
}

// levels creates the gauges, which are read when metrics are collected.
func (m *maker) levels(levels func() Levels) {
	sessions := m.gauge("sandboxbash.sessions", "Sessions that this process holds.")
	warm := m.gauge("sandboxbash.sessions.warm", "Sessions prepared ahead of need.")
	runners := m.gauge("sandboxbash.runners", "Runners of those sessions, by what they do.")
	waiting := m.gauge("sandboxbash.commands.waiting", "Commands that wait for their place in a session.")
	missed, err := m.meter.Int64ObservableCounter("sandboxbash.audit.missed", metric.WithDescription("Records that the audit log lacks."))
	m.keep(err)
	idle, busy := metric.WithAttributes(attribute.String("state", "idle")), metric.WithAttributes(attribute.String("state", "busy"))
	if m.err != nil {
		return
	}
	_, err = m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		l := levels()
		o.ObserveInt64(sessions, int64(l.Sessions))
		o.ObserveInt64(warm, int64(l.Warm))
		o.ObserveInt64(runners, int64(l.IdleRunners), idle)
		o.ObserveInt64(runners, int64(l.BusyRunners), busy)
		o.ObserveInt64(waiting, int64(l.Waiting))
		o.ObserveInt64(missed, l.Unrecorded)
		return nil
	}, sessions, warm, runners, waiting, missed)
	m.keep(err)
}

func with(pairs ...string) metric.MeasurementOption {
	var attrs []attribute.KeyValue
	for i := 0; i < len(pairs); i += 2 {
		attrs = append(attrs, attribute.String(pairs[i], pairs[i+1]))
	}
	return metric.WithAttributes(attrs...)
}

// Command counts a command that has ended.
func (t *Telemetry) Command(c Command) {
	ctx, in := context.Background(), &t.in
	in.commands.Add(ctx, 1, with("outcome", c.Outcome, "cause", c.Cause, "mode", c.Mode, "where", c.Where))
	in.duration.Record(ctx, c.End.Sub(c.Start).Seconds(), with("outcome", c.Outcome, "mode", c.Mode))
	in.cpu.Add(ctx, c.CPU.Seconds())
	in.output.Add(ctx, c.Stdout, with("stream", "stdout"))
	in.output.Add(ctx, c.Stderr, with("stream", "stderr"))
	in.survivors.Add(ctx, int64(c.Survivors))
	in.masked.Add(ctx, c.Masked)
	in.artifacts.Add(ctx, c.Artifact)
	if c.Killed != "" {
		in.kills.Add(ctx, 1, with("rung", c.Killed))
	}
	t.decided(c.Verdict)
	attrs := []attribute.KeyValue{
		attribute.String("session.id", c.Session), attribute.String("sandboxbash.command.id", c.ID),
		attribute.String("sandboxbash.outcome", c.Outcome), attribute.String("sandboxbash.mode", c.Mode),
		attribute.String("sandboxbash.where", c.Where), attribute.Int64("sandboxbash.survivors", int64(c.Survivors)),
	}
	for name, text := range map[string]string{"error.type": c.Cause, "sandboxbash.killed": c.Killed, "sandboxbash.policy.verdict": c.Verdict} {
		if text != "" {
			attrs = append(attrs, attribute.String(name, text))
		}
	}
	if c.Code != nil {
		attrs = append(attrs, attribute.Int("process.exit.code", *c.Code))
	}
	t.span("sandboxbash command", c.Start, c.End, c.Cause, attrs)
}

// Transfer counts a push or a pull that has ended.
func (t *Telemetry) Transfer(c Command) {
	t.in.transfers.Record(context.Background(), c.End.Sub(c.Start).Seconds(), with("outcome", c.Outcome, "cause", c.Cause, "mode", c.Mode))
	attrs := []attribute.KeyValue{
		attribute.String("session.id", c.Session), attribute.String("sandboxbash.transfer.id", c.ID),
		attribute.String("sandboxbash.outcome", c.Outcome), attribute.String("sandboxbash.mode", c.Mode),
	}
	if c.Cause != "" {
		attrs = append(attrs, attribute.String("error.type", c.Cause))
	}
	t.span("sandboxbash transfer", c.Start, c.End, c.Cause, attrs)
}

// Connection counts a connection, a request, or a name that was refused, by its kind.
func (t *Telemetry) Connection(kind string, allowed bool, sent, received int64) {
	verdict := "denied"
	if allowed {
		verdict = "allowed"
	}
	t.in.connections.Add(context.Background(), 1, with("kind", kind, "verdict", verdict))
	t.in.traffic.Add(context.Background(), sent, with("direction", "sent"))
	t.in.traffic.Add(context.Background(), received, with("direction", "received"))
}

// Denied counts a command that the policy has refused.
func (t *Telemetry) Denied(verdict string) {
	t.in.commands.Add(context.Background(), 1, with("outcome", "denied", "cause", "", "mode", "", "where", ""))
	t.decided(verdict)
}

func (t *Telemetry) decided(verdict string) {
	if verdict != "" {
		t.in.decisions.Add(context.Background(), 1, with("verdict", verdict))
	}
}

// SessionStarted counts the start of a session, or its failure.
func (t *Telemetry) SessionStarted(s Session) {
	outcome := "started"
	cause := ""
	if s.Failed {
		outcome, cause = "failed", "start"
	}
	t.in.starts.Record(context.Background(), s.End.Sub(s.Start).Seconds(), with("outcome", outcome))
	t.span("sandboxbash session start", s.Start, s.End, cause, []attribute.KeyValue{attribute.String("session.id", s.ID)})
}

// SessionEnded counts a session that was "stopped" or "reaped".
func (t *Telemetry) SessionEnded(how string) {
	t.in.ends.Add(context.Background(), 1, with("how", how))
}

// JobEnded counts a job that has ended.
func (t *Telemetry) JobEnded(outcome string) {
	t.in.jobs.Add(context.Background(), 1, with("outcome", outcome))
}

// span sends a span that has ended.
func (t *Telemetry) span(name string, start, end time.Time, failed string, attrs []attribute.KeyValue) {
	if t.tracer == nil {
		return
	}
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), t.parent)
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(start), trace.WithAttributes(attrs...))
	if failed != "" {
		span.SetStatus(codes.Error, failed)
	}
	span.End(trace.WithTimestamp(end))
}
