package runcmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/policy"
)

// ScriptToRun returns the script of a command line and its arguments, which the
// script must use: words that it would drop are refused.
func (a *Runner) ScriptToRun(ctx context.Context, args []string) (text string, rest []string, err error) {
	text, rest, err = core.Script(ctx, a.cfg.Run, a.streams.Stdin, args)
	if err == nil {
		err = checkWords(text, rest, a.cfg.Run.File != "" || args[0] == "-")
	}
	return text, rest, err
}

// plainWord reports whether a shell takes a word as it is.
func plainWord(word string) bool {
	return word != "" && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:=@%+,-") == ""
}

// maxRepeated bounds the words that an error repeats.
const maxRepeated = 60 // bytes

// checkWords refuses words behind a script that reads none: `run make test` is not
// make. A script from a file is not on the command line.
func checkWords(script string, words []string, fromFile bool) error {
	if len(words) == 0 || policy.ReadsArguments(script) {
		return nil
	}
	if fromFile {
		return exit.Misuse(`leave them out, or use them in the script, as "$1" or "$@"`,
			"the script uses no positional parameter: it would drop the words behind it")
	}
	one, used := "make test", `make "$@"' test`
	plain := plainWord(script) && !slices.ContainsFunc(words, func(w string) bool { return !plainWord(w) })
	if all := script + " " + strings.Join(words, " "); plain && len(all) <= maxRepeated {
		one, used = all, script+` "$@"' `+strings.Join(words, " ")
	}
	return exit.Misuse(fmt.Sprintf("quote it as one word, '%s', or use the words in the script, as in '%s", one, used),
		"the script is the first word alone, and uses no positional parameter: it would drop the words behind it")
}
