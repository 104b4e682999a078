package core

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// logging are observers with a secret to mask, whose log goes to the buffer, as of now.
func logging(t *testing.T, form string, now func() time.Time) (*Observers, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	p := New("", []string{"CANARY=c4nary-0123456789"}, strings.NewReader(""), &out, &out)
	p.Cfg.Config = &config.Config{
		Log: config.Log{Level: "info", Format: form}, Secrets: []config.Secret{{Name: "CANARY", From: config.FromEnv, Source: "CANARY"}},
	}
	o := p.Observers
	o.Log()
	o.logTo.to, o.logTo.now = &out, now
	return o, &out
}

// The log has no secret, whatever it was put in, and nothing that a terminal acts on.
func TestLogText(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"text", "json"} {
		o, out := logging(t, form, time.Now)
		log := o.Log().With("key c4nary-0123456789", "x")
		log.Info("c4nary-0123456789", "error", fmt.Errorf("\x1b[2J \u009b \u202e c4nary-0123456789"), slog.Group("g", "a", []byte("c4nary-0123456789")))
		log.Debug("no reader wants this")
		got := out.String()
		if strings.Contains(got, "c4nary") || !strings.Contains(got, "[REDACTED:CANARY]") {
			t.Errorf("%s: %q; want the secret masked", form, got)
		}
		if strings.ContainsAny(got, "\x1b\u009b\u202e") || strings.Count(got, "\n") != 1 || strings.Contains(got, "no reader") {
			t.Errorf("%s: %q; want one line of one record, and no control characters", form, got)
		}
		if form == "json" && !json.Valid(out.Bytes()) {
			t.Errorf("%s: %q; want JSON", form, got)
		}
	}
}

// What is too much is dropped and counted, and time makes room again.
func TestLogRate(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"text", "json"} {
		now := time.Unix(1000, 0)
		o, out := logging(t, form, func() time.Time { return now })
		log := o.Log()
		for range logBurst + 7 {
			log.Info("x")
		}
		if got := strings.Count(out.String(), "\n"); got != logBurst {
			t.Errorf("%s: %d records at once; want %d", form, got, logBurst)
		}
		out.Reset()
		now = now.Add(time.Second)
		for range logRate + 3 {
			log.Info("x")
		}
		got := out.String()
		first, _, _ := strings.Cut(got, "\n")
		if strings.Count(got, "\n") != logRate+1 || !strings.Contains(first, "dropped") || !strings.Contains(first, "7") {
			t.Errorf("%s: %d lines after a second, of which the first is %q; want %d and the count 7", form, strings.Count(got, "\n"), first, logRate+1)
		}
		if form == "json" && !json.Valid([]byte(first)) {
			t.Errorf("%q is not JSON", first)
		}
	}
}

// A record that is too long is not cut, but left out: a part is not a record.
func TestLogLong(t *testing.T) {
	t.Parallel()
	o, out := logging(t, "json", time.Now)
	o.Log().Info(strings.Repeat("x", logLine))
	if got := out.Bytes(); !json.Valid(got) || len(got) > 200 || !bytes.Contains(got, []byte("too long")) {
		t.Errorf("%.300q; want a word about it", got)
	}
}

// What a record holds are values, and a duration has one unit, in either form.
func TestLogValues(t *testing.T) {
	t.Parallel()
	for form, want := range map[string]string{
		"text": " elapsedMs=1500.25 receipt.wallMs=2.5 receipt.cpuMs=1.5 receipt.peakRssBytes=7 receipt.stdoutBytes=3 receipt.stderrBytes=0 receipt.killed=\"\" receipt.survivors=0 receipt.proved=true\n",
		"json": `,"elapsedMs":1500.25,"receipt":{"wallMs":2.5,"cpuMs":1.5,"peakRssBytes":7,"stdoutBytes":3,"stderrBytes":0,"killed":"","survivors":0,"proved":true}}` + "\n",
	} {
		o, out := logging(t, form, time.Now)
		cpu, rss := 1.5, int64(7)
		r := &sandbox.Receipt{WallMs: 2.5, CPUMs: &cpu, PeakRSSBytes: &rss, StdoutBytes: 3, Proved: true}
		o.Log().Info("x", "elapsed", 1500250*time.Microsecond, "receipt", r)
		if got := out.String(); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s; want %s at its end", form, got, want)
		}
	}
}
