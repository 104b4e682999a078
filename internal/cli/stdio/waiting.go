package stdio

import (
	"io"
	"sync"
	"time"

	"golang.org/x/term"
)

// Times of a Waiting.
const (
	waitPatience = time.Second            // nothing is shown of what takes less
	waitRedraw   = 200 * time.Millisecond // between two looks at what is to be shown
)

// A Waiting is a line on standard error that says what this process waits for. It is shown on a
// terminal only, after a second, and is gone when the wait is over or something else is printed.
// It may be used concurrently. A nil Waiting shows nothing.
type Waiting struct {
	s    *Streams
	to   io.Writer
	over chan struct{}
	done chan struct{}
	once sync.Once

	mu    sync.Mutex
	text  string // guarded by mu
	shown bool   // guarded by mu; the line is on the terminal now
	ended bool   // guarded by mu
}

// Waiting begins to wait for something, such as "copying the workspace". It returns nil if
// standard error is not a terminal, and while another Waiting is not done. The caller must call
// Done.
func (s *Streams) Waiting(what string) *Waiting {
	if !IsTerminal(s.RawStderr) {
		return nil
	}
	w := &Waiting{s: s, to: Raw(s.Stderr), over: make(chan struct{}), done: make(chan struct{}), text: what}
	if !s.waiting.CompareAndSwap(nil, w) {
		return nil
	}
	go func() {
		defer close(w.done)
		w.run()
	}()
	return w
}

func (w *Waiting) run() {
	next := time.NewTimer(waitPatience)
	defer next.Stop()
	for {
		select {
		case <-w.over:
			return
		case <-next.C:
		}
		w.draw()
		next.Reset(waitRedraw)
	}
}

// Say changes what is shown: what, and how much of it is done.
func (w *Waiting) Say(text string) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = text
}

// Done ends the wait, and removes the line. It may be called more than once.
func (w *Waiting) Done() {
	if w == nil {
		return
	}
	w.once.Do(func() {
		w.mu.Lock()
		w.ended = true
		w.mu.Unlock()
		close(w.over)
		<-w.done
		w.hide()
		w.s.waiting.CompareAndSwap(w, nil)
	})
}

// draw shows the line as it is now.
func (w *Waiting) draw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	text := []rune(w.s.Safe(w.text) + "…")
	if cols := w.width(); len(text) >= cols {
		text = append(text[:max(cols-2, 0)], '…')
	}
	w.shown = true
	_, _ = io.WriteString(w.to, "\r\x1b[K"+string(text))
}

// hide removes the line from the terminal until it is drawn again.
func (w *Waiting) hide() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shown {
		w.shown = false
		_, _ = io.WriteString(w.to, "\r\x1b[K")
	}
}

func (w *Waiting) width() int {
	const usual = 80
	f, ok := w.to.(interface{ Fd() uintptr })
	if !ok {
		return usual
	}
	cols, _, err := term.GetSize(int(f.Fd()))
	if err != nil || cols < 1 {
		return usual
	}
	return cols
}

// unwait removes the line of a wait before something else is printed.
func (s *Streams) unwait() {
	if w := s.waiting.Load(); w != nil {
		w.hide()
	}
}
