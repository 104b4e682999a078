package watch

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/journal"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Tone says how something is to be taken. It is a word, too, where colours are not seen.
type Tone string

// Tones.
const (
	Plain   Tone = ""
	Good    Tone = "good"
	Bad     Tone = "bad"
	Warning Tone = "warning"
	Quiet   Tone = "quiet"
)

// State is what a session does.
type State string

// States.
const (
	Running State = "running" // commands run
	Idle    State = "idle"    // none does
	Paused  State = "paused"
	Stopped State = "stopped" // it has ended
	Kept    State = "kept"    // it has ended, and its workspace is kept
	Unknown State = "unknown" // there is no engine that says whether it is there
)

// engineGone is the state of a session that the engine does not have.
const engineGone = "gone"

// Summary is a session in a list. Its texts are safe to show.
type Summary struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Image     string    `json:"image,omitempty"`
	Profile   string    `json:"profile,omitempty"`
	Network   string    `json:"network,omitempty"`
	Workspace string    `json:"workspace,omitempty"`
	Created   time.Time `json:"created,omitzero"`
	Active    time.Time `json:"active,omitzero"` // when something happened last
	State     State     `json:"state"`
	NoJournal bool      `json:"noJournal,omitempty"` // only the engine knows it

	Running []Command `json:"running,omitempty"` // what runs, without jobs; maxRunning at most
	Jobs    []Job     `json:"jobs,omitempty"`    // those that run, and the last ones that have ended

	// Counts since the start of what was read; Since is when that is, zero if it is the session's own start.
	Since    time.Time `json:"since,omitzero"`
	Commands int       `json:"commands"`
	Failed   int       `json:"failed,omitempty"`  // commands that did not end with status 0
	Denied   int       `json:"denied,omitempty"`  // by the policy
	Refused  int       `json:"refused,omitempty"` // connections and requests

	Last     string `json:"last,omitempty"`    // the command that began last
	LastEnd  string `json:"lastEnd,omitempty"` // how it has ended, in words; "" while it runs
	LastTone Tone   `json:"lastTone,omitempty"`

	Engine string `json:"-"` // what the engine has said; "" if nothing
	ended  bool   // by the journal
}

// Command is one that runs.
type Command struct {
	ID      string    `json:"id"`
	Mode    string    `json:"mode"` // "command", "terminal", "job", "push", "pull"
	Text    string    `json:"text"`
	Started time.Time `json:"started"`
}

// Job is a command that runs on its own.
type Job struct {
	ID      string    `json:"id"`
	Text    string    `json:"text"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	End     string    `json:"end,omitempty"` // how, in words; "" while it runs
	Tone    Tone      `json:"tone,omitempty"`

	tag string
}

// Bounds of a Summary's lists.
const (
	maxRunning = 32
	maxJobs    = 64
	maxLast    = 200 // bytes of a command's text in a summary
)

// describe takes who a session is, as far as that is known.
func (s *Summary) describe(who journal.Session) {
	take := func(field *string, text string) {
		if text != "" {
			*field = clean(text, nil)
		}
	}
	s.ID = who.ID
	take(&s.Name, who.Name)
	if s.Name == "" {
		s.Name = s.ID[:min(len(s.ID), 13)]
	}
	take(&s.Image, who.Image)
	take(&s.Profile, who.Profile)
	take(&s.Network, who.Network)
	take(&s.Workspace, who.Workspace)
	if s.Created.IsZero() {
		s.Created = who.Created
	}
	if who.Modified.After(s.Active) {
		s.Active = who.Modified
	}
	if s.Active.IsZero() {
		s.Active = who.Created
	}
	if who.Bytes > 0 {
		s.NoJournal = false
	}
}

// state is what the journal and the engine say together.
func (s *Summary) state() State {
	live := len(s.Running) > 0 || slices.ContainsFunc(s.Jobs, func(j Job) bool { return j.Ended.IsZero() })
	switch {
	case s.Engine == "kept":
		return Kept
	case s.Engine == engineGone || s.Engine == "exited" || s.ended && s.Engine == "":
		return Stopped
	case s.Engine == "paused":
		return Paused
	case live:
		return Running
	case s.Engine == "":
		return Unknown
	}
	return Idle
}

// fold is what is remembered between records, to make a summary of them.
type fold struct {
	secrets *sink.Secrets
	running map[string]journal.Record // by id; without jobs
	seen    bool                      // a record was
	last    string                    // id of Summary.Last
}

func newFold(secrets *sink.Secrets) fold {
	return fold{secrets: secrets, running: map[string]journal.Record{}}
}

// add takes a record, and reports whether the engine may know more now: the session has begun or ended.
func (f *fold) add(s *Summary, r journal.Record) (ask bool) {
	if !f.seen && r.Kind != journal.Cut {
		f.seen = true
		if r.Kind != journal.SessionStart && r.Time.Sub(s.Created) > time.Minute {
			s.Since = r.Time
		}
	}
	if r.Time.After(s.Active) {
		s.Active = r.Time
	}
	switch r.Kind {
	case journal.Start:
		f.start(s, r)
	case journal.End:
		f.end(s, r)
	case journal.JobEnd:
		f.jobEnd(s, r)
	case journal.Denied:
		s.Denied++
		f.last, s.Last, s.LastEnd, s.LastTone = r.ID, f.brief(r.Command), "denied", Bad
	case journal.Connection:
		if c := parseConnection(r.Network); !c.Allowed {
			s.Refused += max(1, c.Count)
		}
	case journal.SessionStart:
		s.ended = r.Error != nil
		ask = true
	case journal.SessionStop, journal.Reaped:
		s.ended, ask = true, true
		clear(f.running)
		s.Running = nil
	}
	return ask
}

func (f *fold) brief(text string) string {
	return cut(strings.Join(strings.Fields(clean(text, f.secrets)), " "), maxLast)
}

func (f *fold) start(s *Summary, r journal.Record) {
	s.ended = false
	text := f.brief(r.Command)
	if !transfer(r.Mode) {
		s.Commands++
		f.last, s.Last, s.LastEnd, s.LastTone = r.ID, text, "", Plain
	}
	r.Command = ""
	f.running[r.ID] = r
	if len(s.Running) < maxRunning {
		s.Running = append(slices.Clone(s.Running), Command{ID: r.ID, Mode: r.Mode, Text: text, Started: r.Time})
	}
}

func (f *fold) end(s *Summary, r journal.Record) {
	started := f.running[r.ID]
	delete(f.running, r.ID)
	text := ""
	s.Running = slices.DeleteFunc(slices.Clone(s.Running), func(c Command) bool {
		if c.ID == r.ID {
			text = c.Text
		}
		return c.ID == r.ID
	})
	words, tone := ending(r)
	switch {
	case r.Job != "":
		begun := started.Time
		if begun.IsZero() {
			begun = r.Time
		}
		jobs := slices.Clone(s.Jobs)
		if len(jobs) >= maxJobs {
			at := max(0, slices.IndexFunc(jobs, func(j Job) bool { return !j.Ended.IsZero() }))
			jobs = slices.Delete(jobs, at, at+1)
		}
		s.Jobs = append(jobs, Job{ID: r.Job, tag: r.JobTag, Text: text, Started: begun})
	case tone == Bad && !transfer(started.Mode):
		s.Failed++
	}
	if f.last == r.ID {
		s.LastEnd, s.LastTone = words, tone
	}
}

// jobEnd ends a job. Several processes may record that; the first one counts.
func (f *fold) jobEnd(s *Summary, r journal.Record) {
	jobs := slices.Clone(s.Jobs)
	at := slices.IndexFunc(jobs, func(j Job) bool { return j.Ended.IsZero() && j.ID == r.Job && j.tag == r.JobTag })
	if at < 0 {
		return
	}
	words, tone := ending(r)
	jobs[at].Ended, jobs[at].End, jobs[at].Tone = r.Time, words, tone
	s.Jobs = jobs
	if tone == Bad {
		s.Failed++
	}
}

// bury ends commands whose processes have gone, and returns their ids.
func (f *fold) bury(s *Summary, gone func(writer string) bool) (ids []string) {
	for id, r := range f.running {
		if r.Writer != "" && gone(r.Writer) {
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		delete(f.running, id)
		s.Running = slices.DeleteFunc(slices.Clone(s.Running), func(c Command) bool { return c.ID == id })
		if f.last == id {
			s.LastEnd, s.LastTone = lostWords, Bad
		}
		s.Failed++
	}
	return ids
}

// lostWords are of a command whose process on this machine has gone.
const lostWords = "lost: its process here has gone"

func transfer(mode string) bool { return mode == "push" || mode == "pull" }

// ending says how a command has ended.
func ending(r journal.Record) (words string, tone Tone) {
	switch {
	case r.Error != nil:
		words = cmp.Or(r.Error.Outcome, "failed")
		if r.Error.Cause != "" {
			words += " (" + r.Error.Cause + ")"
		}
		return words, Bad
	case r.Job != "" && r.Kind == journal.End:
		return "goes on as job " + r.Job, Plain
	case r.Code != nil && *r.Code == 0:
		return "exit 0", Good
	case r.Code != nil:
		return "exit " + strconv.Itoa(*r.Code), Bad
	case r.Reason == "copied":
		return "copied", Good
	case r.Reason == "signalled" && r.Signal != 0:
		return "signal " + strconv.Itoa(r.Signal), Bad
	case r.Reason == "":
		return "ended", Plain
	}
	return r.Reason, Bad
}

// Connection is what is shown of a connection, a request or a refused name of a session.
type Connection struct {
	Host     string `json:"host"`
	Port     int    `json:"port,omitempty"`
	Method   string `json:"method,omitempty"`
	Path     string `json:"path,omitempty"`
	Allowed  bool   `json:"allowed"`
	Rule     string `json:"rule,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Why      string `json:"why,omitempty"`
	Ask      string `json:"ask,omitempty"` // the rule that would allow it
	Status   int    `json:"status,omitempty"`
	Sent     int64  `json:"sent"`
	Received int64  `json:"received"`
	Err      string `json:"error,omitempty"`
	Count    int    `json:"count,omitempty"`
}

// decision is the answer to a question about the network, as a journal has it.
type decision struct {
	Connection

	Answer string `json:"answer"`
	By     string `json:"by"`
}

// parseConnection reads what a journal says. What it does not understand is empty.
func parseConnection(raw json.RawMessage) Connection {
	var c Connection
	_ = json.Unmarshal(raw, &c) // of another version of ours
	return c.cleaned(nil)
}

func (c Connection) cleaned(secrets *sink.Secrets) Connection {
	for _, text := range []*string{&c.Host, &c.Method, &c.Path, &c.Rule, &c.Reason, &c.Why, &c.Ask, &c.Err} {
		*text = cut(clean(*text, secrets), maxField)
	}
	return c
}

// maxField bounds the texts of a Connection, in bytes.
const maxField = 1 << 10

// clean makes a text of one piece safe to show, on one or more lines.
func clean(text string, secrets *sink.Secrets) string {
	if plain(text) {
		return secrets.Scrub(text)
	}
	var b strings.Builder
	t := sink.NewSafeText(&b, sink.Text{Return: sink.NewlineReturn, Invisible: sink.ShowInvisible}, secrets)
	_, _ = t.Write([]byte(secrets.Scrub(text))) // a Builder never fails
	_ = t.Close()
	return b.String()
}

// plain reports whether a text is of printable ASCII alone.
func plain(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// cut shortens a text to so many bytes, at a character.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return sink.HeadBytes(text, most) + "…"
}
