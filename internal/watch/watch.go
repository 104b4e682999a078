// Package watch follows the journals of sessions, and keeps what a person who watches sees of them: a summary of each
// session and, of those that a subscriber looks at, what they do, as text that is safe to show.
//
// A Hub reads. Any number of Subscriptions ask it what is new to them; a Hub keeps no queue for any of them. What a session
// did last is in a ring of bounded size: a subscriber who comes too late for a part of it learns that a part is gone,
// and slows neither the Hub nor the others.
//
//	journals ─ Hub ─┬─ summaries of all sessions            ─┐
//	                └─ Detail of each that is looked at      ├─ Subscription.Next
//	                     items, connections, screens        ─┘
//
// Nothing works while nothing happens: a Hub waits for changes of files. Only while a command runs does it look, now and
// then, whether the process that runs it is still there.
package watch

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/journal"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Options of a Hub. Only Dir is required.
type Options struct {
	Dir *journal.Dir
	// Secrets are masked once more in what is shown: removing escape sequences can join the parts of one.
	Secrets *sink.Secrets
	// Known returns the sessions that an engine has; nil: only the journals say what there is. It is called when a Hub
	// begins, when a session begins or ends, and by Refresh, never while nothing happens.
	Known func(ctx context.Context) ([]Known, error)
	// Gone reports whether a process certainly has ended: the argument is journal.Record.Writer. nil: it is not asked.
	Gone func(writer string) bool
	// Terminals are those whose screens can be asked for; nil: only the journals have screens.
	Terminals Terminals
}

// Known is what an engine says of a session.
type Known struct {
	Session journal.Session
	State   string // "running", "paused", "kept" or "exited"
}

// Times and sizes.
const (
	// summaryPause is how long changes of sessions that no subscriber looks at are gathered.
	summaryPause = 400 * time.Millisecond
	// goneTime is how often processes that run commands are looked for.
	goneTime = 10 * time.Second
	// knownTime is how long one question to the engine may take, and knownPause what is between two of them at least.
	knownTime  = 15 * time.Second
	knownPause = time.Second
	// summaryBytes bounds what is read of the journals of all sessions at the start. The others show who they are; more
	// is read when a subscriber looks at them.
	summaryBytes = 128 << 20
	summaryTail  = 1 << 10 // the current segment, of each
	// detailTail is how much is read of a journal when a subscriber looks at a session, in bytes.
	detailTail = 2 << 20
	// turn is how many records of one session are read before the next session's turn.
	turn  = 2000
	turns = 8
)

// Hub follows the journals. It is safe for concurrent use.
type Hub struct {
	opts  Options
	wake  chan struct{} // a token: focus or asked has changed
	ready chan struct{} // closed when the summaries have been read

	mu       sync.Mutex
	version  int64                      // guarded by mu; counts changes
	sessions map[string]*session        // guarded by mu
	subs     map[*Subscription]struct{} // guarded by mu
	asked    bool                       // guarded by mu; the engine is to be asked
	asking   bool                       // guarded by mu
	problem  string                     // guarded by mu; why the engine does not say, "" if it does
	told     int64                      // guarded by mu; version of problem

	dirtyMu sync.Mutex
	dirty   map[string]bool // guarded by dirtyMu; journals that have changed
	all     bool            // guarded by dirtyMu; any may have
	changes chan struct{}   // a token: dirty has
}

// session is one of a Hub's.
type session struct {
	id      string
	summary Summary         // guarded by Hub.mu
	version int64           // guarded by Hub.mu; when summary changed last
	fold    fold            // guarded by Hub.mu
	detail  *detail         // guarded by Hub.mu; nil: no subscriber looks at it
	looking int             // guarded by Hub.mu; subscriptions that look at it
	reader  *journal.Reader // of the summary; for Run alone
	watched bool            // for Run alone
}

// New returns a Hub, which does nothing before Run.
func New(o Options) *Hub {
	return &Hub{
		opts: o, wake: make(chan struct{}, 1), ready: make(chan struct{}), changes: make(chan struct{}, 1),
		sessions: map[string]*session{}, subs: map[*Subscription]struct{}{}, dirty: map[string]bool{},
	}
}

// Ready returns a channel that is closed when the Hub has read what there was when it began.
func (h *Hub) Ready() <-chan struct{} { return h.ready }

// Run follows the journals until ctx ends; the error is then nil. It may be called once.
func (h *Hub) Run(ctx context.Context) error {
	w, err := h.opts.Dir.Watch()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	var failed error // of listen
	defer func() {
		cancel()
		_ = w.Close()
		helpers.Wait()
		h.close()
	}()
	helpers.Go(func() {
		defer cancel()
		if err := h.listen(ctx, w); ctx.Err() == nil {
			failed = err
		}
	})
	r := &run{Hub: h, watch: w, helpers: &helpers}
	if err := r.begin(); err != nil {
		return err
	}
	close(h.ready)
	h.Refresh()
	r.follow(ctx)
	cancel()
	_ = w.Close()
	helpers.Wait()
	return failed
}

// listen notes which journals have changed.
func (h *Hub) listen(ctx context.Context, w *journal.Watch) error {
	for {
		ids, all, err := w.Wait(ctx)
		if err != nil {
			return err
		}
		h.dirtyMu.Lock()
		for _, id := range ids {
			h.dirty[id] = true
		}
		h.all = h.all || all
		h.dirtyMu.Unlock()
		signal(h.changes)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// close lets go of the readers.
func (h *Hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.sessions {
		if s.reader != nil {
			_ = s.reader.Close()
		}
		if s.detail != nil {
			s.detail.close()
		}
	}
}

// Refresh asks the engine which sessions there are.
func (h *Hub) Refresh() {
	h.mu.Lock()
	h.asked = h.opts.Known != nil
	h.mu.Unlock()
	signal(h.wake)
}

// run is one Run of a Hub.
type run struct {
	*Hub

	watch   *journal.Watch
	helpers *sync.WaitGroup
	last    time.Time // when the engine was asked last
}

// begin reads the summaries of the sessions that there are, those that were active last first.
func (r *run) begin() error {
	list, err := r.opts.Dir.Sessions()
	if err != nil {
		return err
	}
	budget := int64(summaryBytes)
	for _, who := range slices.Backward(list) {
		s := r.add(who)
		if budget -= who.Bytes; budget > 0 {
			r.look(s)
			for r.read(s) {
			}
		}
	}
	return nil
}

// add notes a session that is not known yet.
func (h *Hub) add(who journal.Session) *session {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.sessions[who.ID]
	if s == nil {
		s = &session{id: who.ID, fold: newFold(h.opts.Secrets)}
		h.sessions[who.ID] = s
	}
	s.summary.describe(who)
	h.changed(s)
	return s
}

// changed notes a change of a session's summary, and tells subscribers. It needs mu.
func (h *Hub) changed(s *session) {
	h.version++
	s.version = h.version
	for sub := range h.subs {
		signal(sub.changed)
	}
}

// look begins to watch a journal.
func (r *run) look(s *session) {
	if s.watched {
		return
	}
	if err := r.watch.Add(s.id); err != nil {
		return // it has gone
	}
	s.watched = true
	if s.reader != nil {
		return
	}
	reader, err := r.opts.Dir.Tail(s.id, summaryTail)
	if err != nil {
		return
	}
	s.reader = reader
}

// read reads what is new of a session's journal for its summary, and reports whether there is more.
func (r *run) read(s *session) (more bool) {
	if s.reader == nil {
		return false
	}
	records, err := next(s.reader)
	if len(records) == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range records {
		if s.fold.add(&s.summary, rec) {
			r.asked = r.opts.Known != nil
		}
	}
	r.changed(s)
	return err == nil
}

// next returns the next records of a journal, a turn at most. The error is io.EOF if there is no more at the moment.
func next(from *journal.Reader) (records []journal.Record, err error) {
	for len(records) < turn {
		rec, err := from.Next()
		if err != nil {
			return records, err
		}
		records = append(records, rec)
	}
	return records, nil
}

// follow reads what is new until ctx ends.
func (r *run) follow(ctx context.Context) {
	var due, gone <-chan time.Time // nil: nothing waits
	waiting := map[string]bool{}   // sessions whose summaries have changed
	for {
		r.focus(ctx)
		r.ask(ctx)
		if gone == nil && r.opts.Gone != nil && r.runs() {
			gone = time.After(goneTime)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-r.changes:
			for _, id := range r.take() {
				waiting[id] = true
			}
			if due == nil && len(waiting) > 0 {
				due = time.After(summaryPause)
			}
		case <-due:
			due = nil
			for id := range maps.Clone(waiting) {
				if !r.readNamed(id) {
					delete(waiting, id)
				}
			}
			if len(waiting) > 0 {
				due = time.After(0)
			}
		case <-gone:
			gone = nil
			r.buryGone()
		}
	}
}

// take returns the journals that have changed, and reads those that a subscriber looks at.
func (r *run) take() []string {
	r.dirtyMu.Lock()
	dirty, all := r.dirty, r.all
	r.dirty, r.all = map[string]bool{}, false
	r.dirtyMu.Unlock()
	if all {
		if list, err := r.opts.Dir.Sessions(); err == nil {
			for _, who := range list {
				dirty[who.ID] = true
			}
		}
	}
	for id := range dirty {
		if d := r.detailOf(id); d != nil {
			for n := 0; r.readDetail(id, d); n++ {
				if n == turns { // the others have their turn, too
					r.dirtyMu.Lock()
					r.dirty[id] = true
					r.dirtyMu.Unlock()
					signal(r.changes)
					break
				}
			}
		}
	}
	return slices.Collect(maps.Keys(dirty))
}

// readNamed reads the summary of a session, which may be new. It reports whether there is more.
func (r *run) readNamed(id string) (more bool) {
	r.mu.Lock()
	s := r.sessions[id]
	unknown := s == nil || s.summary.NoJournal || s.summary.Created.IsZero()
	r.mu.Unlock()
	if unknown {
		who, err := r.opts.Dir.Session(id)
		if err != nil {
			if s != nil && errors.Is(err, fs.ErrNotExist) {
				r.forget(s)
			}
			return false
		}
		s = r.add(who)
	}
	r.look(s)
	return r.read(s)
}

// forget notes that a journal was removed.
func (r *run) forget(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.reader != nil {
		_ = s.reader.Close()
		s.reader = nil
	}
	s.watched = false
}

// runs reports whether a command seems to run.
func (h *Hub) runs() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.sessions {
		if len(s.fold.running) > 0 {
			return true
		}
	}
	return false
}

// buryGone ends commands whose processes have gone without a word.
func (h *Hub) buryGone() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.sessions {
		ids := s.fold.bury(&s.summary, h.opts.Gone)
		if len(ids) == 0 {
			continue
		}
		if s.detail != nil {
			s.detail.lost(ids)
		}
		h.changed(s)
	}
}

// ask asks the engine, if that is wanted.
func (r *run) ask(ctx context.Context) {
	r.mu.Lock()
	start := r.asked && !r.asking
	if start {
		r.asked, r.asking = false, true
	}
	r.mu.Unlock()
	if !start {
		return
	}
	pause := max(0, knownPause-time.Since(r.last))
	r.last = time.Now().Add(pause)
	r.helpers.Go(func() {
		defer signal(r.wake)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		asking, cancel := context.WithTimeout(ctx, knownTime)
		defer cancel()
		list, err := r.opts.Known(asking)
		r.known(list, err)
	})
}

// known takes what the engine has said.
func (h *Hub) known(list []Known, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asking = false
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	if problem != h.problem {
		h.version++
		h.problem, h.told = problem, h.version
		for sub := range h.subs {
			signal(sub.changed)
		}
	}
	if err != nil {
		return
	}
	states := map[string]string{}
	for _, k := range list {
		states[k.Session.ID] = k.State
		s := h.sessions[k.Session.ID]
		if s == nil {
			s = &session{id: k.Session.ID, fold: newFold(h.opts.Secrets)}
			s.summary.NoJournal = true
			h.sessions[k.Session.ID] = s
		}
		was := s.summary
		s.summary.describe(k.Session)
		if s.summary.Engine != k.State || was.Name != s.summary.Name {
			s.summary.Engine = k.State
			h.changed(s)
		}
	}
	for id, s := range h.sessions {
		if states[id] == "" && s.summary.Engine != engineGone {
			s.summary.Engine = engineGone
			h.changed(s)
		}
	}
}
