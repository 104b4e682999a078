package sandbox

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/internal/transfer"
)

func entryOf(name, content string) transfer.Entry {
	return transfer.Entry{Name: name, Kind: transfer.File, Mode: 0o644, Size: int64(len(content)), Sum: new(transfer.Sum(sha256.Sum256([]byte(content))))}
}

// Small texts are kept, once each, up to the bounds.
func TestTextsKeep(t *testing.T) {
	t.Parallel()
	var k texts
	for _, content := range []string{"a", "a", "", "b\x00", strings.Repeat("x", maxKeptText), strings.Repeat("x", maxKeptText+1)} {
		k.keep([]byte(content))
	}
	if len(k.of) != 3 || k.bytes != maxKeptText+1 {
		t.Errorf("%d texts of %d bytes are kept; want 3 of %d", len(k.of), k.bytes, maxKeptText+1)
	}
	for i := range maxKeptTexts/maxKeptText + 10 {
		k.keep(append(bytes.Repeat([]byte("y"), maxKeptText-2), byte(1+i%200), byte(1+i/200)))
	}
	if k.bytes > maxKeptTexts {
		t.Errorf("%d bytes are kept; want at most %d", k.bytes, maxKeptTexts)
	}
	var many texts
	for i := range maxKeptFiles + 10 {
		many.keep([]byte(strings.Repeat("z", i)))
	}
	if len(many.of) > maxKeptFiles {
		t.Errorf("%d texts are kept; want at most %d", len(many.of), maxKeptFiles)
	}
}

// What is kept when a directory is copied is what was copied, and nothing of a repository.
func TestUnknownTexts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var packed []transfer.Entry
	for name, content := range map[string]string{"a": "1\n", "d/b": "2\n", "binary": "\x00", "large": strings.Repeat("x", maxKeptText+1), ".git/config": "c\n", "changed": "was\n"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		packed = append(packed, entryOf(name, content))
	}
	if err := os.WriteFile(filepath.Join(dir, "changed"), []byte("is\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	kept, err := unknownTexts(t.Context(), dir, append(packed, entryOf("gone", "x"), transfer.Entry{Name: "d", Kind: transfer.Dir}))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for sum, content := range kept.of {
		if sum != sha256.Sum256(content) {
			t.Errorf("%q is kept under another hash", content)
		}
		got[string(content)] = true
	}
	if d := cmp.Diff(map[string]bool{"1\n": true, "2\n": true}, got); d != "" {
		t.Errorf("unknownTexts() differs (-want +got):\n%s", d)
	}
}

// What was shown is applied, with its directories, and nothing else; what has changed since it was shown
// is refused.
func TestOnlyShown(t *testing.T) {
	t.Parallel()
	dirOf := func(name string) transfer.Entry { return transfer.Entry{Name: name, Kind: transfer.Dir, Mode: 0o755} }
	base := transfer.NewState([]transfer.Entry{entryOf("a", "1"), dirOf("old"), entryOf("old/x", "1"), entryOf("old/y", "1"), dirOf("went"), entryOf("went/x", "1")})
	now := transfer.NewState([]transfer.Entry{entryOf("a", "2"), dirOf("new"), entryOf("new/x", "1"), entryOf("new/y", "1"), dirOf("other"), entryOf("other/x", "1"), dirOf("empty")})
	deltas := transfer.Deltas(base, now)
	var shown []FileDiff
	for _, name := range []string{"new/x", "old/x", "went/x"} {
		e, _ := now.Find(name)
		shown = append(shown, FileDiff{Change: Change{Path: name}, now: e})
	}
	only, err := onlyShown(shown, deltas, now)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range deltas {
		if only(d) {
			got = append(got, d.Name)
		}
	}
	if d := cmp.Diff([]string{"empty", "new", "new/x", "old/x", "went", "went/x"}, got); d != "" {
		t.Errorf("onlyShown() differs (-want +got):\n%s", d)
	}
	for name, stale := range map[string]FileDiff{
		"another content":  {Change: Change{Path: "a"}, now: entryOf("a", "3")},
		"it was deleted":   {Change: Change{Path: "old/x"}, now: entryOf("old/x", "1")},
		"it is there now":  {Change: Change{Path: "a"}},
		"another file now": {Change: Change{Path: "new"}, now: entryOf("new", "1")},
	} {
		if _, err := onlyShown([]FileDiff{stale}, deltas, now); err == nil || !strings.Contains(err.Error(), "was changed in the session since it was shown") {
			t.Errorf("%s: onlyShown() = %v; want an error that says so", name, err)
		}
	}
}

func TestFirstBytes(t *testing.T) {
	t.Parallel()
	f := &firstBytes{most: 5}
	for _, part := range []string{"ab", "", "cd", "efgh", "i"} {
		if n, err := f.Write([]byte(part)); n != len(part) || err != nil {
			t.Errorf("Write(%q) = %d, %v", part, n, err)
		}
	}
	if got, want := string(f.b), "abcdef"; got != want {
		t.Errorf("firstBytes keeps %q; want %q: one more than its bound", got, want)
	}
}
