package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/sandboxbash/sandboxbash/exec/wire"
)

// script returns the script of a command line and its arguments: the first word,
// or what standard input (-) or --file holds. One byte more than the limit is
// read, so that what is too long is refused and never cut.
func (a *app) script(ctx context.Context, args []string) (text string, rest []string, err error) {
	file := a.cfg.Run.File
	switch {
	case file == "" && len(args) == 0:
		return "", nil, misuse("give it as one word, as in 'echo hi'; - reads it from standard input, --file FILE from a file", "there is no script")
	case file == "" && args[0] != "-":
		return args[0], args[1:], nil
	case file == "":
		file, args = "-", args[1:]
	}
	if file != "-" {
		b, err := readScript(file)
		return string(b), args, err
	}
	if a.cfg.Run.Stdin {
		return "", nil, misuse("give the script as a word or with --file FILE", "standard input cannot be both the script and the command's own (--stdin)")
	}
	b, err := readAll(ctx, a.stdin, wire.MaxScript+1)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("read the script from standard input: %w", err)
	}
	return string(b), args, err
}

// readAll reads up to so many bytes, unless ctx ends before.
func readAll(ctx context.Context, r io.Reader, most int64) ([]byte, error) {
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

func readScript(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		reason := err
		if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
			reason = pathErr.Err
		}
		return nil, misuse("name a file of this machine with --file", "script %s: %v", path, reason)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, wire.MaxScript+1))
	if err != nil {
		return nil, misuse("name a file of this machine with --file", "script %s: %v", path, err)
	}
	return b, nil
}
