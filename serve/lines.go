package serve

import (
	"bufio"
	"errors"
	"io"
)

// MaxLine is the longest line that is read, in bytes. A longer one is passed over
// and answered with an error.
const MaxLine = 16 << 20

// errLongLine is a line that was passed over.
var errLongLine = failure(KindTooLarge, "a line is longer than %d bytes", MaxLine)

// lineReader reads lines. What it keeps in memory is bounded by the longest line
// there was, and by MaxLine.
type lineReader struct{ r *bufio.Reader }

func newLineReader(r io.Reader) *lineReader { return &lineReader{bufio.NewReaderSize(r, 64<<10)} }

// next returns the next line that is not blank, without its end, and io.EOF
// behind the last one. A last line without an end is one too: whoever has sent it
// may have died in the middle of it, so that it is for the parser to judge.
func (l *lineReader) next() ([]byte, error) {
	for {
		line, err := l.line()
		if err == nil && len(line) == 0 {
			continue
		}
		return line, err
	}
}

func (l *lineReader) line() ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := l.r.ReadSlice('\n')
		if long = long || len(line)+len(part) > MaxLine+1; long {
			line = nil
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && (len(line) > 0 || long):
		case err != nil:
			return nil, err
		}
		if long {
			return nil, errLongLine
		}
		return trimmed(line), nil
	}
}

// trimmed is a line without the white space around it.
func trimmed(line []byte) []byte {
	space := func(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
	for len(line) > 0 && space(line[len(line)-1]) {
		line = line[:len(line)-1]
	}
	for len(line) > 0 && space(line[0]) {
		line = line[1:]
	}
	return line
}
