package sink

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
			if got := Filters[tt.filter](tt.in); got != tt.want {
				t.Errorf("%s(%q) = %q; want %q", tt.filter, tt.in, got, tt.want)
			}
		})
	}
}

func TestMinimize(t *testing.T) {
	t.Parallel()
	same := strings.Repeat("same\n", 9)
	short := "same\n[the line above came 9 times]\n"
	filters := []Filter{RepeatedLines, ProgressBars, PassingTests}
	for _, tt := range []struct {
		name     string
		opts     Options
		in, want string
		kept     string // file that has the original
	}{
		{"off", Options{}, same, same, ""},
		{"nothing to do", Options{Minimize: filters}, "a\n", "a\n", ""},
		{"original", Options{Minimize: filters}, "\x1b[1m" + same, short + "[raw output: artifact://0]\n", "0.bash-original.log"},
		{"has an artifact", Options{Minimize: filters, Artifact: Always}, same, short + "[raw output: artifact://0]\n", "0.bash.log"},
		{"nothing may be kept", Options{Minimize: filters, Artifact: Never}, same, same, ""},
		{"truncated", Options{Minimize: filters, Window: Tail(10)}, same, "same\nsame\n", "0.bash.log"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			store := newTestStore(t, StoreOptions{})
			s, err := New(tt.opts, sessionOf(t, store, "s1"), nil)
			if err != nil {
				t.Fatal(err)
			}
			writeAll(t, s.Stdout(), tt.in)
			o := s.Close()
			if got := o.Stdout.Text(); got != tt.want || o.Minimized != strings.Contains(tt.want, "[raw output") {
				t.Errorf("text %q, minimized %v; want %q", got, o.Minimized, tt.want)
			}
			files, err := filepath.Glob(filepath.Join(store.dir, "s1", "*.log"))
			if err != nil {
				t.Fatal(err)
			}
			if tt.kept == "" {
				if len(files) > 0 {
					t.Errorf("files %v; want none", files)
				}
				return
			}
			if len(files) != 1 || filepath.Base(files[0]) != tt.kept {
				t.Fatalf("files %v; want %s", files, tt.kept)
			}
			if data, err := os.ReadFile(files[0]); string(data) != tt.in || err != nil {
				t.Errorf("original %q, %v; want %q", data, err, tt.in)
			}
			a, err := store.Open("s1", "0")
			if err != nil {
				t.Fatal(err)
			}
			if a.Name != tt.kept || a.Close() != nil {
				t.Errorf("Open() is %s; want %s", a.Name, tt.kept)
			}
		})
	}
}

func TestMinimizeWithoutStore(t *testing.T) {
	t.Parallel()
	in := strings.Repeat("same\n", 9)
	if o := run(t, Options{Minimize: []Filter{RepeatedLines}}, in); o.Stdout.Head != in || o.Minimized {
		t.Errorf("text %q; want it whole, as the original cannot be kept", o.Stdout.Head)
	}
}

func FuzzFilters(f *testing.F) {
	f.Add("a\na\na\na\n 10%|██ | 1/2\n 20%|██ | 2/2\n--- PASS: TestX (0.1s)\n")
	f.Add("\n\n\n\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		for name, filter := range Filters {
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
