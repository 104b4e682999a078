package sessioncmd

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// A person chooses files by letters. What follows an a is taken, what follows a q is not, and so is what
// follows the end of the input.
func TestChooser(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, in string
		want     string // files of a b c d
		shown    string
		helped   int
	}{
		{"each", "y\nn\ny\nn\n", "a c", "a b c d", 0},
		{"capitals and blanks", " Y \nN\n\tn\ny\n", "a d", "a b c d", 0},
		{"all that follow", "n\na\n", "b c d", "a b", 0},
		{"none that follow", "y\nq\n", "a", "a b", 0},
		{"the end of the input", "y\n", "a", "a b", 0},
		{"no input", "", "", "a", 0},
		{"a last line without an end", "y\nn\nn\ny", "a d", "a b c d", 0},
		{"help, and what is not an answer", "?\nyes\n\n,\ns\ny\nq\n", "a", "a b", 5},
	} {
		var shown []string
		helped := 0
		c := &chooser{show: func(f sandbox.FileDiff) { shown = append(shown, f.Path) }, say: countsHelp(&helped), in: bufio.NewReader(strings.NewReader(tt.in))}
		for _, name := range []string{"a", "b", "c", "d"} {
			if err := c.file(t.Context(), sandbox.FileDiff{Change: sandbox.Change{Path: name}, Hunks: []byte("@@")}); err != nil {
				t.Errorf("%s: file(%s) = %v", tt.name, name, err)
			}
		}
		var taken []string
		for _, f := range c.taken {
			taken = append(taken, f.Path)
		}
		if got := strings.Join(taken, " "); got != tt.want || strings.Join(shown, " ") != tt.shown || helped != tt.helped {
			t.Errorf("%s: %q takes %q, shows %q and helps %d times; want %q, %q and %d", tt.name, tt.in, got, shown, helped, tt.want, tt.shown, tt.helped)
		}
	}
}

// countsHelp counts the texts of help.
func countsHelp(n *int) func(string) {
	return func(text string) {
		if strings.HasSuffix(text, thisHelp) {
			*n++
		}
	}
}

// A person chooses hunks of a file with several, and a q among them holds for the files that follow. Of
// hunks that are all chosen, or none, no part is made.
func TestChooserHunks(t *testing.T) {
	t.Parallel()
	mode := func(m fs.FileMode) *sandbox.FileState { return &sandbox.FileState{Mode: m} }
	three := []byte("@@ -1 +1 @@\n-a\n+b\n@@ -20 +20 @@\n-a\n+b\n@@ -40 +40 @@\n-@@ a\n+@@ b\n")
	for _, tt := range []struct {
		name, in  string
		now       fs.FileMode
		want      string // files that are taken whole, of a b
		questions string
		helped    int
	}{
		{"each", "s\ny\ny\ny\nn\n", 0o644, "a", "file 1/3 2/3 3/3 file", 0},
		{"none", "s\nn\nn\nn\ny\n", 0o644, "b", "file 1/3 2/3 3/3 file", 0},
		{"the rest of the file", "s\na\ny\n", 0o644, "a b", "file 1/3 file", 0},
		{"not the rest of the file", "s\nd\ny\n", 0o644, "b", "file 1/3 file", 0},
		{"nothing that follows", "s\nq\n", 0o644, "", "file 1/3", 0},
		{"the end of the input", "s\n", 0o644, "", "file 1/3", 0},
		{"help, and what is not an answer", "?\ns\n?\ns\na\nn\n", 0o644, "a", "file file 1/3 1/3 1/3 file", 3},
		{"permissions are asked about, too", "s\na\nn\n", 0o755, "a", "file 1/4 file", 0},
	} {
		var questions []string
		helped := 0
		help := countsHelp(&helped)
		c := &chooser{show: func(sandbox.FileDiff) {}, hunk: func(string) {}, in: bufio.NewReader(strings.NewReader(tt.in)), say: func(text string) {
			help(text)
			if _, n, ok := strings.Cut(text, "hunk ("); ok {
				questions = append(questions, n[:3])
			} else if strings.HasPrefix(text, "apply this file? [y,n,s,a,q,?] ") {
				questions = append(questions, "file")
			}
		}}
		for _, name := range []string{"a", "b"} {
			f := sandbox.FileDiff{Change: sandbox.Change{Path: name, Kind: "modified"}, Was: mode(0o644), Now: mode(tt.now), Hunks: three}
			if err := c.file(t.Context(), f); err != nil {
				t.Errorf("%s: file(%s) = %v", tt.name, name, err)
			}
		}
		var taken []string
		for _, f := range c.taken {
			taken = append(taken, f.Path)
		}
		if got, asked := strings.Join(taken, " "), strings.Join(questions, " "); got != tt.want || asked != tt.questions || helped != tt.helped {
			t.Errorf("%s: %q takes %q, asks %q and helps %d times; want %q, %q and %d", tt.name, tt.in, got, asked, helped, tt.want, tt.questions, tt.helped)
		}
	}
}

// A call that is cancelled does not wait for the person.
func TestChooserCancelled(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	t.Cleanup(func() { _ = w.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	c := &chooser{show: func(sandbox.FileDiff) {}, say: func(string) { cancel() }, in: bufio.NewReader(r)}
	if err := c.file(ctx, sandbox.FileDiff{}); !errors.Is(err, context.Canceled) || len(c.taken) != 0 {
		t.Errorf("file() = %v, takes %d; want the context's error and nothing", err, len(c.taken))
	}
	broken := &chooser{show: func(sandbox.FileDiff) {}, say: func(string) {}, in: bufio.NewReader(io.MultiReader(strings.NewReader("y"), failing{}))}
	if err := broken.file(t.Context(), sandbox.FileDiff{}); !errors.Is(err, io.ErrClosedPipe) || len(broken.taken) != 0 {
		t.Errorf("file() of input that fails = %v, takes %d; want its error and nothing", err, len(broken.taken))
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestAtOrBelow(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		paths []string
		want  bool
	}{
		{"a", nil, true},
		{"a/b", []string{"a"}, true},
		{"a/b", []string{"./a/"}, true},
		{"ab", []string{"a"}, false},
		{"a", []string{"a/b"}, false},
		{"a", []string{"x", "."}, true},
	} {
		if got := atOrBelow(tt.name, tt.paths); got != tt.want {
			t.Errorf("atOrBelow(%q, %q) = %t; want %t", tt.name, tt.paths, got, tt.want)
		}
	}
}

func TestCommitsText(t *testing.T) {
	t.Parallel()
	const one, two = "1111111111111111111111111111111111111111", "2222222222222222222222222222222222222222"
	for want, done := range map[string]sandbox.AppliedCommits{
		"x: 1 commit of main (111111111111)":                                               {Branch: "x", From: "main", Tip: one, Commits: 1},
		"x: 3 commits of HEAD (111111111111)":                                              {Branch: "x", Tip: one, Was: two, Commits: 3},
		"x: 0 commits of main (111111111111)":                                              {Branch: "x", From: "main", Tip: one, Was: two},
		"nothing new: x is at 111111111111 already":                                        {Branch: "x", From: "main", Tip: one, Was: one},
		"nothing new: all commits of main (111111111111) are here, and no branch was made": {Branch: "x", From: "main", Tip: one},
	} {
		if d := cmp.Diff(want, commitsText(done)); d != "" {
			t.Errorf("commitsText(%+v) differs (-want +got):\n%s", done, d)
		}
	}
}
