package policy

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"time"

	"github.com/dlclark/regexp2/v2"
)

// matcher is a compiled pattern. It looks for the first of the texts that matches,
// which is none if it is negative. Not decided means that the deadline came first.
type matcher interface {
	match(texts []segment, deadline time.Time) (at int, decided bool)
}

// none is no text.
const none = -1

const (
	maxPattern = 64 << 10 // bytes; a longer one is invalid
	// maxProgram bounds what a step of an automaton may cost; the default rules
	// have about 50. A longer program is left to the engine with a time bound.
	maxProgram = 10_000 // instructions
	// maxStack bounds the memory of an engine that backtracks, in words. Beyond it
	// the rule is undecided.
	maxStack = 1 << 20
	// clockPeriod is the resolution of that engine's time bound.
	clockPeriod = 4 * time.Millisecond
)

// The engine's clock counts in steps of 100 ms otherwise, which is longer than a
// command has.
var _ = func() bool { regexp2.SetTimeoutCheckPeriod(clockPeriod); return true }()

// compileECMAScript compiles a pattern with the meaning that it has for
// new RegExp(pattern, flags).test(text). Whether it is valid is up to an engine
// of that kind. It runs as an automaton, in time linear in the text, if it can be
// said in RE2's terms, and by backtracking within a time bound otherwise: with
// lookaround, backreferences, flag m with anchors, or letters beyond ASCII under
// flag i.
//
// One thing differs: a character beyond U+FFFF is one, not two surrogates.
func compileECMAScript(pattern, flags string) (matcher, error) {
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("its pattern is %d bytes long; the limit is %d", len(pattern), maxPattern)
	}
	if err := checkFlags(flags); err != nil {
		return nil, err
	}
	if err := checkGroups(pattern); err != nil {
		return nil, err
	}
	options := regexp2.ECMAScript
	for flag, option := range map[string]regexp2.RegexOptions{
		"i": regexp2.IgnoreCase, "m": regexp2.Multiline, "s": regexp2.Singleline, "u": regexp2.Unicode,
	} {
		if strings.Contains(flags, flag) {
			options |= option
		}
	}
	re, err := regexp2.Compile(pattern, options, regexp2.OptionMaxBacktrackingStackSize(maxStack))
	if err != nil {
		return nil, fmt.Errorf("its pattern is invalid: %w", err)
	}
	re.MatchTimeout = matchTime
	sticky := strings.Contains(flags, "y")
	if text, ok := toRE2(pattern, flags); ok {
		if prog, ok := program(text); ok {
			return newAutomaton(prog, sticky), nil
		}
	}
	return backtracking{re: re, sticky: sticky}, nil
}

func checkFlags(flags string) error {
	for i, flag := range flags {
		switch {
		case flag == 'v':
			return fmt.Errorf("flag v is not supported: use u")
		case !strings.ContainsRune("dgimsuy", flag):
			return fmt.Errorf("flag %q is unknown: there are d, g, i, m, s, u and y", flag)
		case strings.ContainsRune(flags[:i], flag):
			return fmt.Errorf("flag %c is there twice", flag)
		}
	}
	return nil
}

// groupForms are what may follow ( and ? in a pattern: lookaround, names, and no
// capture or modifiers.
var groupForms = regexp.MustCompile(`\A(?:=|!|<[^\s>]+>|<=|<!|[ims]*(?:-[ims]+)?:)`)

// checkGroups refuses groups of other dialects, which the engine knows too.
func checkGroups(pattern string) error {
	inClass := false
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\':
			i++
		case c == '[':
			inClass = true
		case c == ']':
			inClass = false
		case !inClass && strings.HasPrefix(pattern[i:], "(?") && !groupForms.MatchString(pattern[i+2:]):
			return fmt.Errorf("its pattern is invalid: the group at offset %d is not one of ECMAScript's; (?i) is said by the rule's flags", i)
		}
	}
	return nil
}

// program compiles a pattern of RE2's, unless it would be too long.
func program(pattern string) (*syntax.Prog, bool) {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, false
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil || len(prog.Inst) > maxProgram {
		return nil, false
	}
	return prog, true
}

// backtracking is a pattern that no automaton can run.
type backtracking struct {
	re     *regexp2.Regexp
	sticky bool // only a match at the begin counts
}

func (b backtracking) match(texts []segment, deadline time.Time) (at int, decided bool) {
	for i, s := range texts {
		if time.Now().After(deadline) {
			return none, false // what was before has used up the time
		}
		m, err := b.re.FindStringMatch(s.text)
		if err != nil {
			return none, false // out of time, or of stack
		}
		if m != nil && (!b.sticky || m.RuneIndex == 0) {
			return i, true
		}
	}
	return none, true
}
