package agent

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/sandboxbash/sandboxbash/sink"
)

// minimizing are the filters of a minimizer, in their order.
var minimizing = []sink.Filter{passingTests, progressBars, repeatedLines}

// minRepeat is how many equal lines in a row are shown once with a count.
const minRepeat = 4

// repeatedLines shows runs of equal lines once, with their number.
func repeatedLines(text string) string {
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

// progress matches lines that show the state of work under way: a percentage with a
// bar or a count, or a bar alone.
var progress = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)` + strings.Join([]string{
		`^.{0,60}\d{1,3}(?:\.\d+)?\s?%.{0,20}[|\[][#=>.\-━█▓▒░▏▎▍▌▋▊▉\s]{3,}[|\]]?`, // 45%|████    | 45/100
		`^.{0,60}[|\[][#=>.\-━█▓▒░▏▎▍▌▋▊▉\s]{5,}[|\]].{0,40}\d`,                     // [=====>    ] 45%
		`^\s*[━█▓▒░▏▎▍▌▋▊▉#=]{10,}[\s\d.%/a-z:,]*$`,                                 // ━━━━━━━ 1.2/3.4 MB
		`^(?:receiving|resolving|counting|compressing|writing|updating)[a-z ]{0,20}:\s+\d{1,3}% \(\d+/\d+\)`,
		`^[0-9a-f]{12}: (?:downloading|extracting|waiting|pulling fs layer|verifying checksum)`,
		`^\s*\d{1,3}\s+[\d.]+[kmg]?\s+\d{1,3}\s+[\d.]+[kmg]?\s+.*--:--:--`, // curl
	}, "|"))
})

// progressBars shows the last line of each run of progress lines.
func progressBars(text string) string {
	return rewrite(text, func(lines []string) []string {
		var out []string
		for i, line := range lines {
			if i+1 < len(lines) && progress().MatchString(line) && progress().MatchString(lines[i+1]) {
				continue
			}
			out = append(out, line)
		}
		return out
	})
}

// passing matches the lines in which go test, pytest, jest, mocha, vitest and TAP
// report a test that passed.
var passing = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(strings.Join([]string{
		`^\s*--- PASS: \S+ \(`,                // go test -v
		`^=== (?:RUN|PAUSE|CONT|NAME)\s+\S+$`, // go test -v
		`^\S+\.py::\S.* PASSED\b`,             // pytest -v
		`^\S+\.py \.+\s+\[\s*\d+%\]$`,         // pytest
		`^\s*(?:✓|✔|√) \S`,                    // jest, mocha, vitest, node --test
		`^PASS \S+\.[cm]?[jt]sx?(?:\s|$)`,     // jest
		`^\s*ok \d+ (?:- )?\S`,                // tap
	}, "|"))
})

// passingTests leaves out the lines about tests that passed, and says how many. The
// output of tests, failures and summaries stay.
func passingTests(text string) string {
	return rewrite(text, func(lines []string) []string {
		var out []string
		gone := 0
		for _, line := range lines {
			if passing().MatchString(line) {
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

// rewrite applies f to the lines of text. The result ends with a line end if text does.
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
