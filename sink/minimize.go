package sink

import (
	"fmt"
	"regexp"
	"strings"
)

// A Filter rewrites the text that is shown so that it says the same in less. It
// returns the text unchanged if it has nothing to remove.
type Filter func(text string) string

// Filters by the name that a configuration uses.
var Filters = map[string]Filter{
	"repeated-lines": RepeatedLines,
	"progress-bars":  ProgressBars,
	"passing-tests":  PassingTests,
}

// minimize applies the filters to what is shown, if the original is stored.
func (s *Sink) minimize(o *Output) {
	if len(s.opts.Minimize) == 0 || o.Truncated() {
		return
	}
	short := []string{o.Stdout.Head, o.Stderr.Head}
	for _, f := range s.opts.Minimize {
		short[0], short[1] = f(short[0]), f(short[1])
	}
	if short[0] == o.Stdout.Head && short[1] == o.Stderr.Head || !s.spill.keepOriginal(o.Artifact) {
		return
	}
	o.Minimized = true
	streams := []*Stream{&o.Stdout, &o.Stderr}
	for i, st := range streams {
		if short[i] != st.Head {
			st.Head = withFooter(short[i], s.spill.id)
		}
	}
}

func withFooter(text, id string) string {
	if text == "" {
		text = "OK"
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + "[raw output: artifact://" + id + "]\n"
}

// minRepeat is how many equal lines in a row are shown once with a count.
const minRepeat = 4

// RepeatedLines shows runs of equal lines once, with how often they came.
func RepeatedLines(text string) string {
	return rewrite(text, func(lines []string) []string {
		var out []string
		for i := 0; i < len(lines); {
			n := 1
			for i+n < len(lines) && lines[i+n] == lines[i] {
				n++
			}
			if n >= minRepeat {
				out = append(out, lines[i], fmt.Sprintf("[the line above came %d times]", n))
			} else {
				out = append(out, lines[i:i+n]...)
			}
			i += n
		}
		return out
	})
}

// progress tells lines that are one state of something under way: a percentage
// with a bar or a count beside it, or a bar alone.
var progress = regexp.MustCompile(`(?i)` + strings.Join([]string{
	`^.{0,60}\d{1,3}(?:\.\d+)?\s?%.{0,20}[|\[][#=>.\-━█▓▒░▏▎▍▌▋▊▉\s]{3,}[|\]]?`, // 45%|████    | 45/100
	`^.{0,60}[|\[][#=>.\-━█▓▒░▏▎▍▌▋▊▉\s]{5,}[|\]].{0,40}\d`,                     // [=====>    ] 45%
	`^\s*[━█▓▒░▏▎▍▌▋▊▉#=]{10,}[\s\d.%/a-z:,]*$`,                                 // ━━━━━━━ 1.2/3.4 MB
	`^(?:receiving|resolving|counting|compressing|writing|updating)[a-z ]{0,20}:\s+\d{1,3}% \(\d+/\d+\)`,
	`^[0-9a-f]{12}: (?:downloading|extracting|waiting|pulling fs layer|verifying checksum)`,
	`^\s*\d{1,3}\s+[\d.]+[kmg]?\s+\d{1,3}\s+[\d.]+[kmg]?\s+.*--:--:--`, // curl
}, "|"))

// ProgressBars shows of every run of progress lines the last one.
func ProgressBars(text string) string {
	return rewrite(text, func(lines []string) []string {
		var out []string
		for i, line := range lines {
			if i+1 < len(lines) && progress.MatchString(line) && progress.MatchString(lines[i+1]) {
				continue
			}
			out = append(out, line)
		}
		return out
	})
}

// passing tells the lines in which go test, pytest, and npm's jest, mocha, vitest
// and tap report a test that passed.
var passing = regexp.MustCompile(strings.Join([]string{
	`^\s*--- PASS: \S+ \(`,                // go test -v
	`^=== (?:RUN|PAUSE|CONT|NAME)\s+\S+$`, // go test -v
	`^\S+\.py::\S.* PASSED\b`,             // pytest -v
	`^\S+\.py \.+\s+\[\s*\d+%\]$`,         // pytest
	`^\s*(?:✓|✔|√) \S`,                    // jest, mocha, vitest, node --test
	`^PASS \S+\.[cm]?[jt]sx?(?:\s|$)`,     // jest
	`^\s*ok \d+ (?:- )?\S`,                // tap
}, "|"))

// PassingTests leaves out the lines of tests that passed, and says how many.
// What tests print, failures and summaries stay.
func PassingTests(text string) string {
	return rewrite(text, func(lines []string) []string {
		var out []string
		gone := 0
		for _, line := range lines {
			if passing.MatchString(line) {
				gone++
				continue
			}
			out = append(out, line)
		}
		if gone == 0 {
			return lines
		}
		return append(out, fmt.Sprintf("[%d lines about passing tests left out]", gone))
	})
}

// rewrite applies f to the lines of text and keeps its last line end.
func rewrite(text string, f func(lines []string) []string) string {
	body, end := strings.CutSuffix(text, "\n")
	if body == "" {
		return text
	}
	short := strings.Join(f(strings.Split(body, "\n")), "\n")
	if end {
		short += "\n"
	}
	return short
}
