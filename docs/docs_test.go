// Package docs keeps the documents true where a test can: the table of settings
// is the program's, and every link between documents leads somewhere.
package docs

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/network"
)

var update = flag.Bool("update", false, "write the tables of settings and presets into configuration.md and network.md")

func TestSettings(t *testing.T) {
	t.Parallel()
	generated(t, "configuration.md", "settings", table())
}

func TestPresets(t *testing.T) {
	t.Parallel()
	generated(t, "network.md", "presets", presets())
}

// generated compares the part of a document between two lines that name it with what it should
// be, or with -update writes it.
func generated(t *testing.T, file, part, want string) {
	t.Helper()
	tableBegin := "<!-- " + part + ": written by go test ./docs -update -->\n"
	tableEnd := "<!-- end of " + part + " -->\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), tableBegin)
	got, after, closed := strings.Cut(rest, tableEnd)
	if !ok || !closed {
		t.Fatalf("%s has no lines %q and %q", file, tableBegin, tableEnd)
	}
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("%s does not show the %s as they are: run go test ./docs -update\ngot:\n%swant:\n%s", file, part, got, want)
	}
	if err := os.WriteFile(file, []byte(before+tableBegin+want+tableEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// presets is the table of all presets of network rules. Those with :ro have a row together with
// the preset that they restrict.
func presets() string {
	var b strings.Builder
	b.WriteString("| preset | for | rules |\n|---|---|---|\n")
	all := map[string]network.Preset{}
	for _, p := range network.Presets() {
		all[p.Name] = p
	}
	for _, p := range network.Presets() {
		if strings.HasSuffix(p.Name, ":ro") {
			continue
		}
		rules := make([]string, 0, len(p.Rules))
		for _, r := range p.Rules {
			rules = append(rules, "`"+r.String()+"`")
		}
		name := "`" + p.Name + "`"
		if _, ok := all[p.Name+":ro"]; ok {
			name += ", `" + p.Name + ":ro`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, p.About, strings.Join(rules, "<br>"))
	}
	return b.String()
}

// table is the table of all settings.
func table() string {
	var b strings.Builder
	b.WriteString("| key | variable | flag | default | meaning |\n|---|---|---|---|---|\n")
	for s := range config.Settings() {
		flagged := ""
		if s.Flag != "" {
			flagged = "`--" + s.Flag + "`"
		}
		if s.Short != "" {
			flagged += ", `-" + s.Short + "`"
		}
		value := ""
		if s.Default != "" {
			value = "`" + s.Default + "`"
		}
		usage := s.Usage
		if len(s.Choices) > 0 {
			usage += " (" + strings.Join(s.Choices, ", ") + ")"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", s.Key, s.Env(), flagged, value, strings.ReplaceAll(usage, "|", `\|`))
	}
	return b.String()
}

// TestReadme holds README.md to the example that the compiler sees.
func TestReadme(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, begins := strings.Cut(string(source), "\t// readme:begin\n")
	example, _, ends := strings.Cut(rest, "\t// readme:end\n")
	if !begins || !ends {
		t.Fatal("example_test.go has lost its marks")
	}
	example = strings.ReplaceAll("\n"+example, "\n\t", "\n")[1:]
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```go\n"+example+"```\n") {
		t.Errorf("README.md does not show the example as it is:\n%s", example)
	}
}

// link is a Markdown link to a file: the parenthesis up to an anchor.
var link = regexp.MustCompile(`\]\(([^)#\s]+)`)

func TestLinks(t *testing.T) {
	t.Parallel()
	var files []string
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != ".." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case filepath.Ext(path) == ".md":
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			checked++
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), filepath.FromSlash(m[1]))); err != nil {
				t.Errorf("%s links to %s, which is not there", file, m[1])
			}
		}
	}
	if checked == 0 {
		t.Errorf("no link found in %d files", len(files))
	}
}

// TestDecisions keeps docs/adr/README.md complete: it lists each decision once, in
// order and by its title, and names the numbers that were not used.
func TestDecisions(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("adr/[0-9]*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no decision found: %v", err)
	}
	var rows strings.Builder
	var unused []string
	next := 1
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		heading, _, _ := strings.Cut(string(text), "\n")
		var number int
		file := filepath.Base(page)
		if _, err := fmt.Sscanf(file, "%04d-", &number); err != nil {
			t.Errorf("%s: its name does not begin with a number: %v", page, err)
			continue
		}
		title, ok := strings.CutPrefix(heading, fmt.Sprintf("# %d. ", number))
		if !ok {
			t.Errorf("%s begins with %q; want its number and a title", page, heading)
		}
		fmt.Fprintf(&rows, "| %d | [%s](%s) |\n", number, title, file)
		for ; next < number; next++ {
			unused = append(unused, strconv.Itoa(next))
		}
		next = number + 1
	}
	index, err := os.ReadFile("adr/README.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := "|---|---|\n" + rows.String() + "\n"; !strings.Contains(string(index), want) {
		t.Errorf("adr/README.md does not list the decisions as they are; want\n%s", want)
	}
	last := len(unused) - 1
	if want := fmt.Sprintf("The numbers %s and %s were not used.", strings.Join(unused[:last], ", "), unused[last]); !strings.Contains(string(index), want) {
		t.Errorf("adr/README.md does not say: %s", want)
	}
}
