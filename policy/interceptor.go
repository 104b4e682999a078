package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Rule is a rule of the interceptor: if Pattern matches, the agent should use Tool.
type Rule struct {
	ID      string // if "", rule-N, where N is its place in the list, from 1
	Pattern string // an ECMAScript regular expression, which may match anywhere
	Flags   string // of ECMAScript: d, g, i, m, s, u and y
	Tool    string // the rule is used only if the agent has this tool
	Message string
}

// Match says which texts the interceptor's rules look at.
type Match string

const (
	// MatchWhole is the whole command; "" means the same. A pattern that begins with ^ sees only
	// the first command of a script.
	MatchWhole Match = "whole"
	// MatchSegments is the whole command, and also each simple command of its lists
	// that does not read a pipe, with and without the assignments before it.
	// Redirections that write no file are left out of these texts.
	MatchSegments Match = "segments"
)

// DefaultRules returns the interceptor's rules if none are configured.
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

// interceptor holds the compiled rules whose tools the agent has.
type interceptor struct {
	rules []compiledRule
	match Match
}

type compiledRule struct {
	Rule
	matcher matcher
}

// newInterceptor compiles the rules. It leaves out a rule that cannot be compiled, with a
// warning. If strict, such a rule is an error, whether or not the agent has its tool.
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

// segment is a part of a script that the rules look at on its own.
type segment struct {
	text string
	pos  Position
}

// hit is the rule that has decided. If it is undecided, no rule is known to match, but this
// one took too long, so that it may match or not.
type hit struct {
	rule      Rule
	pos       Position
	undecided bool
	original  string
}

// message returns the text for the agent. Its form is part of the contract.
func (h hit) message() string {
	return "Blocked: " + h.rule.Message + "\n\nOriginal command: " + h.original
}

// decision returns the decision about the script.
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

// matchTime bounds the time of all rules together for one command. If a rule is not decided
// by then, the script is opaque, as it is if a command's name is not known: guarded refuses
// it, and standard runs it and says so. If it were always refused, one bad pattern would
// stop an agent's work; if it passed as allowed, the result would hide that a rule was not
// applied.
const matchTime = 25 * time.Millisecond

// check looks at the command as the agent wrote it, and then at the script that it became.
// The first rule of the list that matches wins. check calls segments, which may be nil,
// only if rules match segments.
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
	if ic.match == MatchSegments {
		for _, texts := range passes {
			texts[0] = texts[0].withoutSinks()
		}
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

// trimmed returns the segment for a part of a script that begins at an offset, without the
// spaces around it.
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

// isSpace reports whether \s of ECMAScript matches a character: WhiteSpace and
// LineTerminator of ECMA-262, parts 12.2 and 12.3.
func isSpace(r rune) bool {
	switch r {
	case '\t', '\n', '\v', '\f', '\r', '\u2028', '\u2029', '\ufeff':
		return true
	}
	return unicode.Is(unicode.Zs, r)
}
