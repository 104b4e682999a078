package shellcmd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// source says where a shell reads its commands from.
type source int

const (
	fromInput source = iota // standard input, or the terminal
	fromText                // -c TEXT
	fromFile                // FILE
)

// A line is a command line of bash or sh, as those read it.
type line struct {
	from source
	text string   // of -c
	file string   // of fromFile
	name string   // $0; "": the shell's own
	args []string // $1 and so on

	login, interactive bool
	set                []string // arguments of the builtin set, as in "-e" and "+o pipefail"
	shopt              []string // arguments of the builtin shopt, as in "-s extglob"
	long               []string // long options that the shell of the session is to have as they are
	left               []string // long options that name start-up files of this machine
	print              string   // --version or --help: the shell says something and ends
}

// longOptions are those of bash. The value is how many words follow.
var longOptions = map[string]int{
	"debugger": 0, "dump-po-strings": 0, "dump-strings": 0, "help": 0, "init-file": 1, "login": 0, "noediting": 0, "noprofile": 0,
	"norc": 0, "posix": 0, "pretty-print": 0, "rcfile": 1, "restricted": 0, "verbose": 0, "version": 0, "wordexp": 0,
}

// parse reads the words behind a shell's name. The error is what is wrong with them.
func parse(argv []string) (line, error) {
	var l line
	rest, err := l.longs(argv)
	if err != nil {
		return line{}, err
	}
	command, input := false, false
	for len(rest) > 0 {
		word := rest[0]
		if len(word) < 2 && word != "-" || word[0] != '-' && word[0] != '+' {
			break
		}
		rest = rest[1:]
		if word == "-" || word == "--" {
			break
		}
		sign := word[:1]
		for _, letter := range word[1:] {
			switch {
			case letter == 'c' && sign == "-":
				command = true
			case letter == 's' && sign == "-":
				input = true
			case letter == 'i' && sign == "-":
				l.interactive = true
			case letter == 'l' && sign == "-":
				l.login = true
			case letter == 'o' || letter == 'O':
				if len(rest) == 0 {
					return line{}, fmt.Errorf("%s%c: the name of an option is missing", sign, letter)
				}
				if err := l.named(sign, letter, rest[0]); err != nil {
					return line{}, err
				}
				rest = rest[1:]
			case strings.ContainsRune(setLetters, letter):
				l.set = append(l.set, sign+string(letter))
			default:
				return line{}, fmt.Errorf("%s%c is not an option of a shell that has a meaning here", sign, letter)
			}
		}
	}
	switch {
	case command && len(rest) == 0:
		return line{}, errNoScript
	case command:
		l.from, l.text, rest = fromText, rest[0], rest[1:]
		if len(rest) > 0 {
			l.name, rest = rest[0], rest[1:]
		}
	case !input && len(rest) > 0:
		l.from, l.file, rest = fromFile, rest[0], rest[1:]
		l.name = l.file
	}
	l.args = rest
	return l, nil
}

var errNoScript = errors.New("-c: there is no script behind it")

// setLetters are the options that the builtin set takes, too.
const setLetters = "abefhkmnpruvxBCEHPT"

// longs takes the long options, which stand in front of all others.
func (l *line) longs(argv []string) (rest []string, err error) {
	for len(argv) > 0 {
		name, ok := strings.CutPrefix(argv[0], "--")
		if !ok || name == "" {
			break
		}
		words, known := longOptions[name]
		switch {
		case !known:
			return nil, fmt.Errorf("%s is not an option of a shell", argv[0])
		case len(argv) <= words:
			return nil, fmt.Errorf("%s: the name of a file is missing", argv[0])
		}
		switch name {
		case "login":
			l.login = true
		case "version", "help":
			l.print = argv[0]
		case "verbose":
			l.set = append(l.set, "-v")
		case "restricted":
			l.set = append(l.set, "-r")
		case "posix":
			l.set = append(l.set, "-o posix")
		case "init-file", "rcfile":
			l.left = append(l.left, argv[0]+" "+argv[1])
		case "noediting", "noprofile", "norc":
			l.long = append(l.long, argv[0])
		default:
			return nil, fmt.Errorf("%s has no meaning here", argv[0])
		}
		argv = argv[1+words:]
	}
	return argv, nil
}

// named takes an option with a name.
func (l *line) named(sign string, letter rune, name string) error {
	if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return fmt.Errorf("%s%c %q is not the name of an option", sign, letter, name)
	}
	if letter == 'o' {
		l.set = append(l.set, sign+"o "+name)
		return nil
	}
	l.shopt = append(l.shopt, map[string]string{"-": "-s ", "+": "-u "}[sign]+name)
	return nil
}

// A locator says where a file of this machine is in the session; ok says that it is there.
type locator func(path string) (inside string, ok bool)

// A script is what runs in the session for a line.
type script struct {
	text  string
	args  []string
	input bool // it reads commands from standard input
}

// script returns the script for a line that a shell of the session runs, which is bash or sh. The
// commands of a -c and of a file that the session has not are the script's own, so that the
// policy and the record see them. read returns a file of this machine.
func (l line) script(shell string, inside locator, read func(path string) (string, error)) (script, error) {
	switch {
	case l.print != "":
		return script{text: shell + " " + l.print}, nil
	case l.from == fromInput:
		return script{text: l.shell(shell, append([]string{"-s"}, behind(l.args)...)), input: true}, nil
	case l.from == fromFile:
		if path, ok := inside(l.file); ok {
			return script{text: l.shell(shell, append([]string{"--", path}, l.args...))}, nil
		}
		text, err := read(l.file)
		if err != nil {
			return script{}, err
		}
		l.text = text
	}
	head, err := l.head(shell)
	if err != nil {
		return script{}, err
	}
	if strings.TrimSpace(l.text) == "" {
		l.text = ":" // a script without a command is not an error to a shell
	}
	return script{text: head + l.text, args: l.args}, nil
}

// head is what a script starts with for the options of its shell. It has no end of a line, so that
// the numbers of lines in errors are the script's, unless an option decides how lines are read.
func (l line) head(shell string) (string, error) {
	var b strings.Builder
	if l.name != "" && shell == "bash" {
		b.WriteString("BASH_ARGV0=" + quote(l.name) + "; ")
	}
	for _, option := range l.set {
		b.WriteString("set " + option + "; ")
	}
	if len(l.shopt) > 0 && shell != "bash" {
		return "", fmt.Errorf("-O and +O are options of bash, and the shell is %s", shell)
	}
	for _, option := range l.shopt {
		b.WriteString("shopt " + option + "\n")
	}
	return b.String(), nil
}

// shell is a command that becomes another shell with the line's options.
func (l line) shell(shell string, words []string) string {
	all := []string{"exec", shell}
	all = append(all, l.long...)
	if l.login && shell == "bash" {
		all = append(all, "--login")
	}
	for _, option := range l.set {
		all = append(all, strings.Fields(option)...)
	}
	for _, option := range l.shopt {
		letter, name, _ := strings.Cut(option, " ")
		all = append(all, map[string]string{"-s": "-O", "-u": "+O"}[letter], name)
	}
	if l.interactive {
		all = append(all, "-i")
	}
	for _, word := range words {
		all = append(all, plainOrQuoted(word))
	}
	return strings.Join(all, " ")
}

// behind puts -- in front of words, if there are any.
func behind(words []string) []string {
	if len(words) == 0 {
		return nil
	}
	return slices.Concat([]string{"--"}, words)
}

func plainOrQuoted(word string) string {
	if word != "" && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:=@%+,-") == "" {
		return word
	}
	return quote(word)
}

// quote returns a word that every POSIX shell takes as text, whatever is in it but NUL.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
