package watch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/sandboxbash/sandboxbash/internal/journal"
	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/sink"
)

// ItemKind is what an Item is about.
type ItemKind string

// Kinds of items.
const (
	ItemCommand ItemKind = "command" // a command, a terminal or a transfer begins
	ItemOutput  ItemKind = "output"  // of a command
	ItemEnd     ItemKind = "end"     // of a command
	ItemDenied  ItemKind = "denied"  // by the policy
	ItemJob     ItemKind = "job"     // a job has ended
	ItemNetwork ItemKind = "network" // a connection, or an answer to a question about one
	ItemNote    ItemKind = "note"    // anything else about the session, a checkpoint or the journal itself
)

// Item is one thing that a session did. Its texts are safe to show.
type Item struct {
	Seq  int64     `json:"n"`
	Time time.Time `json:"t"`
	Kind ItemKind  `json:"k"`
	ID   string    `json:"id,omitempty"`   // the command that it belongs to
	Mode string    `json:"mode,omitempty"` // of a command
	Text string    `json:"text,omitempty"` // the command, its output, or words
	Dir  string    `json:"dir,omitempty"`  // that a command runs in, if it was named
	Tone Tone      `json:"tone,omitempty"`

	Stderr bool  `json:"err,omitempty"`    // the output is of standard error
	Rewind bool  `json:"rewind,omitempty"` // the output replaces the line of its stream that had not ended
	Ms     int64 `json:"ms,omitempty"`     // how long what has ended took

	Connection *Connection `json:"net,omitempty"`
}

// Terminal is the screen of a terminal.
type Terminal struct {
	ID       string        `json:"id"`
	Command  string        `json:"command"`
	Started  time.Time     `json:"started,omitzero"`
	Cols     int           `json:"cols"`
	Rows     int           `json:"rows"`
	Lines    []string      `json:"lines"`
	Cursor   screen.Cursor `json:"cursor"`
	Title    string        `json:"title,omitempty"`
	End      string        `json:"end,omitempty"`      // how it has ended, in words; "" while it runs
	Unseen   bool          `json:"unseen,omitempty"`   // nothing records what it shows
	Writable bool          `json:"writable,omitempty"` // a process of this machine keeps it: it can be typed into
}

// Bounds of what is kept of a session that a subscriber looks at.
const (
	ringBytes   = 2 << 20 // of items' texts
	ringItems   = 20_000
	netItems    = 1000
	maxCommand  = 16 << 10 // bytes of a command's text
	maxTerminal = 16       // terminals; of more, those that have ended first go
	itemBytes   = 128      // that an item takes besides its text, about
)

// ring is the last items of a sequence.
type ring struct {
	items []Item
	bytes int
	drops int64 // Seq of the last item that was dropped; 0: none was
}

func (r *ring) add(i Item, mostItems, mostBytes int) {
	r.items = append(r.items, i)
	r.bytes += len(i.Text) + itemBytes
	drop := 0
	for r.bytes > mostBytes && drop < len(r.items)-1 || len(r.items)-drop > mostItems {
		r.bytes -= len(r.items[drop].Text) + itemBytes
		r.drops = r.items[drop].Seq
		drop++
	}
	if drop > 0 {
		r.items = slices.Delete(r.items, 0, drop)
	}
}

// after returns the items behind one, and whether some between are gone.
func (r *ring) after(seq int64) (items []Item, gap bool) {
	at, _ := slices.BinarySearchFunc(r.items, seq+1, func(i Item, seq int64) int { return int(i.Seq - seq) })
	return slices.Clone(r.items[at:]), r.drops > seq
}

// detail is what a session does, for those that look at it. All fields but reader are guarded by Hub.mu.
type detail struct {
	epoch   string // tells it from an earlier detail of the same session
	reader  *journal.Reader
	secrets *sink.Secrets

	seq      int64
	ring     ring // what is told in the order of its time
	network  ring
	texts    map[textKey]*liveText
	began    map[string]journal.Record // commands that run
	screens  map[string]*shown         // terminals, by id
	order    []string                  // of screens
	changes  int64                     // counts changes of screens
	unfollow func()                    // ends what asks for the screens of others
	asked    chan struct{}             // a token: a terminal has begun
}

type textKey struct {
	id     string
	stderr bool
}

// shown is a terminal of a detail.
type shown struct {
	t       Terminal
	term    *screen.Screen // nil: its lines come from elsewhere
	version int64
}

func newDetail(secrets *sink.Secrets) *detail {
	return &detail{
		epoch: uuid.NewString(), secrets: secrets, texts: map[textKey]*liveText{}, began: map[string]journal.Record{}, screens: map[string]*shown{},
		unfollow: func() {}, asked: make(chan struct{}, 1),
	}
}

// close lets go of the journal. It is called by Run, or after it.
func (d *detail) close() {
	if d.reader != nil {
		_ = d.reader.Close()
		d.reader = nil
	}
	d.unfollow()
}

func (d *detail) put(i Item) {
	d.seq++
	i.Seq = d.seq
	if i.Kind == ItemNetwork {
		d.network.add(i, netItems, ringBytes)
		return
	}
	d.ring.add(i, ringItems, ringBytes)
}

// add takes a record.
func (d *detail) add(r journal.Record) {
	i := Item{Time: r.Time, ID: r.ID}
	switch r.Kind {
	case journal.Output:
		d.output(i, r)
	case journal.Start:
		d.start(i, r)
	case journal.End:
		d.end(i, r)
	case journal.Resize:
		if s := d.screens[r.ID]; s != nil && s.term != nil {
			s.term.Resize(screen.Size{Cols: r.Cols, Rows: r.Rows})
			d.touch(s)
		}
	case journal.Denied:
		i.Kind, i.Text, i.Tone = ItemDenied, d.command(r), Bad
		if p := r.Policy; p != nil {
			i.Dir = "" // it did not run anywhere
			d.put(i)
			i = Item{Time: r.Time, ID: r.ID, Kind: ItemEnd, Tone: Bad, Text: d.clean(denial(p.Verdict, p.Rule, p.Reason))}
		}
		d.put(i)
	case journal.JobEnd:
		words, tone := ending(r)
		i.Kind, i.Text, i.Tone = ItemJob, "job "+d.clean(r.Job)+": "+words, tone
		d.put(i)
	case journal.Connection:
		c := parseConnection(r.Network).cleaned(d.secrets)
		i.Kind, i.Connection = ItemNetwork, &c
		d.put(i)
	case journal.Answer:
		d.answer(i, r.Network)
	default:
		if i.Text, i.Tone = d.note(r); i.Text != "" {
			i.Kind = ItemNote
			d.put(i)
		}
	}
}

func (d *detail) clean(text string) string { return clean(text, d.secrets) }

func (d *detail) command(r journal.Record) string {
	text := cut(d.clean(r.Command), maxCommand)
	if r.Mode == "push" || r.Mode == "pull" {
		return r.Mode + " " + text
	}
	return text
}

func denial(verdict, rule, reason string) string {
	words := "denied"
	if rule != "" {
		words += " by " + rule
	}
	if reason != "" {
		words += ": " + reason
	} else if verdict != "" && verdict != "deny" {
		words += ": " + verdict
	}
	return words
}

func (d *detail) start(i Item, r journal.Record) {
	i.Kind, i.Mode, i.Text, i.Dir = ItemCommand, r.Mode, d.command(r), d.clean(r.Dir)
	d.put(i)
	d.began[r.ID] = journal.Record{Time: r.Time, Mode: r.Mode}
	if r.Mode != "terminal" {
		return
	}
	size := screen.Size{Cols: r.Cols, Rows: r.Rows}
	s := &shown{term: screen.New(size), t: Terminal{ID: r.ID, Command: cut(strings.Join(strings.Fields(i.Text), " "), maxLast), Started: r.Time, Unseen: true}}
	d.show(s)
	signal(d.asked)
}

// show adds a terminal.
func (d *detail) show(s *shown) {
	if d.screens[s.t.ID] == nil {
		d.order = append(d.order, s.t.ID)
	}
	d.screens[s.t.ID] = s
	d.touch(s)
	for len(d.order) > maxTerminal {
		at := max(0, slices.IndexFunc(d.order, func(id string) bool { return d.screens[id].t.End != "" }))
		delete(d.screens, d.order[at])
		d.order = slices.Delete(d.order, at, at+1)
	}
}

func (d *detail) touch(s *shown) {
	d.changes++
	s.version = d.changes
}

func (d *detail) output(i Item, r journal.Record) {
	if r.Skipped > 0 {
		d.put(Item{Time: r.Time, ID: r.ID, Kind: ItemNote, Tone: Warning, Text: "… " + sink.FormatBytes(r.Skipped) + " of output left out here …"})
	}
	if len(r.Data) == 0 {
		return
	}
	if r.Stream == journal.Terminal {
		if s := d.screens[r.ID]; s != nil && s.term != nil {
			_, _ = s.term.Write(r.Data) // never fails
			_ = s.term.Replies()        // they are not needed: the program has had its answers
			s.t.Unseen = false
			d.touch(s)
		}
		return
	}
	key := textKey{r.ID, r.Stream == journal.Stderr}
	t := d.texts[key]
	if t == nil {
		t = newLiveText(d.secrets)
		d.texts[key] = t
	}
	t.write(r.Data)
	d.putText(i, key, t.take)
}

func (d *detail) putText(i Item, key textKey, take func() (string, bool)) {
	i.Kind, i.Stderr = ItemOutput, key.stderr
	if i.Text, i.Rewind = take(); i.Text != "" || i.Rewind {
		d.put(i)
	}
}

func (d *detail) end(i Item, r journal.Record) {
	for _, stderr := range []bool{false, true} {
		key := textKey{r.ID, stderr}
		if t := d.texts[key]; t != nil {
			d.putText(Item{Time: r.Time, ID: r.ID}, key, t.end)
			delete(d.texts, key)
		}
	}
	i.Kind = ItemEnd
	i.Text, i.Tone = ending(r)
	if r.Error != nil && r.Error.Message != "" {
		i.Text += ": " + d.clean(r.Error.Message)
	}
	if began, ok := d.began[r.ID]; ok {
		i.Ms = max(0, r.Time.Sub(began.Time).Milliseconds())
		i.Mode = began.Mode
		delete(d.began, r.ID)
	}
	if s := d.screens[r.ID]; s != nil {
		s.t.End = i.Text
		d.touch(s)
	}
	d.put(i)
}

// lost ends commands whose processes have gone.
func (d *detail) lost(ids []string) {
	for _, id := range ids {
		if _, runs := d.began[id]; runs {
			d.end(Item{Time: time.Now(), ID: id}, journal.Record{ID: id, Time: time.Now(), Reason: lostWords})
		}
	}
}

func (d *detail) answer(i Item, raw json.RawMessage) {
	var a decision
	_ = json.Unmarshal(raw, &a) // of another version of ours
	c := a.Connection.cleaned(d.secrets)
	c.Allowed = a.Answer != "deny" && a.Answer != "no" && a.Answer != ""
	i.Kind, i.Connection, i.Tone = ItemNetwork, &c, Good
	if !c.Allowed {
		i.Tone = Bad
	}
	i.Text = d.clean("answer of " + a.By + ": " + a.Answer)
	d.put(i)
}

// note says in words what has no item of its own.
func (d *detail) note(r journal.Record) (text string, tone Tone) {
	switch r.Kind { //nolint:exhaustive // the others have items of their own
	case journal.SessionStart:
		if r.Error != nil {
			return "the session did not start: " + d.clean(r.Error.Message), Bad
		}
		return "the session has started", Quiet
	case journal.SessionStop:
		return "the session was stopped", Quiet
	case journal.Reaped:
		return "the session has ended, and its remains were removed", Quiet
	case journal.Checkpoint:
		var c struct{ Action, Name string }
		_ = json.Unmarshal(r.Checkpoint, &c) // of another version of ours
		return d.clean(strings.TrimSpace("checkpoint " + c.Name + " " + c.Action)), Quiet
	case journal.Lost:
		return "the journal lacks " + strconv.FormatInt(r.Lost, 10) + " records here: they could not be written", Warning
	case journal.Torn:
		return fmt.Sprintf("%s of the journal could not be read here", sink.FormatBytes(r.Bytes)), Warning
	case journal.Cut:
		return "what was before is not in the journal any more", Warning
	}
	return "", Plain
}
