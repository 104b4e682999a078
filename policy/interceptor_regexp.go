package policy

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"
	"time"

	"github.com/dlclark/regexp2/v2"
)

// matcher is a compiled pattern. match returns the index of the first text that matches,
// or none. It is not decided if the deadline came first.
type matcher interface {
	match(texts []segment, deadline time.Time) (at int, decided bool)
}

// none is the index that match returns if no text matches.
const none = -1

const (
	maxPattern = 64 << 10 // bytes; a longer one is invalid
	// maxProgram bounds the cost of a step of an automaton. The default rules have about
	// 50 instructions. The backtracking engine runs a pattern with a longer program.
	maxProgram = 10_000 // instructions
	// maxStack bounds the memory of the backtracking engine, in words. Beyond it the
	// rule is undecided.
	maxStack = 1 << 20
	// clockPeriod is the resolution of that engine's time bound: see sharpenClock.
	clockPeriod = 4 * time.Millisecond
)

// sharpenClock makes the backtracking engine keep its time bound to clockPeriod. Its own
// period of 100 ms is longer than all rules together may take. The period is one for the
// whole process, so that it is left alone until a pattern needs the engine.
var sharpenClock = sync.OnceFunc(func() { regexp2.SetTimeoutCheckPeriod(clockPeriod) })

// compileECMAScript compiles a pattern with the meaning that it has for
// new RegExp(pattern, flags).test(text). The backtracking engine, which knows that
// language, decides whether the pattern is valid. The pattern runs as an automaton, in
// time linear in the text, if RE2 can express it. Otherwise it runs by backtracking
// within a time bound: with lookaround, backreferences, flag m with anchors, or letters
// beyond ASCII under flag i. docs/adr/0032 says why there are two engines.
//
// One thing differs from ECMAScript: a character beyond U+FFFF counts as one, not as two
// surrogates.
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
	sticky := strings.Contains(flags, "y")
	if text, ok := toRE2(pattern, flags); ok {
		if prog, ok := program(text); ok {
			return newAutomaton(prog, sticky), nil
		}
	}
	sharpenClock()
	re.MatchTimeout = matchTime
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
			return fmt.Errorf("flag %c is given twice", flag)
		}
	}
	return nil
}

// groupForms matches what may follow "(?" in a pattern: lookaround, a name, or modifiers
// and a colon.
var groupForms = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\A(?:=|!|<[^\s>]+>|<=|<!|[ims]*(?:-[ims]+)?:)`)
})

// checkGroups refuses the groups of other dialects that the engine accepts too.
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
		case !inClass && strings.HasPrefix(pattern[i:], "(?") && !groupForms().MatchString(pattern[i+2:]):
			return fmt.Errorf("its pattern is invalid: the group at offset %d is not one of ECMAScript's; write (?i) as the rule's flags", i)
		}
	}
	return nil
}

// program compiles a pattern in RE2's syntax. It reports false if the program is too long.
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

// backtracking is a pattern that the automaton cannot run.
type backtracking struct {
	re     *regexp2.Regexp
	sticky bool // only a match at the start counts
}

func (b backtracking) match(texts []segment, deadline time.Time) (at int, decided bool) {
	for i, s := range texts {
		if time.Now().After(deadline) {
			return none, false // the texts before have used up the time
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
