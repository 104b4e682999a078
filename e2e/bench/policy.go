package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/policy"
)

// typicalCommands are like the commands that agents send most: one line with one or a few
// commands. All of them are allowed, so that no rule ends the check early.
var typicalCommands = []string{
	"git status", "git diff --stat HEAD~1", "git log --oneline -20", "git add src/main.go && git commit -m 'fix: the parser'",
	"ls -la", "git show HEAD:go.mod | head -50", "wc -l *.go", "pwd", "ls -R . | grep -v vendor | head",
	`git grep -n "func main" -- '*.go'`, "git ls-files src | wc -l", "sed -n '10,40p' cmd/app/main.go",
	"go build ./... && go test ./...", "go test -run TestParse -count=1 ./policy 2>&1 | tail -40", "make check", "npm ci && npm run build",
	"python3 -m pytest -q tests/test_api.py", "cargo test --release -- --nocapture", "docker ps -a --format '{{.Names}}'",
	`for f in *.txt; do wc -l "$f"; done`, "if [ -f .env ]; then echo yes; else echo no; fi",
	"mkdir -p build && cd build && cmake .. -DCMAKE_BUILD_TYPE=Release && make -j4", "rm -rf node_modules dist",
	"curl -fsSL https://example.com/data.json | jq '.items[].name' | sort | uniq -c", "export FOO=bar; env | grep FOO",
	"git commit -F - <<'EOF'\n# Notes\n\n- one\n- two\nEOF", "kill -0 1234 2>/dev/null && echo alive", "timeout 30 ./run.sh --verbose",
	"tar czf out.tgz --exclude=.git .", "date >>build.log", "(cd sub && ls) || true",
}

// longScripts are a mebibyte each.
func longScripts() map[string]string {
	const size = 1 << 20
	lines := strings.Repeat("echo building \"$target\" && cp -r ./src/module_name/file ./out/module_name/file\n", size/79)
	return map[string]string{
		"lines of commands":  lines[:strings.LastIndexByte(lines[:min(size, len(lines))], '\n')],
		"one here-document":  "python3 - <<'EOF'\n" + strings.Repeat("some text of a file, 'quoted' and $not\n", size/39) + "EOF\n",
		"one line of words":  "echo " + strings.Repeat("word ", size/5),
		"base64 in a string": "base64 -d <<<'" + strings.Repeat("QUJD", size/4) + "' | tar xz",
	}
}

// Goals of a check.
const (
	typicalGoal = 50 * time.Microsecond
	longGoal    = 50 * time.Millisecond
)

// checks measures how long a policy with all rules takes for a command. It uses no engine.
func checks(ctx context.Context, l *lab) ([]row, error) {
	rules := policy.DefaultRules()
	var tools []string
	for _, r := range rules {
		tools = append(tools, r.Tool)
	}
	p, _, err := policy.New(policy.Options{Rules: rules, Tools: tools, Match: policy.MatchSegments, Checks: policy.CheckNames(), Sets: policy.SetNames()})
	if err != nil {
		return nil, err
	}
	var typical samples
	for range l.sizes.echoes / 10 {
		for _, script := range typicalCommands {
			if err := check(p, script, &typical); err != nil {
				return nil, err
			}
		}
	}
	out := []row{
		checkRow("a typical command, p50", typical.median(), typicalGoal),
		{figure: "a typical command, p99", ours: micros(typical.quantile(0.99)), baseline: "–"},
	}
	scripts := longScripts()
	for _, name := range []string{"lines of commands", "one here-document", "one line of words", "base64 in a string"} {
		var taken samples
		for range l.sizes.oneshots {
			if ctx.Err() != nil {
				return out, context.Cause(ctx)
			}
			if err := check(p, scripts[name], &taken); err != nil {
				return out, err
			}
		}
		out = append(out, checkRow("a script of 1 MiB: "+name+", p50", taken.median(), longGoal))
	}
	return out, nil
}

// check measures one check of a script that is allowed.
func check(p *policy.Policy, script string, taken *samples) error {
	begin := time.Now()
	d := p.Check(policy.Input{Script: script})
	*taken = append(*taken, time.Since(begin))
	if d.Verdict != policy.Allow {
		return fmt.Errorf("%.60q is to be allowed, and is: %+v", script, d)
	}
	return nil
}

func checkRow(figure string, took, limit time.Duration) row {
	return bounded(figure, micros(took), float64(took), float64(limit), fmt.Sprintf("< %v", limit))
}

func micros(d time.Duration) string {
	return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond))
}
