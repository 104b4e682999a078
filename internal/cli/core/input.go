package core

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Words are the words of a command line that say what to run.
type Words struct {
	List   []string
	Script *string // of --command: the words are its arguments
}

// WordsHelp says in help what words stand for.
const WordsHelp = `Several words are a program and its arguments, as with docker, ssh and kubectl: each word
arrives as it is. One word is a script, so quote it: 'make && make test'. With -c SCRIPT, with
--file FILE and with -, which reads a script from standard input, the other words are the
script's arguments, $1 and so on.`

// StdinHelp says in help what the standard input of a command is.
const StdinHelp = `The command reads this standard input if it is a pipe or a file, else nothing; --stdin gives
it any. With --no-stdin (-n) it reads nothing, as with ssh: use that in "while read" loops,
whose other lines the command would read, and where a pipe is open that never ends.`

// Any reports whether the words say what to run.
func (w Words) Any() bool { return len(w.List) > 0 || w.Script != nil }

// WordsOf returns the words of a command.
func WordsOf(cmd *cobra.Command, args []string) Words {
	w := Words{List: args}
	if f := cmd.Flags().Lookup("command"); f != nil && f.Changed {
		text := f.Value.String()
		w.Script = &text
	}
	return w
}

// Script returns the script that words stand for, and the script's arguments. One word is a
// script; several words are a program and its arguments, each of which arrives as it is. If the script comes from --command, from --file or, as the word -, from
// standard input, the other words are its arguments.
//
// It reads one byte more than a script may have, so that one that is too long is
// refused and never cut.
func Script(ctx context.Context, run config.Run, stdin io.Reader, w Words) (text string, args []string, err error) {
	file, args := run.File, w.List
	switch {
	case w.Script != nil && file != "":
		return "", nil, exit.Misuse("leave out one of them", "--command and --file both give the script")
	case w.Script != nil:
		return *w.Script, args, nil
	case file != "":
	case len(args) == 0:
		return "", nil, exit.Misuse("give it as words, as in `run make test`, or as one, as in `run 'echo hi'`; - reads a script from standard input, --file FILE from a file", "there is no command")
	case args[0] == "-":
		file, args = "-", args[1:]
	case len(args) == 1:
		return args[0], nil, nil
	default:
		return shellWords(args), nil, nil
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

// shellWords returns a script that runs a program with arguments, for any POSIX shell.
func shellWords(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		if plainWord(word) && (i > 0 || !strings.Contains(word, "=") && !reserved[word]) {
			quoted[i] = word
			continue
		}
		quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// plainWord reports whether a shell takes a word as it is, unless it is the first one.
func plainWord(word string) bool {
	return word != "" && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:=@%+,-") == ""
}

// reserved are the plain words that are grammar to bash or sh where a command is expected.
var reserved = map[string]bool{
	"case": true, "coproc": true, "do": true, "done": true, "elif": true, "else": true, "esac": true, "fi": true, "for": true,
	"function": true, "if": true, "in": true, "select": true, "then": true, "time": true, "until": true, "while": true,
}
