package sandbox_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// clientsPage is the table of clients in docs/network.md.
type clientsPage struct {
	// By the client's name:
	says map[string]string // what it says of a host that no rule allows
	read map[string]string // what comes of it where its requests are read
}

// passing matches what differs from run to run and from build to build: OpenSSL's ids of threads, times, and
// versions and lines of sources.
var passing = regexp.MustCompile(`\b[0-9A-F]{12,16}:|\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d |:\.\./ssl/[^:]*:\d+| \(_ssl\.c:\d+\)|/3\.[0-9.]+`)

func (p clientsPage) text() string {
	var b strings.Builder
	b.WriteString("| client | tried | trusts a certificate by | intercepted | where no rule allows the host, says |\n|---|---|---|---|---|\n")
	for _, c := range netClients {
		var trusts []string
		for _, variable := range c.ca {
			name, _, _ := strings.Cut(variable, "=")
			trusts = append(trusts, "`"+name+"`")
		}
		var says []string
		for line := range strings.Lines(passing.ReplaceAllString(p.says[c.name], "")) {
			says = append(says, "`"+strings.ReplaceAll(strings.TrimSpace(line), "|", `\|`)+"`")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", c.name, c.uses, strings.Join(trusts, ", "), p.read[c.name], strings.Join(says, "<br>"))
	}
	return b.String()
}

// check compares the page with what the clients said, or with -update-clients writes it.
func (p clientsPage) check(t *testing.T) {
	t.Helper()
	const file, begin, end = "../docs/network.md", "<!-- clients: written by make clients UPDATE=1 -->\n", "<!-- end of clients -->\n"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), begin)
	got, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no lines %q and %q", file, begin, end)
	}
	want := p.text()
	switch {
	case got == want:
	case *updateClients:
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s does not show what clients say: run make clients UPDATE=1\ngot:\n%swant:\n%s", file, got, want)
	}
}
