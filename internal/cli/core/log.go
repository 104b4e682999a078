package core

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Log is the log on standard error for programs to read, or nil. What is secret is
// masked in it.
func (o *Observers) Log() *slog.Logger {
	level := o.cfg.Log.Level
	if o.cfg.Serve.Log && level == "off" {
		level = "info"
	}
	if level == "off" {
		return nil
	}
	var from slog.Level
	_ = from.UnmarshalText([]byte(level)) // it is one of the setting's choices
	o.mu.Lock()
	defer o.mu.Unlock()
	inJSON := o.cfg.Log.Format == "json"
	if o.logTo == nil {
		o.logTo = &logWriter{secrets: o.secrets, json: inJSON, to: stdio.PastMasks(o.streams.Stderr), left: logBurst, now: time.Now}
	}
	opts := &slog.HandlerOptions{Level: from, ReplaceAttr: inMilliseconds}
	if inJSON {
		return slog.New(slog.NewJSONHandler(o.logTo, opts))
	}
	return slog.New(slog.NewTextHandler(o.logTo, opts))
}

// inMilliseconds gives every duration one unit, and a name that says so: slog's
// handlers write one as text and the other in nanoseconds.
func inMilliseconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() != slog.KindDuration {
		return a
	}
	return slog.Float64(a.Key+"Ms", float64(a.Value.Duration().Microseconds())/1000)
}

// Bounds of the log: who can make it grow is an agent.
const (
	logBurst = 1000     // records at once
	logRate  = 100      // records a second, from then on
	logLine  = 64 << 10 // bytes of one
	logText  = 4 << 10  // bytes of a command in it
)

// logWriter writes records, each of which is one Write, with the secrets masked and
// nothing that a terminal would act on. What is too much is counted, and the next
// record is preceded by the count.
type logWriter struct {
	secrets *Secrets
	json    bool // its records are JSON
	to      io.Writer
	now     func() time.Time

	mu      sync.Mutex
	left    float64   // guarded by mu; records that may be written now
	at      time.Time // guarded by mu; when left was counted
	dropped int       // guarded by mu
}

// Write implements io.Writer. It never fails.
func (w *logWriter) Write(p []byte) (int, error) {
	text := string(w.secrets.Known().ScrubJSON(p)) // and what is not JSON as text
	if len(text) > logLine {
		text = w.own("a record was left out: it is too long", "bytes", len(text))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if !w.at.IsZero() {
		w.left = min(logBurst, w.left+logRate*now.Sub(w.at).Seconds())
	}
	w.at = now
	if w.left < 1 {
		w.dropped++
		return len(p), nil
	}
	w.left--
	if w.dropped > 0 {
		text = w.own("records were dropped: there were too many", "count", w.dropped) + text
		w.dropped = 0
	}
	_, _ = io.WriteString(w.to, inert(text))
	return len(p), nil
}

// own is a record about the log itself.
func (w *logWriter) own(msg, key string, n int) string {
	at := w.now().Format(time.RFC3339Nano)
	if w.json {
		return fmt.Sprintf("{\"time\":%q,\"level\":\"WARN\",\"msg\":%q,%q:%d}\n", at, msg, key, n)
	}
	return fmt.Sprintf("time=%s level=WARN msg=%q %s=%d\n", at, msg, key, n)
}

// inert escapes what slog's handlers leave as it is and a terminal may act on: C1
// controls, and characters that turn the direction of text.
func inert(text string) string {
	acts := func(r rune) bool {
		return r >= 0x80 && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x200e || r == 0x200f || r == 0x061c
	}
	if strings.IndexFunc(text, acts) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if acts(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// logger tells the log what happens.
type logger struct{ log *slog.Logger }

// Intend implements sandbox.Observer.
func (l logger) Intend(ctx context.Context, e sandbox.Observation) error {
	if l.log.Enabled(ctx, slog.LevelDebug) {
		text, size := e.Command(logText)
		l.log.DebugContext(ctx, string(e.Kind)+" starts", "session", e.Session, "id", e.ID, "mode", string(e.Mode), "command", text, "bytes", size)
	}
	return nil
}

// Note implements sandbox.Observer.
func (l logger) Note(e sandbox.Observation) {
	level := slog.LevelInfo
	attrs := []slog.Attr{slog.String("session", e.Session)}
	if e.ID != "" {
		attrs = append(attrs, slog.String("id", e.ID), slog.String("mode", string(e.Mode)), slog.String("where", string(e.Where)))
	}
	if e.Job != "" {
		attrs = append(attrs, slog.String("job", e.Job))
	}
	switch {
	case e.Kind == sandbox.EventDenied:
		level = slog.LevelWarn
		attrs = append(attrs, slog.String("rule", e.Policy.Rule))
	case e.Connection != nil:
		c := e.Connection
		if !c.Allowed {
			level = slog.LevelWarn
		}
		attrs = append(attrs, slog.String("host", c.Host), slog.Int("port", c.Port), slog.Bool("allowed", c.Allowed),
			slog.String("rule", c.Rule), slog.String("why", c.Why), slog.String("method", c.Method), slog.String("path", e.Scrub(c.Path)),
			slog.Int("status", c.Status), slog.Any("secrets", c.Secrets), slog.Int64("sent", c.Sent), slog.Int64("received", c.Received), slog.String("error", e.Scrub(c.Err)))
	case e.Decision != nil:
		d := e.Decision
		attrs = append(attrs, slog.String("host", d.Host), slog.Int("port", d.Port), slog.String("rule", e.Scrub(d.Rule)),
			slog.String("answer", string(d.Answer)), slog.String("by", d.By))
		if d.Proposed {
			attrs = append(attrs, slog.Bool("proposed", true), slog.String("reason", e.Scrub(d.Reason)))
		}
	case e.Err != nil:
		level = slog.LevelWarn
		v := failure(e)
		attrs = append(attrs, slog.String("outcome", string(v.Outcome)), slog.String("cause", v.Cause), slog.String("error", e.Scrub(exit.Words(e.Err))))
	case e.Kind == sandbox.EventTransfer:
		attrs = append(attrs, slog.String("reason", copied))
	case e.Status.Reason != "":
		attrs = append(attrs, slog.String("reason", string(e.Status.Reason)), slog.Int("exitCode", exit.OfCommand(e.Status)))
	}
	if e.Receipt != nil {
		attrs = append(attrs, slog.Any("receipt", e.Receipt))
	}
	attrs = append(attrs, slog.Duration("elapsed", e.End.Sub(e.Start)))
	l.log.LogAttrs(context.Background(), level, string(e.Kind), attrs...)
}
