package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCollect(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	for _, tt := range []struct {
		name string
		keep Keep
		want string
	}{
		{"no limit", Keep{}, "a b c d"},
		{"age", Keep{Retention: 5 * day}, "c d"},
		{"number", Keep{Sessions: 3}, "b c d"},
		{"the one in use stays", Keep{Sessions: 1, TotalBytes: 1}, "d"},
		{"size", Keep{TotalBytes: 3500}, "b c d"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir, now := t.TempDir(), time.Now()
			for id, age := range map[string]time.Duration{"a": 20 * day, "b": 10 * day, "c": 2 * day, "d": time.Minute} {
				w := NewWriter(dir, Options{})
				w.Put(id, Record{Kind: Start, Command: strings.Repeat("x", 1000)}, nil)
				w.Close()
				at := now.Add(-age)
				if err := os.Chtimes(filepath.Join(dir, id, segmentFile(1)), at, at); err != nil {
					t.Fatal(err)
				}
			}
			if err := Open(dir).Collect(tt.keep, now); err != nil {
				t.Fatal(err)
			}
			left, err := Open(dir).Sessions()
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, s := range left {
				ids = append(ids, s.ID)
			}
			slices.Sort(ids)
			if got := strings.Join(ids, " "); got != tt.want {
				t.Errorf("left: %s; want %s", got, tt.want)
			}
		})
	}
	if err := Open(t.TempDir()).Collect(Keep{Sessions: 1}, time.Now()); err != nil {
		t.Errorf("Collect() of nothing = %v", err)
	}
	if err := Open(t.TempDir()).Remove("../x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Remove() of no session = %v; want that it does not exist", err)
	}
}
