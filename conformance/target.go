package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed targets/*.yaml
var targetFiles embed.FS

// Target describes a tool: templates of its command lines, and how to read its answers.
//
// A template is split into words as a shell would, with ' and " and nothing else special; then {name} in
// a word is replaced by a value, which never becomes several words. A word that is {timeout}, {stdin},
// {tty}, {env}, {cwd}, {args} or {json} alone stands for the words of that option, or for none where a
// step does not need it. What needs a template or an option that the target does not have cannot be asked;
// an option that the tool needs no words for is "always", and run has no place for it.
type Target struct {
	Name  string `yaml:"-"`     // of its file, without the extension
	Title string `yaml:"title"` // a few words
	About string `yaml:"about"` // what the templates stand for, and what the tool does not claim
	// Needs are programs of this host without which the target cannot run.
	Needs []string `yaml:"needs"`
	// Versions are commands; the report has the first line that each prints.
	Versions []string `yaml:"versions"`
	// Vars are values for templates, which the user may override with --var.
	Vars map[string]string `yaml:"vars"`
	// Environ is added to the environment of the tool on this host.
	Environ map[string]string `yaml:"environ"`

	// Prepare is run once before the scenarios, and Tidy after them. If Prepare fails, the target cannot
	// run on this machine, and no scenario is run.
	Prepare string `yaml:"prepare"`
	Tidy    string `yaml:"tidy"`

	Start string `yaml:"start"` // starts a session; the last line that it prints is {session}; {name} is a name for it
	Run   string `yaml:"run"`   // runs {script} in {session}
	Long  string `yaml:"long"`  // the same for a script beyond maxArgument: {file} holds it, and it is on standard input
	Stop  string `yaml:"stop"`  // ends {session}
	List  string `yaml:"list"`  // prints a line for each thing of the tool's that there is, such as containers
	Pause string `yaml:"pause"` // freezes {session}
	Thaw  string `yaml:"thaw"`  // ends that
	Put   string `yaml:"put"`   // copies the file {from} of this host to {dir} of {session}, under its own name
	Get   string `yaml:"get"`   // copies {path} of {session} into the directory {to} of this host
	Full  string `yaml:"full"`  // prints the full output of the last command of {session}

	Timeout string `yaml:"timeout"` // option: end the command after {duration}, as in 2s; {seconds} is 2
	Stdin   string `yaml:"stdin"`   // option: the tool's standard input is the command's
	TTY     string `yaml:"tty"`     // option: run it on the terminal that the tool has
	Env     string `yaml:"env"`     // option, once for each variable: {key}, {value}
	Cwd     string `yaml:"cwd"`     // option: the directory {dir}
	Args    string `yaml:"args"`    // option: words in front of the script's arguments, which stand for {args} too

	JSON JSON `yaml:"json"`
	// Ends says how the tool reports an end that the command has not caused itself. The keys are names
	// (timed-out, refused); a value is "exit N [N…]", "reason TEXT" (of JSON.Reason) or "stderr REGEXP".
	Ends map[string]string `yaml:"ends"`
	// Refuses is a command that the tool refuses in this configuration. It is empty if there is none.
	Refuses string `yaml:"refuses"`
	// Work is a directory of a session that commands may write to and files are copied to and from; {session}
	// may be in it. Empty: /tmp.
	Work string `yaml:"work"`

	// Bounds names the resources that the tool bounds in this configuration: processes (of a session), tmp (its /tmp).
	Bounds []string `yaml:"bounds"`
	// Unclaimed has scenarios that the tool does not claim to pass, and why. They are run anyway. If one does
	// not pass, its outcome is not offered instead of failed.
	Unclaimed map[string]string `yaml:"unclaimed"`
	// Known has scenarios that are known not to pass, and why. The report shows them as failed with the
	// reason. The exit status ignores them.
	Known map[string]string `yaml:"known"`
}

// JSON describes the JSON results of a tool that can print them. Paths are keys joined by dots, as in .a.b.
type JSON struct {
	Option string `yaml:"option"` // option: print JSON; it is given where a scenario asks why a command ended
	Always bool   `yaml:"always"` // the tool prints nothing else
	Code   string `yaml:"code"`
	Stdout string `yaml:"stdout"`
	Stderr string `yaml:"stderr"`
	Reason string `yaml:"reason"`
}

// maxArgument is the longest script that is given as one argument: linux takes 128 KiB (MAX_ARG_STRLEN),
// and a template may put some words around it.
const maxArgument = 100 << 10

// loadTarget reads a target from a file, or one of ours by its name.
func loadTarget(name string) (*Target, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(name, `./\`) {
		text, err = targetFiles.ReadFile("targets/" + name + ".yaml")
		if err != nil {
			return nil, fmt.Errorf("no target %s: want a file, or one of %s", name, strings.Join(targetNames(), " "))
		}
	}
	if err != nil {
		return nil, err
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	t := &Target{Name: strings.TrimSuffix(filepath.Base(name), ".yaml")}
	if err := dec.Decode(t); err != nil {
		return nil, fmt.Errorf("target %s: %w", name, err)
	}
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("target %s: %w", name, err)
	}
	return t, nil
}

func targetNames() []string {
	files, _ := fs.Glob(targetFiles, "targets/*.yaml") // the pattern is good
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".yaml"))
	}
	return names
}

// templates returns the target's templates by their names in its file.
func (t *Target) templates() map[string]*string {
	return map[string]*string{
		"prepare": &t.Prepare, "tidy": &t.Tidy, "start": &t.Start, "run": &t.Run, "long": &t.Long, "stop": &t.Stop, "list": &t.List,
		"pause": &t.Pause, "thaw": &t.Thaw, "put": &t.Put, "get": &t.Get, "full": &t.Full,
		"timeout": &t.Timeout, "stdin": &t.Stdin, "tty": &t.TTY, "env": &t.Env, "cwd": &t.Cwd, "args": &t.Args,
	}
}

func (t *Target) check() error {
	if t.Title == "" {
		t.Title = t.Name
	}
	if !strings.Contains(t.Run, "{script}") && !strings.Contains(t.Run, "{file}") {
		return errors.New("run has neither {script} nor {file}")
	}
	for name, template := range t.templates() {
		if _, err := split(*template); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for name, how := range t.Ends {
		if _, err := parseEnd(how); err != nil {
			return fmt.Errorf("ends: %s: %w", name, err)
		}
	}
	return nil
}

// split splits a template into words.
func split(template string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord, quote := false, rune(0)
	for _, r := range template {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			inWord, quote = true, r
		case r == ' ' || r == '\t' || r == '\n':
			if inWord {
				words = append(words, word.String())
				word.Reset()
			}
			inWord = false
		default:
			inWord = true
			word.WriteRune(r)
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a %c is not closed", quote)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

var placeholder = regexp.MustCompile(`\{([a-z][a-z-]*)\}`)

// expand makes a command line from a template. options has the words for placeholders that are whole words.
func (t *Target) expand(template string, values map[string]string, options map[string][]string) ([]string, error) {
	words, err := split(template)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(t.Vars)
	if all == nil {
		all = make(map[string]string)
	}
	maps.Copy(all, values)
	var line []string
	for _, word := range words {
		if name := strings.Trim(word, "{}"); word == "{"+name+"}" && slices.Contains(optionNames, name) {
			line = append(line, options[name]...)
			continue
		}
		var missing string
		line = append(line, placeholder.ReplaceAllStringFunc(word, func(m string) string {
			v, ok := all[strings.Trim(m, "{}")]
			if !ok {
				missing = m
			}
			return v
		}))
		if missing != "" {
			return nil, fmt.Errorf("template %q: nothing is known as %s here", template, missing)
		}
	}
	return line, nil
}

// optionNames are placeholders that stand for the words of an option.
var optionNames = []string{"timeout", "stdin", "tty", "env", "cwd", "args", "json"}

// end says how a tool reports one kind of end.
type end struct {
	codes  []int
	reason string
	stderr *regexp.Regexp
}

func parseEnd(how string) (end, error) {
	kind, rest, _ := strings.Cut(how, " ")
	switch kind {
	case "exit":
		var e end
		for field := range strings.FieldsSeq(rest) {
			code, err := strconv.Atoi(field)
			if err != nil {
				return end{}, err
			}
			e.codes = append(e.codes, code)
		}
		if e.codes != nil {
			return e, nil
		}
	case "reason":
		return end{reason: rest}, nil
	case "stderr":
		re, err := regexp.Compile(rest)
		return end{stderr: re}, err
	}
	return end{}, fmt.Errorf(`%q is none of "exit N…", "reason TEXT" and "stderr REGEXP"`, how)
}

func (e end) is(a answer) bool {
	switch {
	case e.codes != nil:
		return slices.Contains(e.codes, a.code)
	case e.stderr != nil:
		return e.stderr.Match(a.stderr)
	}
	return a.reason == e.reason
}
