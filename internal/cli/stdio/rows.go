package stdio

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
)

// MaxRow bounds a line of input: the longest script that is looked at, with every
// byte of it escaped, and much beyond.
const MaxRow = 64 << 20 // bytes

// InputLine is a line of standard input, or why there is none.
type InputLine struct {
	number int // from 1
	Text   []byte
	Err    error // errLongRow: this line is left out; any other: there are no more
}

var errLongRow = fmt.Errorf("it is longer than %d bytes", MaxRow)

// Fault says what is wrong with the line.
func (l InputLine) Fault(err error) string { return fmt.Sprintf("line %d: %v", l.number, err) }

// AnswerRows answers each line of standard input that is not blank with one, in
// order, as soon as it is there. A line of which answer says that it was not ok
// makes the exit status that of wrong use, at the end.
func (s *Streams) AnswerRows(ctx context.Context, what string, answer func(InputLine) (answer any, ok bool)) error {
	lines := make(chan InputLine)
	done := make(chan struct{})
	defer close(done)
	go readLines(s.Stdin, lines, done) // a terminal's read does not end with ctx; the process does
	failed := false
	for {
		var line InputLine
		select {
		case line = <-lines:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		switch {
		case line.Err == io.EOF: //nolint:errorlint // readLines does not wrap it
			if failed {
				return exit.StatusError(exit.Usage)
			}
			return nil
		case errors.Is(line.Err, errLongRow):
		case line.Err != nil:
			return fmt.Errorf("read %s from standard input: %w", what, line.Err)
		case len(bytes.TrimSpace(line.Text)) == 0:
			continue
		}
		row, ok := answer(line)
		failed = failed || !ok
		if err := PrintJSON(s.Stdout, row); err != nil {
			return err
		}
	}
}

// readLines sends lines until there is an error or the receiver has gone.
func readLines(r io.Reader, lines chan<- InputLine, done <-chan struct{}) {
	in := bufio.NewReaderSize(r, 64<<10)
	for n := 1; ; n++ {
		line := readLine(in)
		line.number = n
		select {
		case lines <- line:
		case <-done:
			return
		}
		if line.Err != nil && !errors.Is(line.Err, errLongRow) {
			return
		}
	}
}

func readLine(in *bufio.Reader) InputLine {
	var text []byte
	long := false
	for {
		part, err := in.ReadSlice('\n')
		if long = long || len(text)+len(part) > MaxRow; !long {
			text = append(text, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil && !(errors.Is(err, io.EOF) && (long || len(text) > 0)):
			return InputLine{Err: err}
		case long:
			return InputLine{Err: errLongRow}
		default:
			return InputLine{Text: text}
		}
	}
}

// ReadAll reads up to so many bytes, unless ctx ends before.
func ReadAll(ctx context.Context, r io.Reader, most int64) ([]byte, error) {
	type read struct {
		b   []byte
		err error
	}
	done := make(chan read, 1)
	go func() { // a terminal's read does not end with ctx; the process does
		b, err := io.ReadAll(io.LimitReader(r, most))
		done <- read{b, err}
	}()
	select {
	case r := <-done:
		return r.b, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
