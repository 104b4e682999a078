package config

import (
	"strings"
	"time"
)

// Audit configures the log of commands and sessions.
type Audit struct {
	Enabled   bool // true if Required is
	Required  bool // a command that cannot be recorded does not run
	Dir       string
	FileMax   int64         // bytes
	Retention time.Duration // 0: for ever
	Since     string        // of audit show
	Head      string        // of audit verify
}

// Metrics says where metrics are served.
type Metrics struct {
	Address string // "": they are not served
}

// Log configures the log on standard error.
type Log struct {
	Level  string // "off", "debug", "info", "warn" or "error"
	Format string // "text" or "json"
}

// recordSettings are about the audit log, metrics and the log.
func recordSettings(c *Config) []Setting {
	return []Setting{
		{Key: "audit.enabled", to: &c.Audit.Enabled, Kind: Switch, Default: "false", Usage: "keep an audit log of commands and sessions"},
		{Key: "audit.required", to: &c.Audit.Required, Kind: Switch, Default: "false", Usage: "keep an audit log, and refuse to run what cannot be recorded"},
		{Key: "audit.dir", to: &c.Audit.Dir, path: true, Usage: "directory of the audit log (default: audit in the user's state directory)"},
		{Key: "audit.file-max", to: &c.Audit.FileMax, Kind: Size, Default: "64m", Usage: "size at which the audit log starts a new file"},
		{Key: "audit.retention", to: &c.Audit.Retention, Kind: Duration, Default: "0s", Usage: "how long to keep files of the audit log (0s: for ever)"},
		{Key: "audit.since", to: &c.Audit.Since, PerCall: true, Flag: "since", Holder: "WHEN", Usage: "show records from this time on: a time such as 2026-01-31T15:04:05Z, or an age such as 24h"},
		{Key: "audit.head", to: &c.Audit.Head, PerCall: true, Flag: "head", Holder: "HASH", Usage: "hash that was noted earlier, which must still be in the log"},
		{Key: "metrics.address", to: &c.Metrics.Address, Flag: "metrics", Holder: "ADDR", Usage: "serve metrics for Prometheus at ADDR, such as 127.0.0.1:9464; loopback only"},
		{Key: "log.level", to: &c.Log.Level, Flag: "log-level", Kind: Choice, Choices: []string{"off", "debug", "info", "warn", "error"}, Holder: "LEVEL", Default: "off", Usage: "log events of this level and above on standard error"},
		{Key: "log.format", to: &c.Log.Format, Flag: "log-format", Kind: Choice, Choices: []string{"text", "json"}, Default: "text", Usage: "log format: text or json, one record per line"},
	}
}

// checkAudit completes and checks what was read of the audit log.
func (r *reader) checkAudit(a *Audit) {
	a.Head = strings.ToLower(a.Head)
	a.Enabled = a.Enabled || a.Required
	if a.FileMax < minAuditFile {
		r.bad("audit.file-max", "it must be at least 64k", "")
	}
	if a.Head != "" && (len(a.Head) != auditHash || strings.Trim(a.Head, "0123456789abcdef") != "") {
		r.badWith("audit.head", "it is not a hash", "give 64 hexadecimal digits", HelpHead)
	}
}

const (
	minAuditFile = 64 << 10 // bytes; a single record can be some KiB
	auditHash    = 64       // digits of a SHA-256
)
