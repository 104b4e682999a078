package journal

import (
	"cmp"
	"sync"
	"time"
)

// Options of a Writer. Zero values are defaults.
type Options struct {
	// SessionBytes bounds the journal of one session; 0: 64 MiB. At the limit the oldest segment is removed.
	SessionBytes int64
	// SegmentBytes is the size at which the next segment begins; 0: an eighth of SessionBytes.
	SegmentBytes int64
	// Output is how many bytes of one command's output are kept whole; 0: 1 MiB. After that the journal has a sample of
	// it four times a second, less often the longer it lasts, and its last 16 KiB.
	Output int64
	// Queue is how many bytes wait to be written at most; 0: 4 MiB.
	Queue int64
	// Patience is how long one attempt to write waits for another process; 0: 2 s.
	Patience time.Duration
	// Writer returns the text that identifies this process in Record.Writer. It is called once, when it is needed;
	// nil: there is none.
	Writer func() string
	// Failed, if not nil, is called with the first error of writing, and not again.
	Failed func(error)
}

func (o Options) withDefaults() Options {
	o.SessionBytes = cmp.Or(o.SessionBytes, 64<<20)
	o.SegmentBytes = cmp.Or(o.SegmentBytes, o.SessionBytes/8)
	o.Output = cmp.Or(o.Output, 1<<20)
	o.Queue = cmp.Or(o.Queue, 4<<20)
	o.Patience = cmp.Or(o.Patience, 2*time.Second)
	return o
}

// Writer appends to the journals of any number of sessions. It is safe for concurrent use, and its methods but Close
// return at once, whatever the disk does.
type Writer struct {
	dir  string
	opts Options

	mu      sync.Mutex
	queue   []entry              // guarded by mu
	bytes   int64                // guarded by mu; about as many as the queue has
	lost    map[string]int64     // guarded by mu; records that did not fit, by session
	about   map[string]*Session  // guarded by mu; what Describe said
	outputs map[outputKey]*flood // guarded by mu; by commands that run
	flooded int                  // guarded by mu; how many of outputs have something to sample
	closed  bool                 // guarded by mu
	running bool                 // guarded by mu; the goroutine has been started

	wake chan struct{} // a token: there is something in the queue
	end  chan struct{} // closed by Close
	done chan struct{} // closed when the goroutine has ended

	// What follows belongs to the goroutine.
	open   map[string]*appender
	writer string
	asked  bool // Options.Writer has been
	failed bool // Options.Failed has been
}

// entry is a record in the queue.
type entry struct {
	session string
	r       Record
	fill    func(*Record) // nil: it is complete
	size    int64
}

// Times and sizes of the queue.
const (
	// batchTime is how long after a batch the next one is written at the earliest: output that comes in small
	// pieces becomes records of some size.
	batchTime = 25 * time.Millisecond
	// maxChunk is the size in bytes up to which pieces of output are put together.
	maxChunk = 64 << 10
	// recordSize stands for the size of a record that is not complete yet, in bytes.
	recordSize = 1 << 10
	// closeTime is how long Close waits.
	closeTime = 2 * time.Second
	// maxOpen is how many journals are kept open; a server has many sessions.
	maxOpen = 64
)

// NewWriter returns a Writer of the journals in dir. It touches no file before there is something to write.
func NewWriter(dir string, o Options) *Writer {
	return &Writer{
		dir: dir, opts: o.withDefaults(), lost: map[string]int64{}, about: map[string]*Session{}, outputs: map[outputKey]*flood{},
		wake: make(chan struct{}, 1), end: make(chan struct{}), done: make(chan struct{}), open: map[string]*appender{},
	}
}

// Describe says who a session is. What it says is written once, with the next record.
func (w *Writer) Describe(session string, who func() Session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.about[session] != nil {
		return
	}
	s := who()
	s.ID = session
	w.about[session] = &s
}

// Put adds a record. If fill is not nil it is called later, with the record, and completes it.
func (w *Writer) Put(session string, r Record, fill func(*Record)) {
	if r.Time.IsZero() {
		r.Time = time.Now()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || !validSession(session) {
		return
	}
	if r.Kind == End || r.Kind == JobEnd {
		w.endOutput(session, r.ID)
	}
	size := int64(recordSize + len(r.Command))
	// Records have room behind the output that fills the queue.
	if w.bytes+size > w.opts.Queue+w.opts.Queue/4 {
		w.lost[session]++
		return
	}
	w.add(entry{session: session, r: r, fill: fill, size: size})
}

// Output adds a piece of a command's output. It does not keep p.
func (w *Writer) Output(session, id string, stream Stream, p []byte) {
	if len(p) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || !validSession(session) {
		return
	}
	w.take(outputKey{session, id}, stream, p)
}

// add needs mu.
func (w *Writer) add(e entry) {
	w.queue = append(w.queue, e)
	w.bytes += e.size
	w.signal()
}

// signal needs mu.
func (w *Writer) signal() {
	if !w.running {
		w.running = true
		go w.run()
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Close writes what waits, for 2 s at most, and lets go of the files. What is put later is dropped.
func (w *Writer) Close() {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	for key := range w.outputs { // commands that have not ended here
		w.endOutput(key.session, key.id)
	}
	w.closed = true
	running := w.running
	close(w.end)
	w.mu.Unlock()
	if !running {
		return
	}
	late := time.NewTimer(closeTime)
	defer late.Stop()
	select {
	case <-w.done:
	case <-late.C: // the disk does not answer; the process ends without it
	}
}

// run writes batches until Close.
func (w *Writer) run() {
	defer close(w.done)
	defer func() {
		for _, a := range w.open {
			a.close()
		}
	}()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		var sample <-chan time.Time
		if w.sampling() {
			pause.Reset(samplePause)
			sample = pause.C
		}
		select {
		case <-w.wake:
		case <-sample:
		case <-w.end:
			w.flush()
			return
		}
		w.flush()
		pause.Reset(batchTime)
		select {
		case <-pause.C:
		case <-w.end:
		}
	}
}

// flush writes what is in the queue.
func (w *Writer) flush() {
	w.mu.Lock()
	w.sample(time.Now())
	queue, lost := w.queue, w.lost
	w.queue, w.bytes, w.lost = nil, 0, map[string]int64{}
	about := map[string]*Session{}
	for _, e := range queue {
		about[e.session] = w.about[e.session]
	}
	for session := range lost {
		about[session] = w.about[session]
	}
	w.mu.Unlock()
	for session, who := range about {
		w.write(session, who, queue, lost[session])
	}
}

// write writes what a batch has for one session.
func (w *Writer) write(session string, who *Session, queue []entry, lost int64) {
	var frames []byte
	var records int64
	ended := false
	var err error
	if lost > 0 {
		frames, _ = appendRecord(frames, &Record{Time: time.Now().UTC(), Kind: Lost, Lost: lost})
	}
	for _, e := range queue {
		if e.session != session {
			continue
		}
		w.complete(&e)
		before := len(frames)
		if frames, err = appendRecord(frames, &e.r); err != nil {
			frames = frames[:before]
			lost++
			w.fail(err)
			continue
		}
		records++
		ended = ended || e.r.Kind == SessionStop || e.r.Kind == Reaped
	}
	if len(frames) == 0 {
		return
	}
	if err := w.appender(session).append(w.dir, who, frames); err != nil {
		w.fail(err)
		w.mu.Lock()
		w.lost[session] += lost + records // told with the next batch that can be written
		w.mu.Unlock()
	}
	if ended {
		w.forget(session)
	}
}

// forget lets go of the journal of a session that has ended.
func (w *Writer) forget(session string) {
	if a := w.open[session]; a != nil {
		a.close()
		delete(w.open, session)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.about, session)
	delete(w.lost, session)
}

// complete fills in a record.
func (w *Writer) complete(e *entry) {
	if e.fill != nil {
		e.fill(&e.r)
	}
	e.r.Time = e.r.Time.UTC()
	if len(e.r.Command) > MaxCommand {
		e.r.Command = e.r.Command[:MaxCommand]
	}
	if e.r.Kind != Start || w.opts.Writer == nil {
		return
	}
	if !w.asked {
		w.asked, w.writer = true, w.opts.Writer()
	}
	e.r.Writer = w.writer
}

// appender returns the open journal of a session.
func (w *Writer) appender(session string) *appender {
	if a := w.open[session]; a != nil {
		return a
	}
	if len(w.open) >= maxOpen {
		for id, a := range w.open { // any: opening one again costs little
			a.close()
			delete(w.open, id)
			break
		}
	}
	a := &appender{session: session, opts: &w.opts}
	w.open[session] = a
	return a
}

// fail reports the first error.
func (w *Writer) fail(err error) {
	if w.failed || w.opts.Failed == nil {
		return
	}
	w.failed = true
	w.opts.Failed(err)
}
