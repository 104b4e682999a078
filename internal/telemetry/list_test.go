package telemetry

import (
	"bufio"
	"os"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
)

// document says what there is; the table of metrics in it is held to the code.
const document = "../../docs/telemetry.md"

// family is a metric as Prometheus reads it: its name and type, and the names of its
// labels.
type family struct{ kind, labels string }

// TestDocument compares the table of metrics with what is served when a bit of
// everything has happened.
func TestDocument(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tel, err := Start(t.Context(), Options{Listener: l, Levels: func() Levels { return Levels{} }})
	if err != nil {
		t.Fatal(err)
	}
	defer tel.Close(t.Context()) //nolint:errcheck // it is not what is tested
	some(tel)
	_, text := get(t, "http://"+l.Addr().String()+Path, "")
	served := families(text)
	told := documented(t)
	if len(served) == 0 {
		t.Fatalf("nothing is served:\n%s", text)
	}
	for name, want := range served {
		if got, ok := told[name]; !ok || got != want {
			t.Errorf("%s says of %s: %q; it is served as %q", document, name, got, want)
		}
	}
	for name := range told {
		if _, ok := served[name]; !ok {
			t.Errorf("%s has %s, which is not served", document, name)
		}
	}
}

var (
	typeLine   = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)
	labelName  = regexp.MustCompile(`([a-z_]+)="`)
	sampleLine = regexp.MustCompile(`(?m)^(sandboxbash_[a-z_]+?)(?:_bucket|_sum|_count)?(?:\{([^}]*)\})? `)
	row        = regexp.MustCompile("^\\| `(sandboxbash_[a-z_]+)` \\| ([a-z]+) \\| (.*?) \\|")
	quoted     = regexp.MustCompile("`([^`]*)`")
)

func families(text string) map[string]family {
	all := map[string]family{}
	for _, m := range typeLine.FindAllStringSubmatch(text, -1) {
		all[m[1]] = family{kind: m[2]}
	}
	for _, m := range sampleLine.FindAllStringSubmatch(text, -1) {
		f, ok := all[m[1]]
		if !ok {
			continue
		}
		labels := strings.Fields(f.labels)
		for _, l := range labelName.FindAllStringSubmatch(m[2], -1) {
			if l[1] != "le" {
				labels = append(labels, l[1])
			}
		}
		sort.Strings(labels)
		f.labels = strings.Join(slices.Compact(labels), " ")
		all[m[1]] = f
	}
	return all
}

func documented(t *testing.T) map[string]family {
	t.Helper()
	f, err := os.Open(document)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string]family{}
	in := bufio.NewScanner(f)
	for in.Scan() {
		m := row.FindStringSubmatch(in.Text())
		if m == nil {
			continue
		}
		var labels []string
		for _, q := range quoted.FindAllStringSubmatch(m[3], -1) {
			labels = append(labels, q[1])
		}
		sort.Strings(labels)
		all[m[1]] = family{m[2], strings.Join(labels, " ")}
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
