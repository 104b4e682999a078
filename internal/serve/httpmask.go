package serve

import (
	"bytes"
	"net/http"
)

// maskedResponse masks the secrets in an answer over HTTP, one line at a time: a
// message, an event with a message, or the text of an error. The handler must call end.
type maskedResponse struct {
	http.ResponseWriter
	mask func(message []byte) []byte
	line []byte // the start of a line
}

// sseData is the prefix of a line with a message: server-sent events, part 9.2.6 of HTML.
var sseData = []byte("data: ")

// Write implements io.Writer.
func (w *maskedResponse) Write(p []byte) (int, error) {
	n := bytes.LastIndexByte(p, '\n') + 1
	if n == 0 {
		w.line = append(w.line, p...)
		return len(p), nil
	}
	var out []byte
	for line := range bytes.Lines(append(w.line, p[:n]...)) {
		out = append(append(out, w.masked(bytes.TrimSuffix(line, []byte{'\n'}))...), '\n')
	}
	w.line = append([]byte(nil), p[n:]...)
	if _, err := w.ResponseWriter.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (w *maskedResponse) masked(line []byte) []byte {
	if message, ok := bytes.CutPrefix(line, sseData); ok {
		return append(bytes.Clone(sseData), w.mask(message)...)
	}
	return w.mask(line)
}

// end writes the last line if it has no line end.
func (w *maskedResponse) end() {
	if len(w.line) > 0 {
		_, _ = w.ResponseWriter.Write(w.masked(w.line)) // an error means that the client has gone
		w.line = nil
	}
}

// Unwrap lets http.ResponseController flush.
func (w *maskedResponse) Unwrap() http.ResponseWriter { return w.ResponseWriter }
