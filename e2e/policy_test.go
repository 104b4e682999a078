package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// explained is a command in the answer of `policy explain`, as its users read it.
type explained struct {
	Argv []struct {
		Text  string `json:"text"`
		Known bool   `json:"known"`
	} `json:"argv"`
	Children []explained `json:"children"`
}

// all is the command and those below it.
func (e explained) all() []explained {
	list := []explained{e}
	for _, child := range e.Children {
		list = append(list, child.all()...)
	}
	return list
}

// covers reports whether argv is what was predicted, word by word. A word that is not
// known may be none, one or many; the program is compared by its base name only.
func (e explained) covers(argv []string) bool {
	// ends[i] says that the words up to here can be the first i of argv.
	ends := make([]bool, len(argv)+1)
	ends[0] = true
	for n, word := range e.Argv {
		next := make([]bool, len(argv)+1)
		for i := range ends {
			switch {
			case !ends[i]:
			case !word.Known:
				for j := i; j <= len(argv); j++ {
					next[j] = true
				}
			case i < len(argv) && (argv[i] == word.Text || n == 0 && argv[i] == path.Base(word.Text)):
				next[i+1] = true
			}
		}
		ends = next
	}
	return ends[len(argv)]
}

// unpredicted returns what was executed and not predicted.
func unpredicted(tree []explained, executed [][]string) [][]string {
	var nodes []explained
	for _, e := range tree {
		nodes = append(nodes, e.all()...)
	}
	var out [][]string
	for _, argv := range executed {
		if !slices.ContainsFunc(nodes, func(e explained) bool { return e.covers(argv) }) {
			out = append(out, argv)
		}
	}
	return out
}

func TestUnpredicted(t *testing.T) {
	t.Parallel()
	var tree []explained
	err := json.Unmarshal([]byte(`[{"argv":[{"text":"/usr/bin/sudo","known":true},{"text":"rm","known":true},{"text":"$x","known":false}],
		"children":[{"argv":[{"text":"rm","known":true},{"text":"$x","known":false},{"text":"b","known":true}]}]}]`), &tree)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
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
		argv := strings.Fields(test.argv)
		if got := len(unpredicted(tree, [][]string{argv})) == 0; got != test.want {
			t.Errorf("%q is predicted: %v; want %v", argv, got, test.want)
		}
	}
}

// differentialScripts returns the scripts of the corpora, and some of the benign ones. It
// leaves out those that would end the test, or wait for it to end.
func differentialScripts(t *testing.T) []string {
	t.Helper()
	unfit := regexp.MustCompile(`\bkill\b|\bkillall\b|while (true|:)|until false|\bread\b|\bwait\b|\x00`)
	const someOf = 7
	var scripts []string
	for _, corpus := range []struct {
		name  string
		every int
	}{{"safety", 1}, {"interceptor", 1}, {"benign", someOf}} {
		data, err := os.ReadFile(filepath.Join("..", "policy", "testdata", corpus.name+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range bytes.Lines(data) {
			var row struct{ Command string }
			if err := json.Unmarshal(line, &row); err != nil {
				t.Fatal(err)
			}
			if n++; n%corpus.every == 0 && !unfit.MatchString(row.Command) && !slices.Contains(scripts, row.Command) {
				scripts = append(scripts, row.Command)
			}
		}
	}
	return scripts
}

// allowed returns the scripts that are allowed with every rule on.
func allowed(t *testing.T, scripts []string) []string {
	t.Helper()
	sets := []string{"git-destructive", "exec-smuggling", "env-poisoning", "decode-to-shell", "disk-destruction"}
	var rows bytes.Buffer
	enc := json.NewEncoder(&rows)
	for _, s := range scripts {
		if err := enc.Encode(map[string]any{"command": s, "layer": "safety", "sets": sets}); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(built, "sandboxbash"), "policy", "check", "--jsonl")
	cmd.Stdin = &rows
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	n := 0
	for line := range bytes.Lines(out) {
		var answer struct{ Verdict string }
		if err := json.Unmarshal(line, &answer); err != nil {
			t.Fatal(err)
		}
		if answer.Verdict == "allow" {
			list = append(list, scripts[n])
		}
		n++
	}
	if n != len(scripts) {
		t.Fatalf("%d answers to %d rows", n, len(scripts))
	}
	return list
}

// explain returns the commands that `policy explain` sees in each script.
func explain(t *testing.T, scripts []string) [][]explained {
	t.Helper()
	trees := make([][]explained, len(scripts))
	errs := make([]error, len(scripts))
	var work sync.WaitGroup
	slots := make(chan struct{}, 2)
	for i, s := range scripts {
		work.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			out, err := exec.CommandContext(t.Context(), filepath.Join(built, "sandboxbash"), "policy", "explain", "--json", "--contract", "modes", "--command", s).Output()
			var answer struct{ Commands []explained }
			if err == nil {
				err = json.Unmarshal(out, &answer)
			}
			trees[i], errs[i] = answer.Commands, err
		})
	}
	work.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("policy explain %q: %v", scripts[i], err)
		}
	}
	return trees
}

// execute runs the scripts in a session without network, each in a directory of its own,
// and returns every argv that was executed. A shim stands for each program. It notes the
// call, and runs the program only if that can do no harm: see testdata/differential.
func execute(t *testing.T, scripts []string, trees [][]explained) [][][]string {
	t.Helper()
	home, dir := t.TempDir(), t.TempDir()
	names := map[string]bool{}
	programs, err := os.ReadDir("/usr/bin")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		names[p.Name()] = true
	}
	for _, tree := range trees {
		for _, root := range tree {
			for _, e := range root.all() {
				if len(e.Argv) > 0 && e.Argv[0].Known {
					names[path.Base(e.Argv[0].Text)] = true
				}
			}
		}
	}
	usual := regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9._+-]*\z`)
	var list strings.Builder
	for name := range names {
		if usual.MatchString(name) {
			fmt.Fprintln(&list, name)
		}
	}
	files := map[string]string{"names": list.String()}
	for _, name := range []string{"shim", "driver"} {
		text, err := os.ReadFile(filepath.Join("testdata", "differential", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
	}
	for i, s := range scripts {
		files[fmt.Sprintf("scripts/%04d", i)] = s
	}
	if err := os.Mkdir(filepath.Join(dir, "scripts"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	id := startSession(t, home, "--workspace", "copy:"+dir)
	out := sandboxbash(t, home, "session", "exec", "--timeout", "3m", id, ". ./driver")
	executed := make([][][]string, len(scripts))
	for i, part := range strings.Split(out, "\035")[1:] {
		number, record, ok := strings.Cut(part, "\x00")
		if i >= len(scripts) || !ok || number != fmt.Sprintf("%04d", i) {
			t.Fatalf("the driver has lost its place at script %d: %.100q", i, part)
		}
		for argv := range strings.SplitSeq(record, "\036\x00") {
			if argv != "" {
				executed[i] = append(executed[i], strings.Split(strings.TrimSuffix(argv, "\x00"), "\x00"))
			}
		}
	}
	return executed
}

// TestDifferential compares what a policy expects a script to run with what bash executes:
// every argv of an allowed script must have been predicted. Package bashtest makes scripts
// for that comparison; this test takes the corpora, whose scripts need a session.
func TestDifferential(t *testing.T) {
	t.Parallel()
	needEngine(t)
	scripts := allowed(t, differentialScripts(t))
	trees := explain(t, scripts)
	ran, argvs := 0, 0
	for i, executed := range execute(t, scripts, trees) {
		if len(executed) > 0 {
			ran++
			argvs += len(executed)
		}
		for _, argv := range unpredicted(trees[i], executed) {
			t.Errorf("script %q executed %q, which policy explain did not predict", scripts[i], argv)
		}
	}
	t.Logf("%d scripts were allowed, %d executed programs, %d times together", len(scripts), ran, argvs)
	if ran < 200 {
		t.Errorf("only %d of %d scripts executed anything that was seen; want 200", ran, len(scripts))
	}
}
