package bashtest

import (
	"context"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/policy"
)

var (
	count = flag.Int("scripts", 2000, "how many scripts to compare")
	seed  = flag.Uint64("seed", 1, "of the scripts")
)

func newBash(t *testing.T) *Bash {
	t.Helper()
	b, err := NewBash()
	if err != nil {
		t.Skipf("there is no bash here to compare with: %v", err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	if v, err := b.Version(t.Context()); err != nil || !strings.HasPrefix(v, "5.2.") {
		t.Skipf("bash is %q, %v; want 5.2", v, err)
	}
	return b
}

// TestAgainstBash holds the policy to bash: every command that bash runs was seen,
// or the script is not allowed.
func TestAgainstBash(t *testing.T) {
	t.Parallel()
	b := newBash(t)
	p, _, err := policy.New(policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	allowed, commands, failed := 0, 0, 0
	for i := range *count {
		script := Generate(rand.New(rand.NewPCG(*seed, uint64(i))))
		m, known, ran, err := Compare(t.Context(), p, b, script)
		if err != nil {
			t.Fatalf("script %d, %q: %v", i, script, err)
		}
		if known {
			allowed++
		}
		commands += ran
		if m == nil {
			continue
		}
		small := Shrink(t.Context(), p, b, m)
		t.Errorf("script %d: %q runs %q, which the policy has not seen", i, small.Script, small.Ran)
		if failed++; failed == 60 {
			t.Fatal("too many")
		}
	}
	t.Logf("%d scripts, %d of them allowed, ran %d commands", *count, allowed, commands)
}

// TestGenerateAgain makes the same scripts of the same numbers, and others of others.
func TestGenerateAgain(t *testing.T) {
	t.Parallel()
	scripts := map[string]bool{}
	for i := range uint64(200) {
		script := Generate(rand.New(rand.NewPCG(1, i)))
		if again := Generate(rand.New(rand.NewPCG(1, i))); again != script {
			t.Errorf("Generate of %d = %q and %q", i, script, again)
		}
		scripts[script] = true
	}
	if len(scripts) < 190 {
		t.Errorf("200 numbers make %d scripts", len(scripts))
	}
}

// TestFindsWhatIsNotSeen makes sure that the comparison can fail.
func TestFindsWhatIsNotSeen(t *testing.T) {
	t.Parallel()
	b := newBash(t)
	ran, err := b.Run(t.Context(), "m1 'a b' | (f2; s1 c) && m3; env s2; m4 $'\\n'")
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"m1", "a b"}, {"f2"}, {"s1", "c"}, {"m3"}, {"s2"}, {"m4", "\n"}}
	for _, argv := range want {
		if !slices.ContainsFunc(ran, func(got []string) bool { return slices.Equal(got, argv) }) {
			t.Errorf("Run tells of %q; want %q too", ran, argv)
		}
	}
	known := func(words ...string) *policy.Node {
		n := &policy.Node{}
		for _, word := range words {
			n.Argv = append(n.Argv, policy.Word{Text: word, Known: word != "?"})
		}
		return n
	}
	sudo := known("/usr/bin/sudo", "rm", "?")
	sudo.Children = []*policy.Node{known("rm", "?", "b")}
	for _, tt := range []struct {
		argv string
		want bool
	}{
		{"sudo rm", true},
		{"sudo rm a", true},
		{"rm b", true},
		{"rm a b", true},
		{"rm a b b", true},
		{"rm a", false},
		{"rm", false},
		{"sudo", false},
		{"git push", false},
	} {
		missed := Unpredicted([]*policy.Node{sudo}, [][]string{strings.Fields(tt.argv)})
		if got := len(missed) == 0; got != tt.want {
			t.Errorf("%q is predicted: %v; want %v", tt.argv, got, tt.want)
		}
	}
}

// TestShrink keeps what a mismatch needs, and a path whole.
func TestShrink(t *testing.T) {
	t.Parallel()
	got := shrink("a b; c >/dev/null # d\n(e)", func(text string) bool {
		return strings.Contains(text, ">/dev/null") && strings.Contains(text, "(")
	})
	if want := ">/dev/null("; got != want {
		t.Errorf("shrink = %q; want %q", got, want)
	}
}

// TestRunOfCancelled says nothing of a script that was not let run to its end.
func TestRunOfCancelled(t *testing.T) {
	t.Parallel()
	b := newBash(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if ran, err := b.Run(ctx, "m1"); err == nil {
		t.Errorf("Run = %q, nil; want an error", ran)
	}
}

// TestScriptsEnd ends a script that does not, with all that it has started.
func TestScriptsEnd(t *testing.T) {
	t.Parallel()
	b := newBash(t)
	start := time.Now()
	ran, err := b.Run(t.Context(), "m1; while :; do (:); done & while :; do :; done")
	if err != nil || len(ran) != 1 {
		t.Errorf("Run = %q, %v; want one command", ran, err)
	}
	if took := time.Since(start); took > 10*scriptTime {
		t.Errorf("it took %v", took)
	}
}
