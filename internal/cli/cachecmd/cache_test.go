package cachecmd_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// rows splits a table into its cells.
func rows(text string) (all [][]string) {
	for line := range strings.Lines(text) {
		all = append(all, strings.Fields(line))
	}
	return all
}

// withCaches has an old cache, a new one, and one that session 1 has.
func withCaches(t *testing.T) *clitest.Memory {
	t.Helper()
	m := clitest.NewMemory(t)
	old := time.Now().Add(-40 * 24 * time.Hour)
	m.PutCache(engine.Cache{Name: "old", UID: 1000, Created: old, Used: old})
	m.PutCache(engine.Cache{Name: "new", UID: 0, Created: old, Used: time.Now().Add(-time.Hour)})
	m.Sizes = []engine.Stored{
		{Kind: engine.StoredCache, Name: "new", Bytes: 2_000_000, InUse: true},
		{Kind: engine.StoredCache, Name: "old", Bytes: -1},
		{Kind: engine.StoredSession, Name: clitest.ID(1), Bytes: 500, InUse: true},
		{Kind: engine.StoredImage, Name: "sandboxbash/host:0a", Bytes: 1_000_000},
	}
	return m
}

func TestList(t *testing.T) {
	t.Parallel()
	m := withCaches(t)
	status, out, errs := m.Call("cache", "ls")
	want := [][]string{
		{"NAME", "UID", "SIZE", "IN", "USE", "AGE", "USED"},
		{"new", "0", "2MB", "yes", "40d", "60m"},
		{"old", "1000", "-", "no", "40d", "40d"},
	}
	got := rows(out)
	for _, row := range got {
		if len(row) == 6 && row[0] == "new" && (row[5] == "1h" || row[5] == "60m") {
			row[5] = "60m"
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || status != 0 || errs != "" {
		t.Errorf("cache ls = %d, %q (-want +got):\n%s", status, errs, diff)
	}
	status, out, errs = m.Call("cache", "ls", "--json")
	var list []struct {
		Name  string
		UID   uint32
		Bytes *int64
		InUse bool
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || status != 0 || errs != "" {
		t.Fatalf("cache ls --json = %d, %q, %q: %v", status, out, errs, err)
	}
	if len(list) != 2 || list[0].Name != "new" || *list[0].Bytes != 2_000_000 || !list[0].InUse || list[1].Bytes != nil || list[1].UID != 1000 {
		t.Errorf("cache ls --json = %s", out)
	}
}

// A list of nothing has a head, is [] in JSON, and asks for no sizes.
func TestListNothing(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	if status, out, errs := m.Call("cache", "ls"); status != 0 || errs != "" || strings.Count(out, "\n") != 1 {
		t.Errorf("cache ls = %d, %q, %q; want a head", status, out, errs)
	}
	if status, out, errs := m.Call("cache", "ls", "--json"); status != 0 || errs != "" || out != "[]\n" {
		t.Errorf("cache ls --json = %d, %q, %q; want []", status, out, errs)
	}
	for _, call := range m.Took() {
		if call == "stored" {
			t.Error("cache ls of nothing asks for sizes")
		}
	}
}

// If the engine does not tell sizes, a note says so, and the list is there.
func TestListWithoutSizes(t *testing.T) {
	t.Parallel()
	m := withCaches(t)
	m.Fail = func(call string) error {
		if call == "stored" {
			return engine.ErrInvalid
		}
		return nil
	}
	status, out, errs := m.Call("cache", "ls")
	if got := rows(out); status != 0 || !strings.Contains(errs, "the engine does not tell how large the caches are") || len(got) != 3 || got[1][2] != "-" {
		t.Errorf("cache ls = %d, %q, %q; want the list, and a note", status, out, errs)
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	m := withCaches(t)
	m.Session(1, sandbox.Spec{})
	status, out, errs := m.Call("cache", "rm", "old", "none", "new")
	if status != exit.Usage || out != "old\nnew\n" || !strings.Contains(errs, `cache "none": unknown cache`) || !strings.Contains(errs, "sandboxbash cache ls") {
		t.Errorf("cache rm = %d, %q, %q; want two names, and that one is unknown", status, out, errs)
	}
	if status, _, errs := m.Call("cache", "rm"); status != exit.Usage || !strings.Contains(errs, "takes names of caches") {
		t.Errorf("cache rm without a name = %d, %q", status, errs)
	}
}

func TestRemoveInUse(t *testing.T) {
	t.Parallel()
	m := withCaches(t)
	m.Fail = func(call string) error {
		if call == "removecache" {
			return engine.ErrConflict
		}
		return nil
	}
	if status, out, errs := m.Call("cache", "rm", "new"); status != exit.Usage || out != "" || !strings.Contains(errs, "cache new is in use by a session") {
		t.Errorf("cache rm = %d, %q, %q; want that it is in use", status, out, errs)
	}
	if status, out, errs := m.Call("cache", "prune", "--unused-for", "0s"); status != 0 || out != "" || errs != "" {
		t.Errorf("cache prune = %d, %q, %q; want that what is in use stays", status, out, errs)
	}
}

func TestPrune(t *testing.T) {
	t.Parallel()
	m := withCaches(t)
	for _, step := range []struct {
		args []string
		want string
	}{
		{[]string{"cache", "prune", "--unused-for", "90d"}, ""},
		{[]string{"cache", "prune"}, "old\n"},
		{[]string{"cache", "prune"}, ""},
		{[]string{"cache", "prune", "-q", "--unused-for", "0s"}, ""},
		{[]string{"cache", "ls", "--json"}, "[]\n"},
	} {
		if status, out, errs := m.Call(step.args...); status != 0 || out != step.want || errs != "" {
			t.Errorf("%q = %d, %q, %q; want %q", step.args, status, out, errs, step.want)
		}
	}
	if status, _, errs := m.Call("cache", "prune", "--unused-for", "x"); status != exit.Usage || !strings.Contains(errs, "is not a duration") {
		t.Errorf("cache prune --unused-for x = %d, %q", status, errs)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	m := withCaches(t)
	m.Session(1, sandbox.Spec{Name: "web"})
	status, out, errs := m.Call("du")
	want := [][]string{
		{"KIND", "NAME", "IN", "USE", "SIZE"},
		{"session", "web", "yes", "500B"},
		{"cache", "new", "yes", "2MB"},
		{"cache", "old", "no", "-"},
		{"image", "sandboxbash/host:0a", "no", "1MB"},
		{"total", "3.001MB"},
	}
	if diff := cmp.Diff(want, rows(out)); diff != "" || status != 0 {
		t.Errorf("du = %d (-want +got):\n%s", status, diff)
	}
	if !strings.Contains(errs, "does not tell the size of 1 of them") {
		t.Errorf("du notes %q; want that a size is not known", errs)
	}
	status, out, errs = m.Call("du", "--json")
	var list []map[string]any
	if err := json.Unmarshal([]byte(out), &list); err != nil || status != 0 || errs != "" || len(list) != 4 || list[0]["id"] != clitest.ID(1) || list[2]["bytes"] != nil {
		t.Errorf("du --json = %d, %q, %q: %v", status, out, errs, err)
	}
	if status, out, errs := clitest.NewMemory(t).Call("du", "--json"); status != 0 || errs != "" || out != "[]\n" {
		t.Errorf("du --json of nothing = %d, %q, %q; want []", status, out, errs)
	}
}
