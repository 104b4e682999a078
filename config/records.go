package config

import (
	"strings"
	"time"
)

// Audit is the log of what was run.
type Audit struct {
	Enabled   bool // also if it is Required
	Required  bool // what cannot be recorded does not run
	Dir       string
	FileMax   int64         // bytes
	Retention time.Duration // 0: for ever
	Since     string        // of audit show
	Head      string        // of audit verify
}

// Metrics is where they are served.
type Metrics struct {
	Address string // "" is nowhere
}

// Log is what is told on standard error, for programs to read.
type Log struct {
	Level  string // "off", "debug", "info", "warn" or "error"
	Format string // "text" or "json"
}

// recordSettings say what is kept and told of what happens.
func recordSettings() []Setting {
	return []Setting{
		{Key: "audit.enabled", Kind: Switch, Default: "false", Usage: "keep an audit log of commands and sessions"},
		{Key: "audit.required", Kind: Switch, Default: "false", Usage: "keep one, and refuse to run what cannot be recorded"},
		{Key: "audit.dir", Usage: "where it is kept (default: audit of the user's state directory)"},
		{Key: "audit.file-max", Kind: Size, Default: "64m", Usage: "size at which its next file begins"},
		{Key: "audit.retention", Kind: Duration, Default: "0s", Usage: "how long its files are kept (0s: for ever)"},
		{Key: "audit.since", Flag: "since", Holder: "WHEN", Usage: "records from then on: a time as in 2026-01-31T15:04:05Z, or how long ago, as in 24h"},
		{Key: "audit.head", Flag: "head", Holder: "HASH", Usage: "head that was noted earlier: it must still be in the log"},
		{Key: "metrics.address", Flag: "metrics", Holder: "ADDR", Usage: "serve metrics for Prometheus at ADDR, as in 127.0.0.1:9464; loopback only"},
		{Key: "log.level", Flag: "log-level", Kind: Choice, Choices: []string{"off", "debug", "info", "warn", "error"}, Default: "off", Usage: "log what happens on standard error, from that level on"},
		{Key: "log.format", Flag: "log-format", Kind: Choice, Choices: []string{"text", "json"}, Default: "text", Usage: "form of that log, a record a line"},
	}
}

func (r *reader) audit() Audit {
	a := Audit{
		Enabled: r.on("audit.enabled"), Required: r.on("audit.required"), Dir: r.path("audit.dir"), FileMax: r.size("audit.file-max"),
		Retention: r.duration("audit.retention"), Since: r.text("audit.since"), Head: strings.ToLower(r.text("audit.head")),
	}
	a.Enabled = a.Enabled || a.Required
	if a.FileMax < minAuditFile {
		r.bad("audit.file-max", "it must be at least 64k", "")
	}
	if a.Head != "" && (len(a.Head) != auditHash || strings.Trim(a.Head, "0123456789abcdef") != "") {
		r.bad("audit.head", "it is no hash", "give the 64 hexadecimal digits that `sandboxbash audit verify` has printed")
	}
	return a
}

const (
	minAuditFile = 64 << 10 // bytes; a record may have some
	auditHash    = 64       // digits of a SHA-256
)

func (r *reader) log() Log { return Log{Level: r.text("log.level"), Format: r.text("log.format")} }
