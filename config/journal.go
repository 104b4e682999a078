package config

import "time"

// Journal configures the journals of sessions, and what is shown of them.
type Journal struct {
	Enabled    bool
	Dir        string
	Terminals  bool          // what terminals show is kept too
	Output     int64         // bytes of one command's output that are kept whole
	SessionMax int64         // bytes
	TotalMax   int64         // bytes
	Retention  time.Duration // 0: for ever
	Last       int           // of session log: commands; 0: all
	To         string        // of session export: a file; "" or "-": standard output
	Speed      float64       // of session replay
	IdleLimit  time.Duration // of session replay and session export; 0: none
}

// journalSettings are about the journals of sessions.
func journalSettings(c *Config) []Setting {
	j := &c.Journal
	return []Setting{
		{Key: "journal.enabled", to: &j.Enabled, Kind: Switch, Default: "true", Usage: "keep a journal of each session: its commands, and their output with times"},
		{Key: "journal.dir", to: &j.Dir, path: true, Usage: "directory of the journals (default: journal in the user's state directory)"},
		{Key: "journal.terminals", to: &j.Terminals, Kind: Switch, Default: "false", Usage: "keep what terminals show in the journal too; never what is typed"},
		{Key: "journal.output", to: &j.Output, Kind: Size, Default: "1m", Usage: "how much of one command's output the journal has whole; of more it has samples, and the end"},
		{Key: "journal.session-max", to: &j.SessionMax, Kind: Size, Default: "64m", Usage: "size of one session's journal; at it, the oldest eighth is removed"},
		{Key: "journal.total-max", to: &j.TotalMax, Kind: Size, Default: "1g", Usage: "size of all journals; above it, the oldest are removed"},
		{Key: "journal.retention", to: &j.Retention, Kind: Duration, Default: "336h", Usage: "how long to keep a journal after its last record (0s: for ever)"},
		{Key: "journal.last", to: &j.Last, PerCall: true, Flag: "last", Short: "n", Kind: Count, Holder: "N", Default: "0", Usage: "show the last N commands only (0: all)"},
		{Key: "journal.to", to: &j.To, PerCall: true, Flag: "output", Short: "o", Holder: "FILE", Usage: "file to write (default: standard output)"},
		{Key: "journal.speed", to: &j.Speed, PerCall: true, Flag: "speed", Kind: Number, Holder: "FACTOR", Default: "1", Usage: "how many times as fast as it was, such as 2 or 0.5"},
		{Key: "journal.idle-limit", to: &j.IdleLimit, PerCall: true, Flag: "idle-limit", Kind: Duration, Default: "2s", Usage: "shorten pauses that are longer (0s: never)"},
	}
}

// checkJournal checks what was read of the journals.
func (r *reader) checkJournal(j *Journal) {
	if j.SessionMax < minJournal {
		r.bad("journal.session-max", "it must be at least 1m", "")
	}
	if j.Speed <= 0 {
		r.bad("journal.speed", "it must be more than 0", "")
	}
}

// minJournal is the smallest journal.session-max, in bytes: a segment of an eighth of it holds any record but the largest.
const minJournal = 1 << 20
