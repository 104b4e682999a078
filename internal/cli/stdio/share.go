package stdio

import (
	"io"
	"os"
	"sync"
)

// Share has what is written to a terminal wait for mu, so that a question on the terminal stays whole. It
// must be called before a command's output is passed on.
func (s *Streams) Share(mu sync.Locker) {
	share := func(w io.Writer) io.Writer {
		if f, ok := w.(*os.File); ok && IsTerminal(f) {
			return &shared{File: f, turn: mu}
		}
		return w
	}
	s.RawStdout, s.RawStderr = share(s.RawStdout), share(s.RawStderr)
	s.Guard(s.kinds)
}

// shared is a terminal that is written to in turns.
type shared struct {
	*os.File

	turn sync.Locker
}

func (w *shared) Write(p []byte) (int, error) {
	w.turn.Lock()
	defer w.turn.Unlock()
	return w.File.Write(p)
}

func (w *shared) WriteString(text string) (int, error) { return w.Write([]byte(text)) }

func (w *shared) ReadFrom(r io.Reader) (int64, error) { return io.Copy(struct{ io.Writer }{w}, r) }
