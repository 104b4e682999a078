package tool

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Settings are the options of contract agent, each with its name in the documents.
// Start from DefaultSettings; the zero value has other numbers.
type Settings struct {
	Async          bool          // async.enabled
	MaxJobs        int           // async.maxJobs: 1 to 100
	PollWait       time.Duration // async.pollWaitDuration
	AutoBackground bool          // bash.autoBackground.enabled
	ThresholdMs    float64       // bash.autoBackground.thresholdMs

	// StripHeadTail is bash.stripTrailingHeadTail, and ExtractHeadTail is
	// bash.extractHeadTail: whether a last `| head` or `| tail` is removed. Both are
	// off by default, unlike in some documents: they change what runs.
	StripHeadTail   bool
	ExtractHeadTail bool

	Interceptor bool          // bashInterceptor.enabled
	Rules       []policy.Rule // bashInterceptor.patterns; nil is policy.DefaultRules
	Match       policy.Match  // bashInterceptor.match: whole or segments

	Minimizer Minimizer

	WindowBytes int     // tools.artifactSpillThreshold, in KiB there
	HeadBytes   int     // tools.artifactHeadBytes, in KiB there
	MaxTimeout  float64 // tools.maxTimeout, in seconds; 0 is none
}

// Minimizer is the settings shellMinimizer.*.
type Minimizer struct {
	Enabled      bool
	SettingsPath string
	Only, Except []string
	MaxBytes     int64 // of output; more of it is not minimized
}

// DefaultSettings returns the defaults of all settings.
func DefaultSettings() Settings {
	return Settings{
		MaxJobs: maxJobs, PollWait: defaultPollWait, ThresholdMs: 60_000, WindowBytes: sink.DefaultWindow,
		Match: policy.MatchWhole, Minimizer: Minimizer{MaxBytes: 4 << 20},
	}
}

// parseSettings reads a JSON object of settings by their dotted names. Missing ones
// have their defaults; an unknown one is an error.
func parseSettings(raw json.RawMessage) (Settings, error) {
	s := DefaultSettings()
	members, err := parseObject(raw)
	if err != nil {
		return s, fmt.Errorf("settings: %w", err)
	}
	for _, m := range members {
		set, ok := setters[m.name]
		if !ok {
			return s, fmt.Errorf("settings: %w", &fault{what: unknown, field: m.name})
		}
		if err := set(&s, m); err != nil {
			return s, fmt.Errorf("settings: %w", err)
		}
	}
	return s, nil
}

var setters = map[string]func(*Settings, member) error{
	"async.enabled":                   func(s *Settings, m member) error { return setFlag(&s.Async, m) },
	"async.maxJobs":                   setMaxJobs,
	"async.pollWaitDuration":          setPollWait,
	"bash.autoBackground.enabled":     func(s *Settings, m member) error { return setFlag(&s.AutoBackground, m) },
	"bash.autoBackground.thresholdMs": func(s *Settings, m member) error { return setNumber(&s.ThresholdMs, m) },
	"bash.stripTrailingHeadTail":      func(s *Settings, m member) error { return setFlag(&s.StripHeadTail, m) },
	"bash.extractHeadTail":            func(s *Settings, m member) error { return setFlag(&s.ExtractHeadTail, m) },
	"bash.virtualTerminal":            ignoreText, // the argument pty has its part
	"bashInterceptor.enabled":         func(s *Settings, m member) error { return setFlag(&s.Interceptor, m) },
	"bashInterceptor.patterns":        setRules,
	"bashInterceptor.match":           setMatch,
	"shellMinimizer.enabled":          func(s *Settings, m member) error { return setFlag(&s.Minimizer.Enabled, m) },
	"shellMinimizer.settingsPath":     func(s *Settings, m member) error { return setText(&s.Minimizer.SettingsPath, m) },
	"shellMinimizer.only":             func(s *Settings, m member) error { return setTexts(&s.Minimizer.Only, m) },
	"shellMinimizer.except":           func(s *Settings, m member) error { return setTexts(&s.Minimizer.Except, m) },
	"shellMinimizer.maxCaptureBytes":  func(s *Settings, m member) error { return setCount(&s.Minimizer.MaxBytes, m) },
	"tools.artifactSpillThreshold":    func(s *Settings, m member) error { return setKiB(&s.WindowBytes, m) },
	"tools.artifactHeadBytes":         func(s *Settings, m member) error { return setKiB(&s.HeadBytes, m) },
	"tools.maxTimeout":                func(s *Settings, m member) error { return setNumber(&s.MaxTimeout, m) },
	// Settings of a step after the tool, which this program does not have.
	"tools.artifactTailBytes": ignoreCount,
	"tools.artifactTailLines": ignoreCount,
	"tools.outputMaxColumns":  noColumns,
}

func setFlag(to *bool, m member) (err error) {
	*to, err = m.flag()
	return err
}

func setNumber(to *float64, m member) (err error) {
	*to, err = m.number()
	return err
}

func setText(to *string, m member) (err error) {
	*to, err = m.text()
	return err
}

func setTexts(to *[]string, m member) (err error) {
	*to, err = m.texts()
	return err
}

func setCount(to *int64, m member) (err error) {
	*to, err = m.count()
	return err
}

func ignoreText(_ *Settings, m member) error {
	_, err := m.text()
	return err
}

func ignoreCount(_ *Settings, m member) error {
	_, err := m.count()
	return err
}

// noColumns refuses a limit on the length of lines: lines are shown whole.
func noColumns(_ *Settings, m member) error {
	n, err := m.count()
	if err == nil && n != 0 {
		err = &fault{what: wrongType, field: m.name, want: "0, because lines are never cut", value: m.value}
	}
	return err
}

// maxWindowKiB bounds what is kept in memory of a command's output.
const maxWindowKiB = 64 << 10

func setKiB(to *int, m member) error {
	n, err := m.count()
	if err == nil && n > maxWindowKiB {
		err = &fault{what: wrongType, field: m.name, want: fmt.Sprintf("at most %d KiB", maxWindowKiB), value: m.value}
	}
	if err != nil {
		return err
	}
	*to = int(n) << 10
	return nil
}

func setMaxJobs(s *Settings, m member) error {
	if string(m.value) == "null" { // as if it were not there
		return nil
	}
	n, err := m.number()
	if err != nil {
		return err
	}
	s.MaxJobs = clampMaxJobs(n)
	return nil
}

func setPollWait(s *Settings, m member) error {
	text, err := m.text()
	if err != nil {
		return err
	}
	s.PollWait = PollWait(text)
	return nil
}

func setMatch(s *Settings, m member) error {
	text, err := m.text()
	if err != nil {
		return err
	}
	s.Match = policy.Match(text)
	if !slices.Contains([]policy.Match{policy.MatchWhole, policy.MatchSegments}, s.Match) {
		return &fault{what: wrongType, field: m.name, want: `"whole" or "segments"`, value: m.value}
	}
	return nil
}

func setRules(s *Settings, m member) error {
	var raw []json.RawMessage
	if m.value[0] != '[' || json.Unmarshal(m.value, &raw) != nil {
		return &fault{what: wrongType, field: m.name, want: "an array of rules", value: m.value}
	}
	s.Rules = make([]policy.Rule, 0, len(raw)) // an empty list means no rules, not the default ones
	for i, v := range raw {
		rule, err := parseRule(v)
		if err != nil {
			return fmt.Errorf("%s: rule %d: %w", m.name, i+1, err)
		}
		s.Rules = append(s.Rules, rule)
	}
	return nil
}

func parseRule(raw json.RawMessage) (policy.Rule, error) {
	var r policy.Rule
	members, err := parseObject(raw)
	if err != nil {
		return r, err
	}
	fields := map[string]*string{"id": &r.ID, "pattern": &r.Pattern, "flags": &r.Flags, "tool": &r.Tool, "message": &r.Message}
	given := map[string]bool{}
	for _, m := range members {
		to, ok := fields[m.name]
		if !ok {
			return r, &fault{what: unknown, field: m.name}
		}
		if err := setText(to, m); err != nil {
			return r, err
		}
		given[m.name] = true
	}
	for _, name := range []string{"pattern", "tool", "message"} {
		if !given[name] {
			return r, &fault{what: missing, field: name}
		}
	}
	return r, nil
}
