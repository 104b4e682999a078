package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// RuleError says what is wrong with the text of a rule.
type RuleError struct {
	Rule   string // the text
	Column int    // where the fault is, in characters counted from 1
	Text   string // what is wrong
	Hint   string // what to write instead; may be ""
}

func (e *RuleError) Error() string {
	text := fmt.Sprintf("rule %q, column %d: %s", e.Rule, e.Column, e.Text)
	if e.Hint != "" {
		text += ": " + e.Hint
	}
	return text
}

// maxRule bounds the text of a rule.
const maxRule = 4096 // bytes

// ParseRule parses the text of a rule:
//
//	[METHODS ]HOST[:PORT][/PATH][ !TEXT]
//	@PRESET or @PRESET:ro
//
// HOST is a name, *.NAME for all names below it, * for every name, an address or a range of
// addresses such as 10.0.0.0/8; an IPv6 address before a port or path is in brackets. PORT is a
// number or *; without one an allow rule is for 80 and 443, and a deny rule for all. METHODS
// are separated by commas, as in GET,HEAD. In PATH a * stands for any text, slashes included;
// a path is matched without its query. !TEXT excludes requests whose path or query holds TEXT,
// however it is encoded, in any case.
//
// A rule that can never match is an error. Errors are of type *RuleError.
func ParseRule(text string) (Rule, error) {
	p := parser{text: text}
	r, ok := p.rule()
	if !ok {
		return Rule{}, p.err
	}
	return r, nil
}

// parser parses one rule. Its methods return false once they have set err.
type parser struct {
	text string
	err  *RuleError
}

// bad records a fault at a byte of the text, and returns false.
func (p *parser) bad(at int, text, hint string) bool {
	p.err = &RuleError{Rule: p.text, Column: utf8.RuneCountInString(p.text[:at]) + 1, Text: text, Hint: hint}
	return false
}

func (p *parser) rule() (Rule, bool) {
	if len(p.text) > maxRule {
		p.text = p.text[:64]
		return Rule{}, p.bad(0, "the rule is too long", "a rule has at most 4096 bytes")
	}
	for i, c := range p.text {
		if c < ' ' || c == utf8.RuneError || c == 0x7f {
			return Rule{}, p.bad(i, "a control character or a byte that is not UTF-8", "")
		}
	}
	words, at := fields(p.text)
	switch {
	case len(words) == 0:
		return Rule{}, p.bad(0, "the rule is empty", "write a host, as in example.com")
	case !strings.HasPrefix(words[0], "@"):
		return p.hostRule(words, at)
	case len(words) > 1:
		return Rule{}, p.bad(at[1], "a preset stands alone", "write a rule for a host to name methods or paths")
	}
	return p.preset(words[0], at[0])
}

// hostRule parses any rule but a preset, of which at says where its words begin.
func (p *parser) hostRule(words []string, at []int) (Rule, bool) {
	var r Rule
	if len(words) > 1 && !strings.HasPrefix(words[1], "!") {
		if !p.methods(&r, words[0], at[0]) {
			return r, false
		}
		words, at = words[1:], at[1:]
	}
	if !p.target(&r, words[0], at[0]) {
		return r, false
	}
	if len(words) > 1 && !p.exclusion(&r, words[1], at[1]) {
		return r, false
	}
	if len(words) > 2 {
		return r, p.bad(at[2], "a word too many", "write [METHODS ]HOST[:PORT][/PATH][ !TEXT]")
	}
	return r, true
}

// fields splits a text at spaces, and tells where each word begins.
func fields(text string) (words []string, at []int) {
	for i := 0; i < len(text); {
		if text[i] == ' ' {
			i++
			continue
		}
		end := strings.IndexByte(text[i:], ' ')
		if end < 0 {
			end = len(text) - i
		}
		words, at = append(words, text[i:i+end]), append(at, i)
		i += end
	}
	return words, at
}

func (p *parser) preset(word string, at int) (Rule, bool) {
	all := presets()
	if found, ok := all[word]; ok {
		return Rule{preset: found}, true
	}
	if name, ok := strings.CutSuffix(word, ":ro"); ok && all[name] != nil {
		return Rule{}, p.bad(at+len(name), name+" is read-only in any case", "write "+name)
	}
	return Rule{}, p.bad(at, "there is no preset "+word, "write one of "+strings.Join(PresetNames(), " "))
}

func (p *parser) methods(r *Rule, word string, at int) bool {
	start := 0
	for method := range strings.SplitSeq(word, ",") {
		switch here := at + start; {
		case method == "":
			return p.bad(here, "a method is missing", "write methods separated by commas, as in GET,HEAD")
		case method == "TRACE" || method == "CONNECT":
			return p.bad(here, "the rule can never match: "+method+" is never forwarded", "")
		case !validMethod(method):
			return p.bad(here, "this is not a method", "write methods in capitals before the host, as in GET,HEAD example.com")
		}
		r.methods = append(r.methods, method)
		start += len(method) + 1
	}
	slices.Sort(r.methods)
	r.methods = slices.Compact(r.methods)
	return true
}

func (p *parser) exclusion(r *Rule, word string, at int) bool {
	text, ok := strings.CutPrefix(word, "!")
	switch {
	case !ok:
		return p.bad(at, "a word too many", "write the methods before the host, and !TEXT after it to exclude requests")
	case text == "":
		return p.bad(at, "the text to exclude is missing", "write it after the !, as in !git-receive-pack")
	}
	for i := range len(text) {
		if c := text[i]; !unreserved(c) {
			return p.bad(at+1+i, "the text to exclude can have letters, digits and -._~ only", "")
		}
	}
	r.without = strings.ToLower(text)
	for literal := range strings.SplitSeq(r.path, "*") {
		if strings.Contains(strings.ToLower(literal), r.without) {
			return p.bad(at, "the rule can never match: its path holds the text to exclude", "")
		}
	}
	return true
}

// target parses the host, the port and the path.
func (p *parser) target(r *Rule, word string, at int) bool {
	if scheme, _, ok := strings.Cut(word, "://"); ok {
		return p.bad(at, "a rule has no "+scheme+"://", "write the host alone, as in example.com or example.com:443")
	}
	host, rest := splitHost(word)
	if i := strings.IndexByte(host, '@'); i >= 0 {
		return p.bad(at+i, "a rule has no user", "write the host alone")
	}
	if !p.host(r, host, at) {
		return false
	}
	start := at
	at += len(host)
	if r.prefix.IsValid() && strings.HasPrefix(rest, "/") {
		n, ok := p.length(r, rest, at)
		if !ok {
			return false
		}
		rest, at = rest[n:], at+n
	}
	if r.prefix.IsValid() && unreachable(r.prefix) {
		return p.bad(start, "the rule can never match: no connection can be made to "+r.prefix.Addr().String(), "")
	}
	if port, ok := strings.CutPrefix(rest, ":"); ok {
		port, _, _ = strings.Cut(port, "/")
		if !p.port(r, port, at+1) {
			return false
		}
		rest, at = rest[1+len(port):], at+1+len(port)
	}
	if rest == "" {
		return true
	}
	if rest[0] != '/' {
		return p.bad(at, "this is neither a port nor a path", "write :PORT or /PATH after the host")
	}
	return p.path(r, rest, at)
}

// splitHost splits the host from what follows it. An IPv6 address without brackets goes up to
// a slash.
func splitHost(word string) (host, rest string) {
	end := strings.IndexByte(word, '/')
	if end < 0 {
		end = len(word)
	}
	if strings.HasPrefix(word, "[") {
		if i := strings.IndexByte(word[:end], ']'); i >= 0 {
			return word[:i+1], word[i+1:]
		}
		return word[:end], word[end:]
	}
	if i := strings.IndexByte(word[:end], ':'); i >= 0 && strings.Count(word[:end], ":") == 1 {
		end = i
	}
	return word[:end], word[end:]
}

// host parses a name, a pattern of names or an address.
func (p *parser) host(r *Rule, host string, at int) bool {
	name := host
	switch {
	case host == "*":
		r.sub = true
		return true
	case strings.HasPrefix(host, "*."):
		r.sub, name = true, host[2:]
	}
	if i := strings.IndexByte(name, '*'); i >= 0 {
		return p.bad(at+len(host)-len(name)+i, "a * stands for whole labels at the start only", "write *.example.com, or * for every name")
	}
	name, addr, err := canonical(name)
	switch {
	case err != nil:
		return p.bad(at, "this is not a host: "+err.Error(), "write a name such as example.com, *.example.com, or an address")
	case addr.IsValid() && r.sub:
		return p.bad(at, "an address has no names below it", "write a range, as in 10.0.0.0/8")
	case addr.IsValid():
		r.prefix = netip.PrefixFrom(addr, addr.BitLen())
		return true
	case r.sub && (name == "localhost" || name == "local"), !r.sub && localName(name):
		return p.bad(at, "the rule can never match: a local name, or one of a single label, is never resolved",
			"write the full name, or the address of the service, as in 127.0.0.1:8080")
	}
	r.host = name
	return true
}

// length parses the length of a range after an address, and returns how many bytes it read.
func (p *parser) length(r *Rule, rest string, at int) (int, bool) {
	digits := rest[1:]
	if end := strings.IndexAny(digits, ":/"); end >= 0 {
		digits = digits[:end]
	}
	addr := r.prefix.Addr()
	bits, err := strconv.Atoi(digits)
	if err != nil || strconv.Itoa(bits) != digits {
		return 0, p.bad(at+1, "the length of the range is missing", fmt.Sprintf("write %s/%d before the path, or the port", addr, addr.BitLen()))
	}
	if mapped := p.text[:at]; addr.Is4() && strings.Contains(mapped, ":") {
		bits -= 96 // ::ffff:10.0.0.0/104 is 10.0.0.0/8
	}
	if bits < 0 || bits > addr.BitLen() {
		return 0, p.bad(at+1, "the range has no such length", fmt.Sprintf("write 0 to %d", addr.BitLen()))
	}
	r.prefix = netip.PrefixFrom(addr, bits)
	if masked := r.prefix.Masked(); masked != r.prefix {
		return 0, p.bad(at+1, "the address is not the first of its range", "write "+masked.String())
	}
	return 1 + len(digits), true
}

// unreachable says whether TCP has no connections to any address of a range.
func unreachable(p netip.Prefix) bool {
	first := p.Addr()
	return first.IsMulticast() ||
		p.IsSingleIP() && (first.IsUnspecified() || first == netip.AddrFrom4([4]byte{255, 255, 255, 255}))
}

func (p *parser) port(r *Rule, text string, at int) bool {
	if text == "*" {
		r.port = anyPort
		return true
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != text {
		return p.bad(at, "this is not a port", "write a number from 1 to 65535, or *")
	}
	r.port = n
	return true
}

// path parses a pattern for paths. It must be as paths are when they are matched.
func (p *parser) path(r *Rule, text string, at int) bool {
	if i := strings.IndexAny(text, "?#"); i >= 0 {
		return p.bad(at+i, "a rule has no query", "end the path before it: a path is matched without its query")
	}
	t, err := cleanPath(text)
	switch {
	case err != nil:
		return p.bad(at, "the rule can never match: "+err.Error(), "")
	case t.unclear != "":
		return p.bad(at, "the rule can never match: "+t.unclear, "such requests are refused where a rule has a path")
	}
	for strings.Contains(t.path, "**") {
		t.path = strings.ReplaceAll(t.path, "**", "*")
	}
	if t.path != "/*" { // all paths, as without one
		r.path = t.path
	}
	return true
}
