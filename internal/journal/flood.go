package journal

import (
	"bytes"
	"slices"
	"time"
)

// outputKey names a command.
type outputKey struct{ session, id string }

// flood is what a Writer knows of the output of one command that runs.
type flood struct {
	kept    int64 // bytes that were queued as they came
	streams [Terminal + 1]*streamFlood
}

// streamFlood is what is not queued of one stream.
type streamFlood struct {
	skipped int64  // bytes that came since the last record of the stream, those in tail included
	tail    []byte // the last of them
	next    time.Time
	samples int64
}

// What is kept of output that is too much, in bytes.
const (
	tailSize   = 16 << 10 // at the end
	sampleSize = 2 << 10  // of each sample
	// sampleTime is how far the first samples are apart; after 32 of them the next ones are twice as far apart, and
	// so on: an hour of flood has less than 2 MiB of samples.
	sampleTime = 250 * time.Millisecond
	sampleStep = 32
	// samplePause is how long after output that is not queued the Writer looks for samples that are due.
	samplePause = sampleTime
)

// take queues a piece of output, or keeps its end for a sample. It needs mu.
func (w *Writer) take(key outputKey, stream Stream, p []byte) {
	f := w.outputs[key]
	if f == nil {
		f = &flood{}
		w.outputs[key] = f
	}
	s := f.streams[stream]
	size := int64(len(p))
	if s == nil && f.kept+size <= w.opts.Output && w.bytes+size <= w.opts.Queue {
		f.kept += size
		w.chunk(key, stream, p)
		return
	}
	if s == nil {
		s = &streamFlood{}
		f.streams[stream] = s
	}
	if s.skipped == 0 {
		w.flooded++
		w.signal()
	}
	s.keep(p)
}

// keep has the stream's tail end with p.
func (s *streamFlood) keep(p []byte) {
	s.skipped += int64(len(p))
	if len(p) >= tailSize {
		s.tail = append(s.tail[:0], p[len(p)-tailSize:]...)
		return
	}
	if over := len(s.tail) + len(p) - tailSize; over > 0 {
		s.tail = slices.Delete(s.tail, 0, over)
	}
	s.tail = append(s.tail, p...)
}

// chunk queues a piece of output, behind the last one if that is of the same stream and time. It needs mu.
func (w *Writer) chunk(key outputKey, stream Stream, p []byte) {
	now := time.Now()
	if n := len(w.queue); n > 0 {
		last := &w.queue[n-1]
		r := &last.r
		if r.Kind == Output && r.ID == key.id && r.Stream == stream && last.session == key.session && len(r.Data)+len(p) <= maxChunk && now.Sub(r.Time) < batchTime {
			r.Data = append(r.Data, p...)
			last.size += int64(len(p))
			w.bytes += int64(len(p))
			return
		}
	}
	r := Record{Time: now, Kind: Output, ID: key.id, Stream: stream, Data: bytes.Clone(p)}
	w.add(entry{session: key.session, r: r, size: int64(len(p)) + recordSize/8})
}

// sampling reports whether there is output that waits to be sampled.
func (w *Writer) sampling() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flooded > 0
}

// sample queues the samples that are due. It needs mu.
func (w *Writer) sample(now time.Time) {
	if w.flooded == 0 {
		return
	}
	for key, f := range w.outputs {
		for stream, s := range f.streams {
			if s != nil && s.skipped > 0 && !now.Before(s.next) {
				s.samples++
				s.next = now.Add(sampleTime * time.Duration(1+s.samples/sampleStep))
				w.rest(key, Stream(stream), s, sampleSize)
			}
		}
	}
}

// rest queues the end of what was left out of a stream, with what that leaves out. It needs mu.
func (w *Writer) rest(key outputKey, stream Stream, s *streamFlood, most int) {
	data := s.tail
	if len(data) > most {
		data = data[len(data)-most:]
		if i := bytes.IndexByte(data, '\n'); i >= 0 && i < len(data)-1 { // from the start of a line, if one starts there
			data = data[i+1:]
		}
	}
	r := Record{Time: time.Now(), Kind: Output, ID: key.id, Stream: stream, Data: bytes.Clone(data), Skipped: s.skipped - int64(len(data))}
	s.skipped, s.tail = 0, s.tail[:0]
	w.flooded--
	w.add(entry{session: key.session, r: r, size: int64(len(data)) + recordSize/8})
}

// endOutput queues what was left out of a command's output, and forgets the command. It needs mu.
func (w *Writer) endOutput(session, id string) {
	key := outputKey{session, id}
	f := w.outputs[key]
	if f == nil {
		return
	}
	for stream, s := range f.streams {
		if s != nil && s.skipped > 0 {
			w.rest(key, Stream(stream), s, tailSize)
		}
	}
	delete(w.outputs, key)
}
