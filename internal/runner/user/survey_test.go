//go:build linux

package user

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// surveyed is the line for a directory.
func surveyed(t *testing.T, most time.Duration, dir string) (digest string, entries, size int64) {
	t.Helper()
	var out bytes.Buffer
	if err := Survey([]string{most.String(), dir}, &out); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(out.String(), "%s %d %d", &digest, &entries, &size); err != nil {
		t.Fatalf("survey() = %q: %v", out.String(), err)
	}
	return digest, entries, size
}

func TestSurvey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if digest, entries, size := surveyed(t, time.Minute, dir); digest == "-" || entries != 0 || size != 0 {
		t.Errorf("an empty directory: %s %d %d; want a digest, and nothing in it", digest, entries, size)
	}
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	write("a", "text")
	write("d/b", strings.Repeat("x", 100_000))
	if err := os.Symlink("/etc", filepath.Join(dir, "link")); err != nil { // not followed
		t.Fatal(err)
	}
	before, entries, size := surveyed(t, time.Minute, dir)
	if entries != 4 || size < 100_000 || size > 1<<20 {
		t.Errorf("survey() = %d entries, %d bytes; want 4, and a little more than 100000", entries, size)
	}
	if again, _, _ := surveyed(t, time.Minute, dir); again != before {
		t.Errorf("survey() = %s, then %s; want the same of what has not changed", before, again)
	}
	mtime := time.Unix(1, 0)
	for _, change := range []func() error{
		func() error { return os.WriteFile(filepath.Join(dir, "a"), []byte("TEXT"), 0o644) }, // as long as before
		func() error { return os.Chtimes(filepath.Join(dir, "a"), mtime, mtime) },
		func() error { return os.Chmod(filepath.Join(dir, "d"), 0o700) },
		func() error { return os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "c")) },
		func() error { return os.Remove(filepath.Join(dir, "d", "b")) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		after, _, _ := surveyed(t, time.Minute, dir)
		if after == before {
			t.Error("survey() has not seen a change")
		}
		before = after
	}
	if digest, _, _ := surveyed(t, -time.Second, dir); digest != "-" {
		t.Errorf("survey() = %s after its time; want -", digest)
	}
}

func TestSurveyDeep(t *testing.T) {
	t.Parallel()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := root.MkdirAll(strings.Repeat("d/", maxSurveyDepth+2), 0o755); err != nil {
		t.Fatal(err)
	}
	digest, entries, _ := surveyed(t, time.Minute, root.Name())
	if digest != "-" || entries < maxSurveyDepth {
		t.Errorf("survey() = %s, %d entries; want - and those that it has seen", digest, entries)
	}
	if got, _, _ := surveyed(t, time.Minute, filepath.Join(root.Name(), "nothing")); got != "-" {
		t.Errorf("survey() of nothing = %s; want -", got)
	}
}
