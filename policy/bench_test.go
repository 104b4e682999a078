package policy

import (
	"strings"
	"testing"
	"time"
)

// typical are commands as agents send them.
var typical = []string{
	"ls -la",
	"git status && git diff --stat",
	"cd /work && go test ./... 2>&1 | tail -20",
	`grep -rn "func main" --include='*.go' . | head -5`,
	"for f in *.txt; do echo \"$f\"; wc -l < \"$f\"; done",
	"cat > x.py <<'EOF'\nimport sys\nprint(sys.argv)\nEOF\npython3 x.py a b",
	`find . -name '*.o' -exec rm -f {} + && make -j"$(nproc)" CC=gcc`,
	"export PATH=$HOME/bin:$PATH; npm ci && npm run build",
}

func BenchmarkCheckTypical(b *testing.B) {
	for name, o := range map[string]Options{
		"none":   {},
		"checks": {Checks: CheckNames()},
		"all":    {Checks: CheckNames(), Sets: SetNames(), Mode: Guarded},
	} {
		b.Run(name, func(b *testing.B) {
			p := newPolicy(b, o)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				p.Check(Input{Script: typical[i%len(typical)]})
			}
		})
	}
}

func BenchmarkCheckMiB(b *testing.B) {
	p := newPolicy(b, Options{Checks: CheckNames(), Sets: SetNames()})
	for name, line := range map[string]string{
		"commands": "echo \"line $i\" | sed 's/a/b/' >> out.txt && ls -la /tmp/dir\n",
		"plain":    "echo hello world 12345\n",
		"data":     "0123456789abcdef,0123456789abcdef,\"a;b\",$(no),'c'\n",
	} {
		script := strings.Repeat(line, (1<<20)/len(line))
		if name == "data" {
			script = "cat > f <<'EOF'\n" + script + "EOF\n"
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(script)))
			b.ReportAllocs()
			for b.Loop() {
				if d := p.Check(Input{Script: script}); d.Verdict != Allow {
					b.Fatalf("%+v", d)
				}
			}
		})
	}
}

// BenchmarkInterceptor matches patterns with a MiB that must be read to its end. Some are
// hostile to engines that backtrack or that remember no states.
func BenchmarkInterceptor(b *testing.B) {
	const size = 1 << 20
	for _, bm := range []struct{ name, pattern, text string }{
		{"find", DefaultRules()[2].Pattern, "find " + strings.Repeat("a/b.c ", size/6)},
		{"echo", DefaultRules()[6].Pattern, "echo " + strings.Repeat("a b 'c' ", size/8)},
		{"perl", DefaultRules()[4].Pattern, "perl " + strings.Repeat("a - b.c ", size/8)},
		{"unanchored", `rm\s+-rf`, strings.Repeat("rm a/b.c ", size/9)},
		{"nested", `(a+)+$`, strings.Repeat("a", size) + "!"},
		{"counted", `.{1,1000}x`, strings.Repeat("a", size)},
		{"alternatives", `(a|aa)+$`, strings.Repeat("a", size) + "!"},
	} {
		b.Run(bm.name, func(b *testing.B) {
			m, err := compileECMAScript(bm.pattern, "")
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(size)
			undecided := 0
			for b.Loop() {
				if _, decided := m.match([]segment{{text: bm.text}}, time.Now().Add(matchTime)); !decided {
					undecided++
				}
			}
			b.ReportMetric(float64(undecided)/float64(b.N), "undecided/op")
		})
	}
}
