package sink

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// shorten is a filter that shows equal lines once.
func shorten(text string) string {
	var out strings.Builder
	last := ""
	for line := range strings.Lines(text) {
		if line != last {
			out.WriteString(line)
		}
		last = line
	}
	return out.String()
}

func TestMinimize(t *testing.T) {
	t.Parallel()
	same := strings.Repeat("same\n", 9)
	short := "same\n"
	filters := []Filter{shorten}
	for _, tt := range []struct {
		name     string
		opts     Options
		in, want string
		kept     string // file that has the original
	}{
		{"off", Options{}, same, same, ""},
		{"nothing to do", Options{Minimize: filters}, "a\n", "a\n", ""},
		{"original", Options{Minimize: filters}, "\x1b[1m" + same, short + "[raw output: artifact://0]\n", "0.bash-original.log"},
		{"has an artifact", Options{Minimize: filters, Artifact: Always}, same, short + "[raw output: artifact://0]\n", "0.bash.log"},
		{"nothing may be kept", Options{Minimize: filters, Artifact: Never}, same, same, ""},
		{"truncated", Options{Minimize: filters, Window: Tail(10)}, same, "same\nsame\n", "0.bash.log"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			store := newTestStore(t, StoreOptions{})
			s, err := New(tt.opts, sessionOf(t, store, "s1"), nil)
			if err != nil {
				t.Fatal(err)
			}
			writeAll(t, s.Stdout(), tt.in)
			o := s.Close()
			if got := o.Stdout.Text(); got != tt.want || o.Minimized != strings.Contains(tt.want, "[raw output") {
				t.Errorf("text %q, minimized %v; want %q", got, o.Minimized, tt.want)
			}
			files, err := filepath.Glob(filepath.Join(store.dir, "s1", "*.log"))
			if err != nil {
				t.Fatal(err)
			}
			if tt.kept == "" {
				if len(files) > 0 {
					t.Errorf("files %v; want none", files)
				}
				return
			}
			if len(files) != 1 || filepath.Base(files[0]) != tt.kept {
				t.Fatalf("files %v; want %s", files, tt.kept)
			}
			if data, err := os.ReadFile(files[0]); string(data) != tt.in || err != nil {
				t.Errorf("original %q, %v; want %q", data, err, tt.in)
			}
			a, err := store.Open("s1", "0")
			if err != nil {
				t.Fatal(err)
			}
			if a.Name != tt.kept || a.Close() != nil {
				t.Errorf("Open() is %s; want %s", a.Name, tt.kept)
			}
		})
	}
}

func TestMinimizeWithoutStore(t *testing.T) {
	t.Parallel()
	in := strings.Repeat("same\n", 9)
	if o := run(t, Options{Minimize: []Filter{shorten}}, in); o.Stdout.Head != in || o.Minimized {
		t.Errorf("text %q; want it whole, as the original cannot be kept", o.Stdout.Head)
	}
}
