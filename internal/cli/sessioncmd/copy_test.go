package sessioncmd

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

func TestPlaceOf(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]position{
		"web:/a:b": {inside: true, ref: "web", path: "/a:b"}, ":": {inside: true, path: "."}, ":x/.": {inside: true, path: "x/."}, "web:": {inside: true, ref: "web", path: "."},
		"file": {path: "file"}, "./a:b": {path: "./a:b"}, "/a:b": {path: "/a:b"}, "d/a:b": {path: "d/a:b"}, "-": {path: "-"}, "../x": {path: "../x"}, ".": {path: "."},
	} {
		want.word = word
		if got := placeOf(word); got != want {
			t.Errorf("placeOf(%q) = %+v; want %+v", word, got, want)
		}
	}
}

func TestPlacesOf(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{ // what the error says; "": there is none
		"a b :": "", "a web:x": "", ":a :b d": "", "web:a web:b d": "", "- :a": "", ":a -": "", "./- a :": "",
		"a b": "neither", "a b c": "neither", ":a :b": "both in a session", "web:a other:b": "both in a session", "web:a other:b d": "same place",
		"a :b d": "same place", "- a :d": "one file", ":a :b -": "one file", " :": "source is empty", "a ": "destination is empty",
	} {
		_, _, err := placesOf(strings.Split(words, " "))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("placesOf(%q) = %v; want %q", words, err, want)
		}
	}
}

func TestCopiedText(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"copied 1 file, 0 bytes":                                copiedText(1, 0, 0),
		"copied 1,204 files, 31.46 MB":                          copiedText(1204, 31457280, 0),
		"copied 0 files, 0 bytes; 1 file unchanged":             copiedText(0, 0, 1),
		"copied 999 files, 999.9 kB; 1,000,000 files unchanged": copiedText(999, 999900, 1000000),
		"copied 12,345 files, 2 GB":                             copiedText(12345, 2000000000, 0),
	} {
		if got != want {
			t.Errorf("got %q; want %q", got, want)
		}
	}
}

func TestSpooled(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "short", "12345678", "123456789", strings.Repeat("long ", 1000)} {
		content, size, end, err := spooled(iotest.OneByteReader(strings.NewReader(text)), 8)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(content)
		if string(got) != text || size != int64(len(text)) || err != nil {
			t.Errorf("spooled(%.10q) = %.10q, %d, %v", text, got, size, err)
		}
		end()
	}
	broken := errors.New("broken")
	for _, n := range []int64{1, 100} {
		if _, _, _, err := spooled(io.MultiReader(bytes.NewReader(make([]byte, 50)), iotest.ErrReader(broken)), n); !errors.Is(err, broken) {
			t.Errorf("spooled(%d) = %v; want %v", n, err, broken)
		}
	}
}

func TestExcludes(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "patterns")
	if err := os.WriteFile(file, []byte("# a comment\n/build\n**/*.log\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	x := excludes{files: []string{file}, patterns: []string{"*.tmp", "!keep.tmp"}}
	if err := x.read(); err != nil {
		t.Fatal(err)
	}
	skip := x.skip()
	for name, want := range map[string]bool{"a": false, "a.tmp": true, "keep.tmp": false, "d/a.tmp": false, "build": true, "build/a/b": true, "x/build": false, "x/y/a.log": true} {
		if got, all := skip(name, false); got != want || all {
			t.Errorf("skip(%s) = %t, %t; want %t, and that there may be more below", name, got, all, want)
		}
	}
	if none := (&excludes{}); none.read() != nil || none.skip() != nil {
		t.Error("without patterns there is something to leave out")
	}
	for _, x := range []excludes{{patterns: []string{"[a"}}, {files: []string{file + "none"}}} {
		if err := x.read(); err == nil {
			t.Errorf("read() of %+v is not an error", x)
		}
	}
	if _, err := (&excludes{git: true}).skipOf(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "no repository") {
		t.Errorf("--gitignore without a repository = %v", err)
	}
	if skip, err := (&excludes{git: true}).skipOf(t.Context(), file); skip != nil || err != nil {
		t.Errorf("--gitignore of a file = %v", err)
	}
}
