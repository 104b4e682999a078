package core

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Script returns the script of a command line and its arguments: the first word,
// or what standard input (-) or --file holds. One byte more than the limit is
// read, so that what is too long is refused and never cut.
func Script(ctx context.Context, run config.Run, stdin io.Reader, args []string) (text string, rest []string, err error) {
	file := run.File
	switch {
	case file == "" && len(args) == 0:
		return "", nil, exit.Misuse("give it as one word, as in 'echo hi'; - reads it from standard input, --file FILE from a file", "there is no script")
	case file == "" && args[0] != "-":
		return args[0], args[1:], nil
	case file == "":
		file, args = "-", args[1:]
	}
	if file != "-" {
		b, err := readScript(file)
		return string(b), args, err
	}
	if run.Stdin {
		return "", nil, exit.Misuse("give the script as a word or with --file FILE", "standard input cannot be both the script and the command's own (--stdin)")
	}
	b, err := stdio.ReadAll(ctx, stdin, wire.MaxScript+1)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("read the script from standard input: %w", err)
	}
	return string(b), args, err
}

func readScript(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		reason := err
		if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
			reason = pathErr.Err
		}
		return nil, exit.Misuse("name a file of this machine with --file", "script %s: %v", path, reason)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, wire.MaxScript+1))
	if err != nil {
		return nil, exit.Misuse("name a file of this machine with --file", "script %s: %v", path, err)
	}
	return b, nil
}
