package policy

import (
	"slices"
	"strconv"
	"strings"
)

// maxBraces bounds the opening braces of a word: matching them takes the square of their
// number. A word with more is not expanded.
const maxBraces = 64

// expandBraces returns the words, as parts, that the braces of a word make: one if it has
// none. made counts the words made on the way. It reports false if there are too many.
func expandBraces(parts []part) (alternatives [][]part, made int, ok bool) {
	open := 0
	for _, p := range parts {
		if p.kind == brace {
			open += strings.Count(p.text, "{")
		}
	}
	if open == 0 {
		return [][]part{parts}, 0, true
	}
	if open > maxBraces {
		return nil, open, false
	}
	b := braces{}
	out := b.expand(braceTokens(parts))
	return out, b.made, !b.over
}

// braceTokens splits unquoted text so that each {, } and , is a part of its own.
func braceTokens(parts []part) []part {
	var out []part
	for _, p := range parts {
		if p.kind != brace {
			out = append(out, p)
			continue
		}
		for text := p.text; text != ""; {
			i := strings.IndexAny(text, "{},")
			if i < 0 {
				i = len(text)
			}
			if i == 0 {
				i = 1
			}
			out = append(out, part{kind: brace, text: text[:i]})
			text = text[i:]
		}
	}
	return out
}

type braces struct {
	made int
	over bool
}

func isToken(p part, s string) bool { return p.kind == brace && p.text == s }

// expand returns the words that tokens make. In bash, {} at the start of a text is text.
func (b *braces) expand(tokens []part) [][]part {
	for i, t := range tokens {
		if !isToken(t, "{") || i == 0 && len(tokens) > 1 && isToken(tokens[1], "}") {
			continue
		}
		end, commas := matchBrace(tokens, i)
		if end < 0 {
			continue
		}
		inside := tokens[i+1 : end]
		var middle [][]part
		switch {
		case slices.ContainsFunc(inside, func(t part) bool { return isToken(t, ",") }):
			start := i + 1
			for _, c := range append(commas, end) {
				middle = append(middle, b.expand(tokens[start:c])...)
				start = c + 1
			}
		default:
			if middle = sequence(inside); middle == nil {
				middle = [][]part{tokens[i : end+1]} // text, with its braces
			}
		}
		return b.product(tokens[:i], middle, b.expand(tokens[end+1:]))
	}
	return [][]part{tokens}
}

// product returns the words that start with before, go on with one of middle, and end in
// one of after.
func (b *braces) product(before []part, middle, after [][]part) [][]part {
	b.made += len(middle) * len(after)
	if b.over = b.over || b.made > maxWords; b.over {
		return nil
	}
	out := make([][]part, 0, len(middle)*len(after))
	for _, m := range middle {
		for _, a := range after {
			word := make([]part, 0, len(before)+len(m)+len(a))
			out = append(out, append(append(append(word, before...), m...), a...))
		}
	}
	return out
}

// matchBrace returns the index of the } that closes the { at i, or -1, and the commas
// between them that belong to them. In bash, a } before the first comma or ".." is text.
func matchBrace(tokens []part, i int) (end int, commas []int) {
	depth, found := 0, false
	for j := i + 1; j < len(tokens); j++ {
		t := tokens[j]
		switch {
		case isToken(t, "{"):
			depth++
		case isToken(t, "}") && depth == 0 && found:
			return j, commas
		case isToken(t, "}") && depth > 0:
			depth--
		case isToken(t, ",") && depth == 0:
			commas, found = append(commas, j), true
		case t.kind == brace && depth == 0 && strings.Contains(t.text, ".."):
			found = true
		}
	}
	return -1, nil
}

// sequence returns the words of {a..c} or {1..9..2}, or nil if it is neither. A long
// sequence becomes one word that is not known: no rule is about numbers.
func sequence(tokens []part) [][]part {
	if len(tokens) != 1 || tokens[0].kind != brace {
		return nil
	}
	text := tokens[0].text
	bounds := strings.Split(text, "..")
	if len(bounds) != 2 && len(bounds) != 3 {
		return nil
	}
	step := 1
	if len(bounds) == 3 {
		n, err := strconv.Atoi(bounds[2])
		if err != nil {
			return nil
		}
		step = max(n, -n, 1)
	}
	from, to, letters, ok := sequenceBounds(bounds[0], bounds[1])
	if !ok {
		return nil
	}
	if d := to - from; d/step > 100 || d/step < -100 {
		return [][]part{{{kind: unknown, text: "{" + text + "}"}}}
	}
	if from > to {
		step = -step
	}
	var out [][]part
	for n := from; step > 0 && n <= to || step < 0 && n >= to; n += step {
		item := strconv.Itoa(n)
		if letters {
			item = string(rune(n))
		}
		out = append(out, []part{{text: item}})
	}
	return out
}

// sequenceBounds reads two numbers, or two letters.
func sequenceBounds(a, b string) (from, to int, letters, ok bool) {
	from, errFrom := strconv.Atoi(a)
	to, errTo := strconv.Atoi(b)
	const most = 1 << 30 // so that nothing computed from them overflows
	switch {
	case errFrom == nil && errTo == nil && max(from, -from, to, -to) < most:
		return from, to, false, true
	case len(a) == 1 && len(b) == 1 && isLetter(a[0]) && isLetter(b[0]):
		return int(a[0]), int(b[0]), true, true
	}
	return 0, 0, false, false
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
