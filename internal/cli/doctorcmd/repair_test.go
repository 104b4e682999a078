package doctorcmd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
)

// doctorOf is a doctor that prints to out.
func doctorOf(out io.Writer, fix bool) *doctor {
	p := core.New("", nil, nil, out, io.Discard)
	p.Cfg.Config = &config.Config{}
	return &doctor{streams: p.Streams, cfg: p.Cfg, fix: fix}
}

// doctor warns of a configuration file that others can change, and --fix takes that right and no other.
func TestFileOfOthers(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("permissions are those of unix")
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]os.FileMode{0o600: 0o600, 0o644: 0o644, 0o664: 0o644, 0o666: 0o644, 0o602: 0o600} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		for _, fix := range []bool{false, true} {
			var out bytes.Buffer
			d := doctorOf(&out, fix)
			for _, f := range fileFindings(file) {
				d.tell(t.Context(), f)
			}
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			switch text := out.String(); {
			case mode == want && text != "":
				t.Errorf("mode %04o: %q; want nothing", mode, text)
			case mode != want && !fix && (info.Mode() != mode || !strings.Contains(text, "warn  config: other users can change") || !strings.Contains(text, "doctor --fix")):
				t.Errorf("mode %04o: it is now %v, %q; want a warning alone", mode, info.Mode(), text)
			case mode != want && fix && (info.Mode() != want || !strings.Contains(text, "\nfix   config: set the mode") || !strings.Contains(text, "\nok    config: repaired: ")):
				t.Errorf("mode %04o with --fix: it is now %v, %q; want %v, told before and after", mode, info.Mode(), text, want)
			}
		}
	}
	if got := fileFindings(""); got != nil {
		t.Errorf("without a file: %+v", got)
	}
}

// Leftovers are removed with --fix alone, and a failure of that is a finding.
func TestLeftoverFindings(t *testing.T) {
	t.Parallel()
	broken := errors.New("the engine is gone")
	for _, row := range []struct {
		name    string
		ids     []string
		list    error
		reap    error
		fix     bool
		reaps   int
		want    []string
		without string
	}{
		{"none", nil, nil, nil, true, 0, []string{"ok    leftovers: there are none"}, "fix "},
		{"some", []string{"0199aaaa", "0199bbbb"}, nil, nil, false, 0, []string{"warn  leftovers: there are some of 2 ended sessions: ", "doctor --fix"}, "\nfix "},
		{"some, with --fix", []string{"0199aaaa"}, nil, nil, true, 1, []string{"\nfix   leftovers: remove what is left of 1 sessions", "\nok    leftovers: repaired: "}, "doctor --fix"},
		{"a failure", []string{"0199aaaa"}, nil, broken, true, 1, []string{"\nfail  leftovers: not repaired: the engine is gone"}, "repaired: nothing"},
		{"no list", nil, broken, nil, true, 0, []string{"warn  leftovers: the engine is gone"}, "fix "},
	} {
		var out bytes.Buffer
		reaps := 0
		d := doctorOf(&out, row.fix)
		for _, f := range leftoverFindings(row.ids, row.list, func(context.Context) ([]string, error) {
			reaps++
			return nil, row.reap
		}) {
			d.tell(t.Context(), f)
		}
		text := out.String()
		for _, want := range row.want {
			if !strings.Contains(text, want) || strings.Contains(text, row.without) || reaps != row.reaps {
				t.Errorf("%s: %q, reaped %d times; want %q, no %q, %d times", row.name, text, reaps, want, row.without, row.reaps)
			}
		}
	}
}

// With --json the findings of a repair are in the document, and nothing is printed meanwhile.
func TestRepairAsJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := doctorOf(&out, true)
	d.cfg.Config.JSON = true
	f := warn("x", "bad", "mend it")
	f.repair = &repair{"mending", func(context.Context) (string, error) { return "mended", nil }}
	d.tell(t.Context(), f)
	if out.Len() > 0 || len(d.found) != 2 || d.found[0].Level != levelWarn || d.found[1].Text != "repaired: mended" || d.found[1].Level != levelOK {
		t.Errorf("it prints %q, and has found %+v", out.String(), d.found)
	}
}

func TestNamedBy(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"": "named by the caller", "the default": "at the default socket", "DOCKER_HOST": "named by DOCKER_HOST", "--engine": "named by --engine",
		"Colima's": "found at Colima's socket: nothing names an engine, and the default socket is not there",
	} {
		if got := namedBy(source); got != want {
			t.Errorf("namedBy(%q) = %q; want %q", source, got, want)
		}
	}
}
