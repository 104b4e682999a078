package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// lastLine returns the last line of a file, with its end if it has one, and the
// file's size.
func lastLine(f *os.File) ([]byte, int64, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is not a regular file", f.Name())
	}
	size := info.Size()
	for step := int64(4 << 10); ; step *= 4 {
		from := max(0, size-step)
		b := make([]byte, size-from)
		if _, err := f.ReadAt(b, from); err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, err
		}
		body := bytes.TrimSuffix(b, []byte("\n"))
		if i := bytes.LastIndexByte(body, '\n'); i >= 0 {
			return b[i+1:], size, nil
		}
		if from == 0 || step > 2*maxLine {
			return b, size, nil
		}
	}
}

// lines calls do with each line, numbered from 1, without its line end; whole reports
// whether it has one. A line that is longer than any record is truncated.
func lines(r io.Reader, do func(n int, line []byte, whole bool) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	for n := 1; ; n++ {
		line, err := readLine(in)
		if len(line) == 0 && errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err := do(n, bytes.TrimSuffix(line, []byte("\n")), err == nil); err != nil {
			return err
		}
	}
}

func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line) <= maxLine {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}
