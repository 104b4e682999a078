// Package expect says what each line of the probe must be: in a session of
// either profile, and in a container that is weak on purpose. The weak one is
// the control: where a refused attempt does not succeed there, the attempt
// itself is broken, and its refusal in a session proves nothing.
//
// What the probe prints comes from inside a container. It may decide a test and
// nothing else.
package expect

import (
	"fmt"
	"slices"
	"strings"
)

// Column is a kind of container.
type Column string

// Columns. Strict and Dev are the profiles of a session with the default user,
// limits and network, on an image without setuid programs.
const (
	Strict Column = "strict"
	Dev    Column = "dev"
	Weak   Column = "weak" // made with WeakFlags
)

// WeakFlags are flags for `docker run` that make the weak container. The probe
// must run in it as an exec of uid 0, next to a PID 1 that is not the probe. It
// reaches into its machine no further than the probe does.
//
// It has every capability but SYS_RESOURCE, instead of being privileged, because
// there are machines whose engine does not have that one itself, and it gets
// its share of what privileged gives by name.
func WeakFlags() []string {
	return []string{
		"--user", "0:0", "--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE",
		"--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined",
		"--security-opt", "systempaths=unconfined", "--cgroupns", "host",
		"--volume", "/sys/fs/cgroup:/sys/fs/cgroup", "--volume", "/var/run/docker.sock:/var/run/docker.sock",
		"--device", "/dev/kmsg", "--network", "bridge", "--add-host", "host.docker.internal:172.17.0.1",
		"--env", "PROBE_TOKEN=canary",
	}
}

// Line is one line of the probe and what its outcome may be. A zero Set is not
// checked.
type Line struct {
	Row  string // of the threat model
	Name string
	Strict,
	Dev,
	Weak Set
}

// Set is a set of outcomes.
type Set struct {
	kind     kind
	outcomes []string
}

type kind int

const (
	unchecked kind = iota
	oneOf          // exactly one of the outcomes
	noneOf         // anything else than the outcomes
	holding        // an outcome with the text in it, for lists of which we know one member
)

// In is the set of these outcomes.
func In(outcomes ...string) Set { return Set{oneOf, outcomes} }

// NotIn is the set of all outcomes but these.
func NotIn(outcomes ...string) Set { return Set{noneOf, outcomes} }

// Having is the set of the outcomes that contain text.
func Having(text string) Set { return Set{holding, []string{text}} }

// Contains reports whether the outcome is as expected.
func (s Set) Contains(outcome string) bool {
	switch s.kind {
	case oneOf:
		return slices.Contains(s.outcomes, outcome)
	case noneOf:
		return !slices.Contains(s.outcomes, outcome)
	case holding:
		return strings.Contains(outcome, s.outcomes[0])
	case unchecked:
	}
	return true
}

func (s Set) String() string {
	text := strings.Join(s.outcomes, " or ")
	switch s.kind {
	case noneOf:
		return "anything but " + text
	case holding:
		return "something with " + text
	case unchecked:
		return "anything"
	case oneOf:
	}
	return text
}

// set returns what a column expects.
func (l Line) set(column Column) Set {
	switch column {
	case Strict:
		return l.Strict
	case Dev:
		return l.Dev
	case Weak:
		return l.Weak
	}
	panic("expect: no column " + string(column))
}

// Check compares what `probe all` has printed with a column of Lines. It returns
// one sentence for every difference, a missing, repeated or unknown line
// included; nothing means that all is as it must be.
func Check(column Column, output string) []string {
	var wrong []string
	seen := map[string]bool{}
	for text := range strings.Lines(output) {
		f := strings.Fields(text)
		if len(f) != 3 {
			wrong = append(wrong, fmt.Sprintf("%q is not a line of the probe", text))
			continue
		}
		row, name, outcome := f[0], f[1], f[2]
		i := slices.IndexFunc(Lines, func(l Line) bool { return l.Row == row && l.Name == name })
		switch {
		case i < 0:
			wrong = append(wrong, fmt.Sprintf("%s %s is not expected at all", row, name))
		case seen[name]:
			wrong = append(wrong, fmt.Sprintf("%s %s stands there twice", row, name))
		case !Lines[i].set(column).Contains(outcome):
			wrong = append(wrong, fmt.Sprintf("%s %s = %s; want %s", row, name, outcome, Lines[i].set(column)))
		}
		seen[name] = seen[name] || i >= 0
	}
	for _, l := range Lines {
		if !seen[l.Name] {
			wrong = append(wrong, fmt.Sprintf("%s %s is missing", l.Row, l.Name))
		}
	}
	return wrong
}
