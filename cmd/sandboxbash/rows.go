package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// maxRow bounds a line of input: the longest script that is looked at, with every
// byte of it escaped, and much beyond.
const maxRow = 64 << 20 // bytes

// inputLine is a line of standard input, or why there is none.
type inputLine struct {
	number int // from 1
	text   []byte
	err    error // errLongRow: this line is left out; any other: there are no more
}

var errLongRow = fmt.Errorf("it is longer than %d bytes", maxRow)

// fault says what is wrong with the line.
func (l inputLine) fault(err error) string { return fmt.Sprintf("line %d: %v", l.number, err) }

// answerRows answers each line of standard input that is not blank with one, in
// order, as soon as it is there. A line of which answer says that it was not ok
// makes the exit status that of wrong use, at the end.
func (a *app) answerRows(ctx context.Context, what string, answer func(inputLine) (answer any, ok bool)) error {
	lines := make(chan inputLine)
	done := make(chan struct{})
	defer close(done)
	go readLines(a.stdin, lines, done) // a terminal's read does not end with ctx; the process does
	failed := false
	for {
		var line inputLine
		select {
		case line = <-lines:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		switch {
		case line.err == io.EOF: //nolint:errorlint // readLines does not wrap it
			if failed {
				return statusError(statusUsage)
			}
			return nil
		case errors.Is(line.err, errLongRow):
		case line.err != nil:
			return fmt.Errorf("read %s from standard input: %w", what, line.err)
		case len(bytes.TrimSpace(line.text)) == 0:
			continue
		}
		row, ok := answer(line)
		failed = failed || !ok
		if err := printJSON(a.stdout, row); err != nil {
			return err
		}
	}
}

// readLines sends lines until there is an error or nobody wants more.
func readLines(r io.Reader, lines chan<- inputLine, done <-chan struct{}) {
	in := bufio.NewReaderSize(r, 64<<10)
	for n := 1; ; n++ {
		line := readLine(in)
		line.number = n
		select {
		case lines <- line:
		case <-done:
			return
		}
		if line.err != nil && !errors.Is(line.err, errLongRow) {
			return
		}
	}
}

func readLine(in *bufio.Reader) inputLine {
	var text []byte
	long := false
	for {
		part, err := in.ReadSlice('\n')
		if long = long || len(text)+len(part) > maxRow; !long {
			text = append(text, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil && !(errors.Is(err, io.EOF) && (long || len(text) > 0)):
			return inputLine{err: err}
		case long:
			return inputLine{err: errLongRow}
		default:
			return inputLine{text: text}
		}
	}
}
