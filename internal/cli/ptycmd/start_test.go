package ptycmd

import (
	"slices"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/screen"
)

func TestParseSize(t *testing.T) {
	t.Parallel()
	if got, err := parseSize("132x43"); err != nil || got != (screen.Size{Cols: 132, Rows: 43}) {
		t.Errorf("parseSize(132x43) = %v, %v", got, err)
	}
	for _, bad := range []string{"", "80", "80x", "x24", "0x24", "80x0", "-1x5", "80x24x3", "80x24 x", "80 x 24", "axb"} {
		if got, err := parseSize(bad); err == nil {
			t.Errorf("parseSize(%q) = %v; want an error", bad, got)
		}
	}
}

// Flags that were given are handed over as they were, lists and all.
func TestChangedFlags(t *testing.T) {
	t.Parallel()
	cmd := Command(core.New("", nil, nil, nil, nil))
	start, args, err := cmd.Find([]string{"start", "--env", "A=1,2", "-e", "B=x y", "--timeout=5s", "--quiet", "0199"})
	if err != nil {
		t.Fatal(err)
	}
	if err := start.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	want := []string{"--env=A=1,2", "--env=B=x y", "--quiet=true", "--timeout=5s"}
	if got := changedFlags(start); !slices.Equal(want, got) {
		t.Errorf("changedFlags() = %q; want %q", got, want)
	}
}
