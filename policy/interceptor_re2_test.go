package policy

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dlclark/regexp2/v2"
)

// Meanings that ECMAScript has and Go's syntax has not. Each row was tried in
// Node.js.
var ecmaRows = []struct {
	pattern, flags, text string
	want                 bool
}{
	{`^\s*cat\s`, "", "\u00a0cat\u3000f", true},
	{`a\sb`, "", "a\vb", true},
	{`a\sb`, "", "a\ufeffb", true},
	{`a\sb`, "", "a\u180eb", false},
	{`a\Sb`, "", "a\u2003b", false},
	{`[\s]`, "", "\u2028", true},
	{`[^\S]`, "", "\u00a0", true},
	{`a.b`, "", "a\rb", false},
	{`a.b`, "", "a\u2028b", false},
	{`a.b`, "", "a\x85b", true},
	{`a.b`, "s", "a\nb", true},
	{`a$`, "", "a\n", false},
	{`^b`, "", "a\nb", false},
	{`^b`, "m", "a\nb", true},
	{`^b`, "m", "a\rb", true},
	{`a$`, "m", "a\u2029b", true},
	{`\w`, "", "é", false},
	{`\bé`, "", "é", false},
	{`k`, "i", "K", true},
	{`k`, "i", "\u212a", false}, // the Kelvin sign
	{`s`, "i", "\u017f", false},
	{`k`, "iu", "\u212a", true},
	{`é`, "i", "É", true},
	{`[a-c]`, "i", "B", true},
	{`[^a-c]`, "i", "B", false},
	{`[_-a]`, "i", "A", true},
	{`\W`, "i", "S", false},
	{`b`, "y", "ab", false},
	{`a|b`, "y", "ba", true},
	{`b(?=c)`, "y", "abc", false},
	{`b`, "g", "ab", true},
	{`a{,2}`, "", "a{,2}", true},
	{`a{,2}`, "", "aa", false},
	{`x{2}`, "", "xx", true},
	{`]}`, "", "]}", true},
	{`[]`, "", "a", false},
	{`[^]`, "", "\n", true},
	{`[\b]`, "", "\b", true},
	{`[\w-z]`, "", "-", true},
	{`[a\-z]`, "", "b", false},
	{`\x41`, "", "A", true},
	{`\x4`, "", "x4", true},
	{`\u0041`, "", "A", true},
	{`\u{41}`, "u", "A", true},
	{`\u{3}`, "", "uuu", true},
	{`\cA`, "", "\x01", true},
	{`\0`, "", "\x00", true},
	{`(a)\1`, "", "aa", true},
	{`(?<n>a)\k<n>`, "", "aa", true},
	{`(?<n>a)`, "", "a", true},
	{`\p{L}`, "u", "é", true},
	{`\p{L}`, "", "p{L}", true},
	{`(?<!\d)>`, "", "2>", false},
	{`(?<!\d)>`, "", "x>", true},
	{`(?!a)b`, "", "b", true},
	{`\Aa`, "", "Aa", true},
	{`\/`, "", "/", true},
	{`\\`, "", `\`, true},
	{``, "", "", true},
}

// matches asks without a bound that a busy machine could reach.
func matches(m matcher, text string) (matched, decided bool) {
	at, decided := m.match([]segment{{text: text}}, time.Now().Add(time.Minute))
	return at == 0, decided
}

func TestECMAScript(t *testing.T) {
	t.Parallel()
	automata := 0
	for _, r := range ecmaRows {
		m, err := compileECMAScript(r.pattern, r.flags)
		if err != nil {
			t.Errorf("compileECMAScript(%q, %q) = %v", r.pattern, r.flags, err)
			continue
		}
		if _, linear := m.(*automaton); linear {
			automata++
		}
		if got, decided := matches(m, r.text); got != r.want || !decided {
			t.Errorf("/%s/%s.test(%q) = %v, %v; want %v, true", r.pattern, r.flags, r.text, got, decided, r.want)
		}
	}
	if automata < len(ecmaRows)/2 {
		t.Errorf("only %d of %d patterns run as automata", automata, len(ecmaRows))
	}
}

// The default rules, and most that people write, run in linear time.
func TestDefaultRulesAreLinear(t *testing.T) {
	t.Parallel()
	for _, r := range DefaultRules() {
		m, err := compileECMAScript(r.Pattern, r.Flags)
		if _, linear := m.(*automaton); err != nil || !linear {
			t.Errorf("rule %s is run by %T, %v; want an automaton", r.ID, m, err)
		}
	}
}

// An automaton agrees with package regexp on what it was made from, and with an
// ECMAScript engine on the pattern itself.
func FuzzAutomaton(f *testing.F) {
	for _, r := range ecmaRows {
		f.Add(r.pattern, r.flags, r.text)
	}
	for _, r := range DefaultRules() {
		f.Add(r.Pattern, "i", "echo a > b; grep x")
	}
	f.Fuzz(func(t *testing.T, pattern, flags, text string) {
		if len(pattern) > 200 || len(text) > 200 || strings.ContainsFunc(text, func(r rune) bool { return r > 0xffff || r == 0xfffd }) {
			return
		}
		m, err := compileECMAScript(pattern, flags)
		a, linear := m.(*automaton)
		if err != nil || !linear {
			return
		}
		got, decided := matches(a, text)
		again, _ := matches(a, text) // with states remembered
		if !decided || again != got {
			t.Fatalf("/%s/%s.test(%q) = %v, then %v, decided %v", pattern, flags, text, got, again, decided)
		}
		translated, _ := toRE2(pattern, flags)
		if a.sticky {
			translated = `\A(?:` + translated + `)`
		}
		if want := regexp.MustCompile(translated).MatchString(text); got != want {
			t.Fatalf("/%s/%s as %s.test(%q) = %v; package regexp says %v", pattern, flags, translated, text, got, want)
		}
		options := regexp2.ECMAScript
		for flag, option := range map[string]regexp2.RegexOptions{"i": regexp2.IgnoreCase, "s": regexp2.Singleline, "m": regexp2.Multiline, "u": regexp2.Unicode} {
			if strings.Contains(flags, flag) {
				options |= option
			}
		}
		re := regexp2.MustCompile(pattern, options)
		re.MatchTimeout = time.Second
		found, err := re.FindStringMatch(text)
		if err == nil && got != (found != nil && (!a.sticky || found.RuneIndex == 0)) {
			t.Fatalf("/%s/%s.test(%q) = %v; an ECMAScript engine says otherwise", pattern, flags, text, got)
		}
	})
}
