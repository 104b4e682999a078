package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
)

//go:embed scenarios/*.yaml
var scenarioFiles embed.FS

// Group is one file of scenarios/.
type Group struct {
	Title     string     `yaml:"group"`
	Scenarios []Scenario `yaml:"scenarios"`
	NotAsked  []NotAsked `yaml:"not-asked"`
}

// NotAsked is a number of the list without a scenario, because it cannot be tested through a command line
// alone.
type NotAsked struct {
	ID     string `yaml:"id"`
	Title  string `yaml:"title"`
	Reason string `yaml:"reason"`
}

// Scenario is a sequence of steps, and the results that a good bash tool gives. Each scenario has its own
// sessions, which are started when a step first names them and stopped after the last step.
type Scenario struct {
	ID    string `yaml:"id"`    // the number of the list, and a letter where a number has several
	Title string `yaml:"title"` // what a good tool does
	From  string `yaml:"from"`  // the project whose test or report it comes from; may be empty

	// Slow scenarios run only with --slow.
	Slow bool `yaml:"slow"`
	// Programs are needed in the session, besides bash and coreutils.
	Programs []string `yaml:"programs"`
	// Bounds names the resources that the tool must bound. If it does not, the scenario would harm the
	// machine, and is not run. See Target.Bounds.
	Bounds []string `yaml:"bounds"`
	// Plant is the environment of the tool itself, on the host.
	Plant map[string]string `yaml:"plant"`

	Steps []Step `yaml:"steps"`
	// Left is what is checked once the sessions are stopped.
	Left Remaining `yaml:"left"`
}

// Remaining says what must be gone after the end of all sessions. The zero value checks nothing.
type Remaining struct {
	Processes bool `yaml:"no-processes"` // none with the marker is left on this host
	Things    bool `yaml:"no-things"`    // the tool's list, Target.List, is as it was before
}

// Step is one action. Exactly one of Script, Together, Stop, Pause, Unpause, Put, Get and Full says
// which.
//
// In scripts, arguments and texts {marker} is a number of seconds for sleep, of some ten minutes and not
// used twice, by which processes are found on this host; {x:N} is N letters x; {work} is Target.Work;
// {refused} is Target.Refuses; {port} is one at which this host listens, and {hosts} are its addresses.
type Step struct {
	Script   string `yaml:"script"`   // a script for bash
	Together []Step `yaml:"together"` // steps that run at once
	Stop     bool   `yaml:"stop"`     // the session is stopped
	Pause    bool   `yaml:"pause"`    // it is paused from outside, and goes on with unpause
	Unpause  bool   `yaml:"unpause"`  // or is found running already
	Put      string `yaml:"put"`      // this path of the session becomes a file of Bytes random bytes
	Get      string `yaml:"get"`      // this path of the session is fetched
	Full     bool   `yaml:"full"`     // the full output of the last command, from where the tool keeps it

	Session string            `yaml:"session"` // its name in this scenario; empty is a session too
	After   Duration          `yaml:"after"`   // how long to wait first
	Args    []string          `yaml:"args"`    // $1 and on
	Stdin   *string           `yaml:"stdin"`   // nil: none is given
	Env     map[string]string `yaml:"env"`     // variables for the command
	Cwd     string            `yaml:"cwd"`     // its working directory
	Timeout Duration          `yaml:"timeout"` // what the tool is asked to end it by
	Type    []Keys            `yaml:"type"`    // it runs on a terminal, and this is typed
	Abort   Duration          `yaml:"abort"`   // the tool gets SIGINT after that, as when a caller gives up
	Kill    Duration          `yaml:"kill"`    // the tool gets SIGKILL after that
	Unread  Duration          `yaml:"unread"`  // what the tool prints is not read before that
	Bytes   int               `yaml:"bytes"`   // of Put
	Repeat  int               `yaml:"repeat"`  // so many times, one after the other; 0 is once
	Want    Want              `yaml:"want"`
}

// Keys are what a person does at a terminal once it shows a text.
type Keys struct {
	Wait   string `yaml:"wait"` // text that the program has written since the last keys
	Send   string `yaml:"send"`
	Resize []int  `yaml:"resize"` // rows and columns of the terminal from now on
}

// Want is what must hold for one step. A field that is not set is not checked, but every call must end.
type Want struct {
	Code      Codes    `yaml:"code"`       // one of them is the exit code
	Fails     bool     `yaml:"fails"`      // any exit code but 0
	Ended     string   `yaml:"ended"`      // how the tool says that it ended, a key of Target.Ends
	NotEnded  string   `yaml:"not-ended"`  // what it does not say
	Stdout    *string  `yaml:"stdout"`     // exactly
	Stderr    *string  `yaml:"stderr"`     // exactly
	StdoutHas []string `yaml:"stdout-has"` // texts
	StderrHas []string `yaml:"stderr-has"`
	OutputHas []string `yaml:"output-has"` // on either stream
	OutputNot []string `yaml:"output-not"` // on neither stream
	Match     string   `yaml:"match"`      // a regular expression for all of stdout
	SHA256    string   `yaml:"sha256"`     // of stdout
	Size      int64    `yaml:"size"`       // bytes of stdout
	Within    Duration `yaml:"within"`     // it takes no longer
	AtLeast   Duration `yaml:"at-least"`   // and no shorter
	Gone      Duration `yaml:"gone"`       // no process with the marker is on this host so long after the step
	Same      bool     `yaml:"same"`       // the file that Get fetches is the one that Put gave
	Inside    bool     `yaml:"inside"`     // Get, whether it succeeds or not, has written nothing outside the directory that it was given
	Unreached bool     `yaml:"unreached"`  // nothing has come to {port}, which this host listens at
}

// Duration is a time.Duration as in 1.5s.
type Duration time.Duration

// UnmarshalYAML reads it.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err == nil && v <= 0 {
		err = fmt.Errorf("%s is not positive", n.Value)
	}
	*d = Duration(v)
	return err
}

// Codes is one exit code or a list of them.
type Codes []int

// UnmarshalYAML reads it.
func (c *Codes) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*c = make(Codes, 1)
		return n.Decode(&(*c)[0])
	}
	var list []int
	err := n.Decode(&list)
	*c = list
	return err
}

// loadGroups reads all scenarios, in the order of their files' names.
func loadGroups() ([]Group, error) {
	names, err := fs.Glob(scenarioFiles, "scenarios/*.yaml")
	if err != nil {
		return nil, err
	}
	var groups []Group
	seen := make(map[string]string)
	for _, name := range names {
		text, err := scenarioFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		g, err := parseGroup(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path.Base(name), err)
		}
		for _, id := range g.ids() {
			if other, twice := seen[id]; twice {
				return nil, fmt.Errorf("%s: scenario %s is in %s already", path.Base(name), id, other)
			}
			seen[id] = path.Base(name)
		}
		groups = append(groups, g)
	}
	return groups, nil
}

func (g Group) ids() []string {
	var ids []string
	for _, s := range g.Scenarios {
		ids = append(ids, s.ID)
	}
	for _, n := range g.NotAsked {
		ids = append(ids, n.ID)
	}
	return ids
}

func parseGroup(text []byte) (Group, error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	var g Group
	if err := dec.Decode(&g); err != nil {
		return Group{}, err
	}
	if g.Title == "" || len(g.Scenarios) == 0 {
		return Group{}, errors.New("has no title or no scenarios")
	}
	for _, n := range g.NotAsked {
		if n.ID == "" || n.Title == "" || n.Reason == "" {
			return Group{}, fmt.Errorf("not-asked %q has no number, title or reason", n.ID)
		}
	}
	for _, s := range g.Scenarios {
		if err := s.check(); err != nil {
			return Group{}, fmt.Errorf("scenario %s: %w", s.ID, err)
		}
	}
	return g, nil
}

func (s Scenario) check() error {
	if s.ID == "" || s.Title == "" || len(s.Steps) == 0 {
		return errors.New("has no number, title or steps")
	}
	judged := s.Left != Remaining{}
	for i, step := range s.flat() {
		if err := step.check(); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		judged = judged || step.Want.says()
	}
	if !judged {
		return errors.New("wants nothing, and so cannot fail")
	}
	return nil
}

// flat returns all steps, including those in Together.
func (s Scenario) flat() []Step {
	var all []Step
	for _, step := range s.Steps {
		all = append(all, step)
		all = append(all, step.Together...)
	}
	return all
}

func (s Step) check() error {
	kinds := 0
	for _, is := range []bool{s.Script != "", s.Together != nil, s.Stop, s.Pause, s.Unpause, s.Put != "", s.Get != "", s.Full} {
		if is {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return fmt.Errorf("is %d of script, together, stop, pause, unpause, put, get and full; want one", kinds)
	case s.Together != nil && slices.ContainsFunc(s.Together, func(t Step) bool { return t.Together != nil }):
		return errors.New("together within together")
	}
	if _, err := regexp.Compile(s.Want.Match); err != nil {
		return fmt.Errorf("match: %w", err)
	}
	return nil
}

// says reports whether anything but an end in time is checked.
func (w Want) says() bool {
	return w.Code != nil || w.Fails || w.Ended != "" || w.NotEnded != "" || w.Stdout != nil || w.Stderr != nil ||
		len(w.StdoutHas)+len(w.StderrHas)+len(w.OutputHas)+len(w.OutputNot) > 0 || w.Match != "" || w.SHA256 != "" ||
		w.Size != 0 || w.Within != 0 || w.AtLeast != 0 || w.Gone != 0 || w.Same || w.Inside || w.Unreached
}

// watched reports whether the scenario is judged by processes on this host.
func (s Scenario) watched() bool {
	return s.Left.Processes || slices.ContainsFunc(s.flat(), func(step Step) bool { return step.Want.Gone != 0 })
}
