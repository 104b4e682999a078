package serve

import (
	"bufio"
	"errors"
	"io"
)

// MaxLine is the length of the longest line that is read, in bytes. A longer one is
// skipped and answered with an error.
const MaxLine = 16 << 20

// errLongLine is returned for a line that was skipped.
var errLongLine = failure(KindTooLarge, "a line is longer than %d bytes", MaxLine)

// lineReader reads lines. It keeps no more than the longest line so far in memory, and at
// most MaxLine bytes.
type lineReader struct{ r *bufio.Reader }

func newLineReader(r io.Reader) *lineReader { return &lineReader{bufio.NewReaderSize(r, 64<<10)} }

// next returns the next line that is not blank, without its end, and io.EOF after the
// last one. A last line without an end counts as well. Its sender may have died in the
// middle of it, so the parser has to check it.
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

// trimmed returns a line without the white space around it.
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
