package watch

import (
	"bytes"

	"github.com/sandboxbash/sandboxbash/sink"
)

// liveText turns a stream of output into text that can be shown while it arrives: also a line that has not ended
// yet, such as a prompt. A carriage return starts the line again, so that progress takes one line.
type liveText struct {
	safe   *sink.SafeText
	buf    []byte // text since the last take
	rewind bool   // buf replaces the line that had not ended at the last take
	cr     bool   // the last byte was a carriage return, which has had no effect yet
}

func newLiveText(secrets *sink.Secrets) *liveText {
	t := &liveText{}
	t.safe = sink.NewSafeText((*liveBuffer)(t), sink.Text{Invisible: sink.ShowInvisible}, secrets)
	return t
}

// liveBuffer is where the safe text of a liveText goes.
type liveBuffer liveText

func (b *liveBuffer) Write(p []byte) (int, error) {
	b.buf = append(b.buf, p...)
	return len(p), nil
}

func (t *liveText) write(p []byte) {
	for len(p) > 0 {
		if t.cr && p[0] != '\r' {
			t.cr = false
			if p[0] != '\n' {
				t.back()
			}
		}
		at := bytes.IndexByte(p, '\r')
		if at < 0 {
			_, _ = t.safe.Write(p) // a buffer never fails
			return
		}
		_, _ = t.safe.Write(p[:at])
		t.cr, p = true, p[at+1:]
	}
}

// back goes to the start of the line.
func (t *liveText) back() {
	at := bytes.LastIndexByte(t.buf, '\n')
	t.buf = t.buf[:at+1]
	if at < 0 {
		t.rewind = true
	}
}

// take returns the text since the last take, and whether it replaces the line that had not ended then.
func (t *liveText) take() (text string, rewind bool) {
	text, rewind = string(t.buf), t.rewind
	t.buf, t.rewind = t.buf[:0], false
	if cap(t.buf) > maxText {
		t.buf = nil
	}
	return text, rewind
}

// maxText is the size in bytes up to which buffers are kept.
const maxText = 256 << 10

// end returns what was held back.
func (t *liveText) end() (text string, rewind bool) {
	_ = t.safe.Close() // a buffer never fails
	return t.take()
}
