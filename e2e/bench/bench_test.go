package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"
)

func TestQuantile(t *testing.T) {
	t.Parallel()
	hundred := make(samples, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i)
	}
	tests := []struct {
		name string
		s    samples
		q    float64
		want time.Duration
	}{
		{"none", nil, 0.5, 0},
		{"one", samples{7}, 0.99, 7},
		{"lower middle of an even number", samples{4, 1, 3, 2}, 0.5, 2},
		{"middle of an odd number", samples{3, 1, 2}, 0.5, 2},
		{"p90", hundred, 0.9, 90},
		{"p99", hundred, 0.99, 99},
		{"least", hundred, 0, 1},
		{"greatest", hundred, 1, 100},
	}
	for _, tt := range tests {
		before := slices.Clone(tt.s)
		if got := tt.s.quantile(tt.q); got != tt.want {
			t.Errorf("%s: quantile(%g) = %d; want %d", tt.name, tt.q, got, tt.want)
		}
		if !slices.Equal(tt.s, before) {
			t.Errorf("%s: quantile(%g) has changed the samples", tt.name, tt.q)
		}
	}
}

func TestInterleave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var turns strings.Builder
		turn := func(name string, took time.Duration) contender {
			return contender{name: name, take: timed(func(context.Context) error {
				turns.WriteString(name)
				time.Sleep(took)
				return nil
			})}
		}
		a, b, rare := turn("a", time.Second), turn("b", 2*time.Second), turn("r", 3*time.Second)
		rare.every, rare.settle = 2, time.Minute
		begin := time.Now()
		got, err := interleave(t.Context(), 4, a, b, rare)
		if err != nil {
			t.Fatal(err)
		}
		// The first round does not count; each begins with the next contender.
		if want := "abr" + "ba" + "rab" + "ab" + "bra"; turns.String() != want {
			t.Errorf("interleave() took turns %s; want %s", turns.String(), want)
		}
		for name, want := range map[string]samples{
			"a": {time.Second, time.Second, time.Second, time.Second},
			"b": {2 * time.Second, 2 * time.Second, 2 * time.Second, 2 * time.Second},
			"r": {3 * time.Second, 3 * time.Second},
		} {
			if !slices.Equal(got[name], want) {
				t.Errorf("interleave()[%s] = %v; want %v", name, got[name], want)
			}
		}
		if got, want := time.Since(begin), 5*3*time.Second+3*(3*time.Second+time.Minute); got != want {
			t.Errorf("interleave() took %s; want %s", got, want)
		}
	})
}

func TestInterleaveEnds(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")
	_, err := interleave(t.Context(), 3, contender{name: "it", take: timed(func(context.Context) error { return bad })})
	if !errors.Is(err, bad) || !strings.Contains(err.Error(), "it, round 0") {
		t.Errorf("interleave() = %v; want the contender's error, with its name and round", err)
	}
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	rounds := 0
	_, err = interleave(ctx, 3, contender{name: "it", settle: time.Hour, take: timed(func(context.Context) error {
		rounds++
		cancel(stop)
		return nil
	})})
	if !errors.Is(err, stop) || rounds != 1 {
		t.Errorf("interleave() = %v after %d rounds; want %v after 1", err, rounds, stop)
	}
}

func TestRows(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		row  row
		want string
	}{
		{
			"met", slower("p50", 13*time.Millisecond, 10*time.Millisecond, "bash", goal{sense: atMost, limit: 1.3}),
			"| p50 | 13.00 ms | bash 10.00 ms | 1.30 | ≤ 1.3 | yes |",
		},
		{
			"missed", slower("p50", 14*time.Millisecond, 10*time.Millisecond, "bash", goal{sense: atMost, limit: 1.3}),
			"| p50 | 14.00 ms | bash 10.00 ms | 1.40 | ≤ 1.3 | **no** |",
		},
		{
			"times faster", faster("p50", 2*time.Millisecond, 42*time.Millisecond, "docker", goal{sense: atLeast, limit: 20}),
			"| p50 | 2.00 ms | docker 42.00 ms | 21 | ≥ 20 | yes |",
		},
		{
			"a rate", rate("out", work{1000, "MB"}, 2*time.Second, time.Second, "raw", goal{sense: atLeast, limit: 0.8}),
			"| out | 500 MB/s | raw 1000 MB/s | 0.50 | ≥ 0.8 | **no** |",
		},
		{
			"no goal", slower("p90", time.Millisecond, time.Millisecond, "bash", goal{}),
			"| p90 | 1.00 ms | bash 1.00 ms | 1 | – | – |",
		},
		{"a bound", bounded("idle", "4.0 MiB", 4<<20, 6<<20, "< 6 MiB"), "| idle | 4.0 MiB | – | – | < 6 MiB | yes |"},
		{
			"no baseline was measured", slower("p50", time.Millisecond, 0, "bash", goal{sense: atMost, limit: 1.3}),
			"| p50 | 1.00 ms | bash 0.00 ms | – | ≤ 1.3 | **no** |",
		},
	}
	for _, tt := range tests {
		var b bytes.Buffer
		p := page{sections: []section{{"title", []row{tt.row}}}}
		p.write(&b)
		if !strings.Contains(b.String(), tt.want+"\n") {
			t.Errorf("%s: write() = %s\nwant the line %s", tt.name, b.String(), tt.want)
		}
	}
}

func TestStatusNumber(t *testing.T) {
	t.Parallel()
	text := []byte("Name:\trunner\nPPid:\t12\nVmHWM:\t    4096 kB\nVmRSS:\t    2048 kB\n")
	for field, want := range map[string]int64{"PPid": 12, "VmRSS": 2048, "VmHWM": 4096} {
		if got, err := statusNumber(text, field); got != want || err != nil {
			t.Errorf("statusNumber(%s) = %d, %v; want %d, nil", field, got, err, want)
		}
	}
	if got, err := statusNumber(text, "VmPeak"); err == nil {
		t.Errorf("statusNumber(VmPeak) = %d, nil; want an error", got)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-only", "nothing-of-that-name"}, {"-only", "("}, {"more"}, {"-unknown"}} {
		var stderr bytes.Buffer
		if got := run(args, &stderr, &stderr); got != exitUsage {
			t.Errorf("run(%q) = %d; want %d", args, got, exitUsage)
		}
	}
	o, err := parse([]string{"-quick", "-only", "^(echo|warm)$"}, &bytes.Buffer{})
	var chosen []string
	for _, m := range o.selected() {
		chosen = append(chosen, m.name)
	}
	if want := []string{"echo", "warm"}; err != nil || !slices.Equal(chosen, want) || o.sizes != quick {
		t.Errorf("parse() selects %v, %v; want %v of the quick sizes", chosen, err, want)
	}
}

// A program that is not there is told before anything is measured, and only where it is needed.
func TestNoBinary(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "sandboxbash")
	for _, tt := range []struct{ only, want string }{
		{"network-cost", "network-cost runs the program: "},
		{"^oneshot$", "oneshot runs the program: "},
		{"^(policy|echo)$", ""},
	} {
		o, err := parse([]string{"-binary", missing, "-only", tt.only}, t.Output())
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := o.checkBinary(); err != nil {
			got = err.Error()
		}
		if tt.want == "" && got != "" || !strings.HasPrefix(got, tt.want) || tt.want != "" && !strings.Contains(got, "make build") {
			t.Errorf("-only %s without the program: %q; want %q, and what to do", tt.only, got, tt.want)
		}
	}
}

// TestQuickRun takes the quick measurements that need no built binary, on the real
// engine, and looks for what they leave behind.
func TestQuickRun(t *testing.T) {
	if os.Getenv("SANDBOXBASH_TEST_ENGINE") == "none" {
		t.Skip("needs an engine, and SANDBOXBASH_TEST_ENGINE=none")
	}
	out := filepath.Join(t.TempDir(), "benchmarks.md")
	var stdout, stderr bytes.Buffer
	if got := run([]string{"-quick", "-only", "echo|warm|workers|endurance", "-out", out}, &stdout, &stderr); got != 0 {
		if strings.Contains(stderr.String(), "unreachable") && os.Getenv("CI") != "true" {
			t.Skipf("no engine answers: %s", stderr.String())
		}
		t.Fatalf("run() = %d; want 0\n%s", got, stderr.String())
	}
	page, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"`docker exec`", "raw exec API", "`docker run --rm`", "commands/s", "idle runner", "A quick run"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page says nothing of %q:\n%s", want, page)
		}
	}
	docker, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = docker.Close() })
	left, err := docker.ContainerList(t.Context(), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", label))})
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
