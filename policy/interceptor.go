package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Rule of the interceptor: where Pattern matches, Tool is the better way.
type Rule struct {
	ID      string // "": rule-N, by its place in the list from 1
	Pattern string // an ECMAScript regular expression, searched for anywhere
	Flags   string // of ECMAScript: of d, g, i, m, s, u, v and y
	Tool    string // the rule is considered only if the agent has it
	Message string
}

// Match says what the interceptor's rules look at.
type Match string

const (
	// MatchWhole is the whole command; so is "". Rules that begin with ^ see the
	// first command of a script only.
	MatchWhole Match = "whole"
	// MatchSegments is the whole command, and each simple command of its lists but
	// those that read a pipe, with and without assignments before it.
	MatchSegments Match = "segments"
)

// DefaultRules returns the rules that the interceptor has where none are given.
func DefaultRules() []Rule {
	return []Rule{
		{
			ID: "read", Tool: "read", Pattern: `^\s*(cat|head|tail|less|more)\s+`,
			Message: "Use the `read` tool instead of cat/head/tail. It provides better context and handles binary files.",
		},
		{
			ID: "search", Tool: "search", Pattern: `^\s*(grep|rg|ripgrep|ag|ack)\s+`,
			Message: "Use the `search` tool instead of grep/rg. It respects .gitignore and provides structured output.",
		},
		{
			ID: "find", Tool: "find", Pattern: `^\s*(find|fd|locate)\s+.*(-name|-iname|-type|--type|-glob)`,
			Message: "Use the `find` tool instead of find/fd. It respects .gitignore and is faster for glob patterns.",
		},
		{
			ID: "edit-sed", Tool: "edit", Pattern: `^\s*sed\s+(-i|--in-place)`,
			Message: "Use the `edit` tool instead of sed -i. It provides diff preview and fuzzy matching.",
		},
		{
			ID: "edit-perl", Tool: "edit", Pattern: `^\s*perl\s+.*-[pn]?i`,
			Message: "Use the `edit` tool instead of perl -i. It provides diff preview and fuzzy matching.",
		},
		{
			ID: "edit-awk", Tool: "edit", Pattern: `^\s*awk\s+.*-i\s+inplace`,
			Message: "Use the `edit` tool instead of awk -i inplace. It provides diff preview and fuzzy matching.",
		},
		{
			ID: "write", Tool: "write", Pattern: `^\s*(echo|printf|cat\s*<<)\s+.*[^|]>\s*\S`,
			Message: "Use the `write` tool instead of echo/cat redirection. It handles encoding and provides confirmation.",
		},
	}
}

// interceptor is the compiled rules whose tools are there.
type interceptor struct {
	rules []compiledRule
	match Match
}

type compiledRule struct {
	Rule
	matcher matcher
}

// newInterceptor compiles the rules. One that cannot be compiled is left out,
// and a warning says so; if strict, it is an error, whether its tool is there or
// not.
func newInterceptor(rules []Rule, tools []string, match Match, strict bool) (*interceptor, []Warning, error) {
	switch match {
	case "", MatchWhole, MatchSegments:
	default:
		return nil, nil, fmt.Errorf("interceptor: match %q is unknown: it can be %s or %s", match, MatchWhole, MatchSegments)
	}
	ic := &interceptor{match: match}
	var warnings []Warning
	for n, rule := range rules {
		if rule.ID == "" {
			rule.ID = fmt.Sprintf("rule-%d", n+1)
		}
		m, err := compileECMAScript(rule.Pattern, rule.Flags)
		switch {
		case err != nil && strict:
			return nil, nil, fmt.Errorf("interceptor rule %s: %w", rule.ID, err)
		case err != nil:
			warnings = append(warnings, Warning{Rule: rule.ID, Text: "interceptor rule " + rule.ID + " is left out: " + err.Error()})
		case slices.Contains(tools, rule.Tool):
			ic.rules = append(ic.rules, compiledRule{rule, m})
		}
	}
	return ic, warnings, nil
}

// segment is a part of a script that the rules are to look at by itself.
type segment struct {
	text string
	pos  Position
}

// hit is the rule that has decided. If it is undecided, no rule is known to
// match, and this one took too long: nothing may then be said of the script.
type hit struct {
	rule      Rule
	pos       Position
	undecided bool
	original  string
}

// message is what the agent is told, exactly.
func (h hit) message() string {
	return "Blocked: " + h.rule.Message + "\n\nOriginal command: " + h.original
}

// decision says what becomes of the script.
func (h hit) decision(mode Mode) Decision {
	d := Decision{Layer: Interceptor, Rule: h.rule.ID, Position: h.pos, Tool: h.rule.Tool}
	if !h.undecided {
		d.Verdict, d.Blocked, d.Message = Deny, true, h.message()
		d.Reason = "the script matches a rule that names a better tool"
		return d
	}
	d.Verdict, d.Blocked, d.Tool = Opaque, mode == Guarded, ""
	d.Reason = fmt.Sprintf("interceptor rule %s was not decided within %v", h.rule.ID, matchTime)
	if d.Blocked {
		d.Message = "Blocked: " + d.Reason + "\n\nOriginal command: " + h.original
	}
	return d
}

// matchTime bounds what all rules together may take for one command. A rule that
// is not decided by then is no match and no pass: the script is opaque, as where
// a command's name is not known, so guarded refuses it and standard runs it and
// says so. To refuse it always would let one bad pattern end an agent's work; to
// let it pass in silence would call unknown what was never looked at.
const matchTime = 25 * time.Millisecond

// check looks at the command as the agent wrote it, and then at what has become of
// it; segments, which may be nil, is called only to match segments. The first rule
// that matches wins, in the order of the list.
func (ic *interceptor) check(in Input, segments func() []segment) (hit, bool) {
	if ic == nil || len(ic.rules) == 0 {
		return hit{}, false
	}
	original := in.Original
	if original == "" {
		original = in.Script
	}
	passes := [][]segment{{trimmed(original, original, 0)}}
	if in.Script != original {
		passes = append(passes, []segment{trimmed(in.Script, in.Script, 0)})
	}
	if ic.match == MatchSegments && segments != nil {
		last := passes[len(passes)-1]
		for _, s := range segments() {
			if s.text != last[0].text {
				last = append(last, s)
			}
		}
		passes[len(passes)-1] = last
	}
	deadline := time.Now().Add(matchTime)
	var late hit
	for _, texts := range passes {
		for _, rule := range ic.rules {
			at, decided := rule.matcher.match(texts, deadline)
			if at >= 0 {
				return hit{rule: rule.Rule, pos: texts[at].pos, original: original}, true
			}
			if !decided && !late.undecided {
				late = hit{rule: rule.Rule, pos: texts[0].pos, undecided: true, original: original}
			}
		}
	}
	return late, late.undecided
}

// trimmed is the part of a script that begins at an offset, without spaces around
// it.
func trimmed(part, script string, offset int) segment {
	text := strings.TrimLeftFunc(part, isSpace)
	offset += len(part) - len(text)
	return segment{text: strings.TrimRightFunc(text, isSpace), pos: positionAt(script, offset)}
}

func positionAt(script string, offset int) Position {
	before := script[:offset]
	line := strings.Count(before, "\n")
	return Position{Offset: offset, Line: line + 1, Column: offset - strings.LastIndexByte(before, '\n')}
}

// isSpace is \s of ECMAScript, and what its trim removes: WhiteSpace and
// LineTerminator of ECMA-262, parts 12.2 and 12.3.
func isSpace(r rune) bool {
	switch r {
	case '\t', '\n', '\v', '\f', '\r', '\u2028', '\u2029', '\ufeff':
		return true
	}
	return unicode.Is(unicode.Zs, r)
}
