package agent

import (
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/sink"
)

var named = map[string]sink.Filter{"repeated-lines": repeatedLines, "progress-bars": progressBars, "passing-tests": passingTests}

func TestFilters(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ filter, name, in, want string }{
		{"repeated-lines", "none", "a\nb\na\n", "a\nb\na\n"},
		{"repeated-lines", "few", "a\na\na\nb", "a\na\na\nb"},
		{"repeated-lines", "many", "x\na\na\na\na\na\nb\n", "x\na\n[the line above came 5 times]\nb\n"},
		{"repeated-lines", "at the end", "a\na\na\na", "a\n[the line above came 4 times]"},
		{"repeated-lines", "empty", "", ""},
		{"progress-bars", "none", "100% of the tests\n[ok] 3\n", "100% of the tests\n[ok] 3\n"},
		{"progress-bars", "wget", "x\n 10% [==>       ] 1M\n 50% [=====>    ] 5M\n100% [=========>] 9M\ny\n", "x\n100% [=========>] 9M\ny\n"},
		{"progress-bars", "tqdm", " 10%|█         | 1/10\n 20%|██        | 2/10\n", " 20%|██        | 2/10\n"},
		{"progress-bars", "pip", "   ━━━━━━━━━━━━━━━━ 1.0/3.0 MB\n   ━━━━━━━━━━━━━━━━ 3.0/3.0 MB\n", "   ━━━━━━━━━━━━━━━━ 3.0/3.0 MB\n"},
		{"progress-bars", "git", "Receiving objects:  10% (1/10)\nReceiving objects: 100% (10/10), done.\n", "Receiving objects: 100% (10/10), done.\n"},
		{"progress-bars", "rule", "==========\ntitle\n==========\n", "==========\ntitle\n==========\n"},
		{
			"passing-tests", "go", "=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n    b_test.go:1: no\n--- FAIL: TestB (0.00s)\nFAIL\nok  \tpkg\t0.1s\n",
			"    b_test.go:1: no\n--- FAIL: TestB (0.00s)\nFAIL\nok  \tpkg\t0.1s\n[3 lines about passing tests left out]\n",
		},
		{
			"passing-tests", "pytest", "a/test_x.py::test_a PASSED [ 50%]\na/test_x.py::test_b FAILED [100%]\na/test_y.py ....    [ 90%]\na/test_z.py ..F.    [ 95%]\n1 failed\n",
			"a/test_x.py::test_b FAILED [100%]\na/test_z.py ..F.    [ 95%]\n1 failed\n[2 lines about passing tests left out]\n",
		},
		{
			"passing-tests", "jest", "PASS src/a.test.ts\nFAIL src/b.test.ts\n  ✓ adds (2 ms)\n  ✕ subtracts\nTests: 1 failed, 1 passed\n",
			"FAIL src/b.test.ts\n  ✕ subtracts\nTests: 1 failed, 1 passed\n[2 lines about passing tests left out]\n",
		},
		{"passing-tests", "tap", "ok 1 - a\nnot ok 2 - b\n", "not ok 2 - b\n[1 lines about passing tests left out]\n"},
		{"passing-tests", "no tests", "PASS the salt\nok then\n", "PASS the salt\nok then\n"},
	} {
		t.Run(tt.filter+"/"+tt.name, func(t *testing.T) {
			t.Parallel()
			if got := named[tt.filter](tt.in); got != tt.want {
				t.Errorf("%s(%q) = %q; want %q", tt.filter, tt.in, got, tt.want)
			}
		})
	}
}

func FuzzFilters(f *testing.F) {
	f.Add("a\na\na\na\n 10%|██ | 1/2\n 20%|██ | 2/2\n--- PASS: TestX (0.1s)\n")
	f.Add("\n\n\n\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		for name, filter := range named {
			short := filter(text)
			for line := range strings.Lines(short) {
				line = strings.TrimSuffix(line, "\n")
				if !strings.Contains(text, line) && !strings.HasPrefix(line, "[") {
					t.Errorf("%s(%q) made up %q", name, text, line)
				}
			}
			if strings.HasSuffix(text, "\n") != strings.HasSuffix(short, "\n") {
				t.Errorf("%s(%q) = %q", name, text, short)
			}
		}
	})
}
