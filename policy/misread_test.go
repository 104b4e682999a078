package policy

import (
	"strings"
	"testing"
	"time"
)

// TestMisread looks at texts that the parser reads otherwise than bash.
func TestMisread(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, Options{Checks: CheckNames(), Sets: SetNames()})
	for _, tt := range []struct {
		script string
		want   Verdict
	}{
		{"echo a # b \\\nrm -rf /", Deny},
		{"echo a # b \\\\\nrm -rf /", Deny},
		{"echo a # b \\\r\nrm -rf /", Deny},
		{"true #\\\nfalse #\\\ngit push -f", Deny},
		{"x=$(true # \\\nrm -rf /)", Deny},
		{"echo `true # \\\nrm -rf /`", Deny},
		{"{ # \\\nrm -rf /; }", Deny},
		{"if true # \\\nthen rm -rf / # \\\nfi", Deny},
		{"case x in # \\\nx) rm -rf /;; # \\\nesac", Deny},
		{"a=(b # \\\nc); rm -rf /", Deny},
		{"eval 'true # \\\nrm -rf /'", Deny},
		{"docker build \\\n  # the cache \\\n  --no-cache .", Allow},
		{"# one \\\n# two \\\necho 'rm -rf /'", Allow},
		{"echo 'a # \\\nrm -rf /'", Allow},
		{"echo a#b \\\nrm -rf /", Allow},
		{"$\\\n(rm -rf /)", Opaque},
		{"cat <\\\n<E\n`rm -rf /`\nE", Opaque},
		{"a &\\\n& b", Opaque},
		{"echo $(''# x\n)", Opaque},
		{"echo a && \\\nb | \\\n  c; x=\"a\\\nb\"", Allow},
	} {
		if d := p.Check(Input{Script: tt.script}); d.Verdict != tt.want {
			t.Errorf("Check(%q) = %s by %s (%s); want %s", tt.script, d.Verdict, d.Rule, d.Reason, tt.want)
		}
	}
}

// TestManyCommentsInTime bounds how often a script is read again.
func TestManyCommentsInTime(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, Options{Checks: CheckNames()})
	few := p.Check(Input{Script: strings.Repeat("ls # \\\n", 100) + "rm -rf /"})
	if few.Verdict != Deny {
		t.Errorf("100 comments: %+v; want deny", few)
	}
	start := time.Now()
	many := p.Check(Input{Script: strings.Repeat("ls # \\\n", maxScript/7)})
	if took := time.Since(start); many.Verdict == Allow || took > 10*time.Second*slowdown {
		t.Errorf("a script of comments: %+v in %v", many, took)
	}
}
