package tool

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sandboxbash/sandboxbash/internal/corpus"
	"github.com/sandboxbash/sandboxbash/sink"
)

// randomText makes lines of some words, of more bytes than characters here and there.
func randomText(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(40) {
		b.WriteString([]string{"", "a", "ünï", "some words", strings.Repeat("x", r.IntN(30)), "😀😀"}[r.IntN(6)])
		if r.IntN(8) > 0 {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// TestCutProperties: an excerpt keeps to its limits, its parts are the text's own, and what is said
// of it adds up.
func TestCutProperties(t *testing.T) {
	t.Parallel()
	whole, shortened := 0, 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		text := randomText(r)
		l := cutLimits{Lines: 1 + r.IntN(20), Bytes: 1 + r.IntN(200), HeadLines: r.IntN(20), HeadBytes: r.IntN(200)}
		lines := strings.Split(text, "\n")
		fits := len(lines) <= l.Lines && len(text) <= l.Bytes
		for name, cut := range map[string]func(string, cutLimits) excerpt{"cutHead": cutHead, "cutTail": cutTail, "cutMiddle": cutMiddle} {
			got := cut(text, l)
			about := fmt.Sprintf("seed %d: %s(%q, %+v) = %q, %+v", seed, name, text, l, got.Text, got.Truncation)
			if fits != (got.Truncation == nil) || fits && got.Text != text {
				t.Errorf("%s; want it cut: %t", about, !fits)
			}
			if got.Truncation == nil {
				whole++
				continue
			}
			shortened++
			tr := got.Truncation
			if tr.TotalBytes != int64(len(text)) || tr.TotalLines != int64(len(lines)) || tr.OutputBytes != int64(len(got.Text)) {
				t.Errorf("%s; want totals of %d bytes and %d lines", about, len(text), len(lines))
			}
			if !utf8.ValidString(got.Text) {
				t.Errorf("%s: a character is split", about)
			}
			switch tr.Direction {
			case sink.DirectionHead:
				kept := strings.Join(lines[:tr.ShownRange.End], "\n")
				if got.Text != kept || tr.ShownRange.Start != 1 || len(got.Text) > l.Bytes || int(tr.OutputLines) > l.Lines {
					t.Errorf("%s; want the first lines", about)
				}
				// One line more would be too much.
				if n := int(tr.ShownRange.End); n < min(l.Lines, len(lines)) && len(strings.Join(lines[:n+1], "\n")) <= l.Bytes {
					t.Errorf("%s; there is room for another line", about)
				}
			case sink.DirectionTail:
				kept := strings.Join(lines[tr.ShownRange.Start-1:], "\n")
				if got.LastLinePartial {
					kept = sink.TailBytes(kept, l.Bytes)
				}
				if got.Text != kept || tr.ShownRange.End != int64(len(lines)) || len(got.Text) > l.Bytes || int(tr.OutputLines) > l.Lines {
					t.Errorf("%s; want the last lines", about)
				}
				if n := int(tr.ShownRange.Start) - 1; n > 0 && len(lines)-n < l.Lines && len(strings.Join(lines[n-1:], "\n")) <= l.Bytes {
					t.Errorf("%s; there is room for another line", about)
				}
			case sink.DirectionMiddle:
				head := strings.Join(lines[:tr.HeadRange.End], "\n")
				tail := strings.Join(lines[tr.TailRange.Start-1:], "\n")
				if got.LastLinePartial {
					tail = sink.TailBytes(tail, l.withDefaults().Bytes-l.withDefaults().HeadBytes)
				}
				if head != "" { // the marker is on a line of its own
					head = strings.TrimSuffix(head, "\n") + "\n"
				}
				if !strings.HasPrefix(got.Text, head+"[… ") || !strings.HasSuffix(got.Text, " …]\n"+tail) || len(got.Text) > l.Bytes+len("\n[… 99 lines elided (9.9KB) …]\n") {
					t.Errorf("%s; want %q and %q", about, head, tail)
				}
				if first := strings.Join(lines[:tr.HeadRange.End], "\n"); tr.ElidedBytes != int64(len(text)-len(first)-len(tail)) || tr.ElidedLines != tr.TailRange.Start-tr.HeadRange.End-1 {
					t.Errorf("%s; want what is elided to be the rest", about)
				}
			default:
				t.Errorf("%s: direction %q", about, tr.Direction)
			}
		}
	}
	if whole < 200 || shortened < 200 {
		t.Errorf("%d were whole and %d shortened; want enough of both", whole, shortened)
	}
}

// TestHeadTailAsPrograms: what a head or tail that was removed would have shown, the result shows.
func TestHeadTailAsPrograms(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 2))
		text := randomText(r) + "last" // without an end: the contract counts what comes after it as a line
		program, lines := []string{"head", "tail"}[r.IntN(2)], 1+r.IntN(30)
		command := fmt.Sprintf("cat%s|%s%s %s%d ", strings.Repeat(" ", r.IntN(3)), strings.Repeat(" ", r.IntN(2)), program, []string{"-n ", "-n", "-"}[r.IntN(3)], lines)
		cmd := osexec.CommandContext(t.Context(), "bash", "--noprofile", "--norc", "-c", command)
		cmd.Stdin = strings.NewReader(text)
		want, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		rest, head, tail := ExtractHeadTail(command)
		if rest != "cat" || (head == nil) == (tail == nil) {
			t.Errorf("ExtractHeadTail(%q) = %q, %v, %v", command, rest, head, tail)
		}
		got, applied := applyHeadTail(text, head, tail)
		if got != strings.TrimSuffix(string(want), "\n") && got != string(want) {
			t.Errorf("%s of %q is %q; bash shows %q", command, text, got, want)
		}
		if applied != (got != text) {
			t.Errorf("%s of %q: applied = %t", command, text, applied)
		}
	}
	for _, command := range []string{"cat | head", "cat | head -n", "cat | head -n x", "cat | head -n 3 | wc", "head -n 3", "cat | heads -n 3", "cat | head -c 3", "cat | tail -f -n 3", "cat | tail -n +3"} {
		if rest, head, tail := ExtractHeadTail(command); rest != command || head != nil || tail != nil {
			t.Errorf("ExtractHeadTail(%q) = %q, %v, %v; want it left alone", command, rest, head, tail)
		}
	}
}

// TestStrippedShowsTheSame: for bash, a command without its last head or tail writes what the whole
// one does, and more.
func TestStrippedShowsTheSame(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"seq 5 | head -n 2":                          "seq 5",
		"seq 5|tail -2":                              "seq 5",
		"seq 5 2>&1 | head -c 3":                     "seq 5",
		"seq 5 | sort -r | head -1":                  "seq 5 | sort -r",
		"seq 3 | head -1 && seq 4 | tail -1":         "seq 3 && seq 4",
		"seq 3 | head -1; echo x":                    "seq 3; echo x",
		"seq 5 | head --lines=2":                     "seq 5",
		"seq 5 | head -n 2 -q":                       "seq 5",
		"seq 5 |& head -2":                           "seq 5",
		"seq 5 | head -2 | wc -l":                    "seq 5 | head -2 | wc -l",
		"x=$(seq 5 | head -2); echo $x":              "x=$(seq 5 | head -2); echo $x",
		"seq 5 | head -2 > f; cat f":                 "seq 5 | head -2 > f; cat f",
		"! seq 5 | head -2":                          "! seq 5 | head -2",
		"seq 5 | head -n $((1+1))":                   "seq 5 | head -n $((1+1))",
		"seq 5 | tail -n +2":                         "seq 5 | tail -n +2",
		"(seq 5) | head -2":                          "(seq 5) | head -2",
		"{ seq 5; } | head -2":                       "{ seq 5; } | head -2",
		"for i in 1 2; do seq $i | head -1; done":    "for i in 1 2; do seq $i | head -1; done",
		"seq 5 | X=1 head -2":                        "seq 5 | X=1 head -2",
		"seq 5 | head -2 /dev/null":                  "seq 5 | head -2 /dev/null",
		"seq 5 |\nhead -2":                           "seq 5 |\nhead -2",
		"echo 'a | head -2'":                         "echo 'a | head -2'",
		"seq 5 | head -n":                            "seq 5 | head -n",
		"seq 2 | head -n2k":                          "seq 2",
		"echo a >f 2>&1; cat f":                      "echo a >f 2>&1; cat f",
		"echo a 2>&1":                                "echo a",
		"if seq 5 | head -2; then echo y; fi | cat":  "if seq 5 | head -2; then echo y; fi | cat",
		"coproc seq 5 | head -2; wait":               "coproc seq 5 | head -2; wait",
		"seq 5 | head -2" + strings.Repeat(" ", 1e5): "seq 5 | head -2" + strings.Repeat(" ", 1e5),
	} {
		got, stripped := StripHeadTail(command)
		if got != want || (len(stripped) > 0) != (want != command) {
			t.Errorf("StripHeadTail(%.60q) = %.60q, %q; want %.60q", command, got, stripped, want)
		}
		if got == command || strings.Contains(command, "\n") {
			continue
		}
		dir := t.TempDir()
		before, err := bash(t, Plan{Command: command}, dir)
		after, errAfter := bash(t, Plan{Command: got}, dir)
		if err != nil || errAfter != nil {
			t.Errorf("%q: %v; %q: %v", command, err, got, errAfter)
		}
		for line := range strings.SplitSeq(strings.TrimSuffix(before, "\n"), "\n") {
			if !strings.Contains(after, line) {
				t.Errorf("%q shows %q; %q shows %q", command, before, got, after)
			}
		}
	}
}

// TestShellQuote: bash reads any quoted text as it was.
func TestShellQuote(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		text := make([]byte, r.IntN(40))
		for i := range text {
			text[i] = "'\"\\$`!*?~ \t\n;|&<>(){}[]#=-aé\x01\xff"[r.IntN(31)]
		}
		out, err := bash(t, Plan{Command: "printf %s " + shellQuote(string(text))}, t.TempDir())
		if err != nil || out != string(text) {
			t.Errorf("bash reads %q as %q, %v", text, out, err)
		}
	}
}

// TestHostilePaths: whatever a URL says, it stands for nothing outside of its directory.
func TestHostilePaths(t *testing.T) {
	t.Parallel()
	parts := []string{"..", "%2e%2e", "%2E.", ".", "", "a", "%2f", "/", "\\", "%5c", "%00", "%", "%zz", "é", "%ff", "?", "#", "..%2f..", ":", "~", "...", "..a"}
	u := URLs{Skills: []Skill{{Name: "s", Dir: "/skills/s"}, {Name: "s:t", Dir: "/skills/st"}}, Local: &Local{Artifacts: "/art"}}
	found, refused := 0, 0
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 4))
		var rest []string
		for range 1 + r.IntN(6) {
			rest = append(rest, parts[r.IntN(len(parts))])
		}
		path := strings.Join(rest, "/")
		for url, dirs := range map[string][]string{
			"skill://s/" + path:   {"/skills/s"},
			"skill://s:t:" + path: {"/skills/st"},
			"local://" + path:     {"/art/local"},
			"skill://" + path:     {"/skills/s", "/skills/st"},
		} {
			scheme, _, _ := strings.Cut(url, ":")
			got, err := u.resolve(scheme, url)
			if err != nil {
				refused++
				if got != "" {
					t.Errorf("resolve(%q) = %q and %v", url, got, err)
				}
				continue
			}
			found++
			inside := false
			for _, dir := range dirs {
				inside = inside || within(dir, got)
			}
			if !inside || filepath.Clean(got) != got || strings.IndexByte(got, 0) >= 0 {
				t.Errorf("resolve(%q) = %q; want it in %q", url, got, dirs)
			}
		}
	}
	if found < 500 || refused < 500 {
		t.Errorf("%d were found and %d refused; want enough of both", found, refused)
	}
}

// TestArgumentTypes gives each argument of each contract a value of each type of JSON: a right one is
// taken, and the error for a wrong one names the argument.
func TestArgumentTypes(t *testing.T) {
	t.Parallel()
	values := map[string]string{
		"null": "null", "boolean": "true", "string": `"x"`, "number": "1", "fraction": "1.5", "negative": "-1", "array": `["x"]`, "object": `{"X":"x"}`,
		"numbers": "[1]", "object of numbers": `{"X":1}`,
	}
	for contract, fields := range map[string]map[string]string{
		"agent": {
			"command": "string", "env": "object", "timeout": "number fraction negative", "cwd": "string", "pty": "boolean",
			"async": "boolean", "head": "number", "tail": "number", "other": "",
		},
		"plain": {"command": "string", "other": "null boolean string number fraction negative array object numbers object of numbers"},
		"modes": {"command": "string", "mode": "", "other": ""},
	} {
		for field, takes := range fields {
			for kind, value := range values {
				call := map[string]any{"command": "true", field: json.RawMessage(value)}
				p := contractOf(t, contract).Plan(corpus.Arguments(t, call), Host{Settings: Settings{Async: true}})
				taken := strings.Contains(" "+takes+" ", " "+kind+" ")
				switch text := errorOf(p); {
				case taken != (text == ""):
					t.Errorf("%s: %s is %s (%s): error %q; want it taken: %t", contract, field, value, kind, text, taken)
				case !taken && contract == "agent" && !strings.Contains(text, field):
					t.Errorf("%s: %s is %s: error %q does not name the argument", contract, field, value, text)
				case !taken && !strings.HasPrefix(text, "Invalid "):
					t.Errorf("%s: %s is %s: error %q; want it to begin with Invalid", contract, field, value, text)
				}
			}
		}
	}
}
