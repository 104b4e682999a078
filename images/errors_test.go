package images

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/engine"
)

// An error says what is wrong, and what to do where there is something.
func TestErrorTexts(t *testing.T) {
	t.Parallel()
	cause := errors.New("manifest\n  unknown " + strings.Repeat("x", 2*maxWords))
	for _, tt := range []struct {
		err   error
		parts string // joined by "|"
		wraps error
	}{
		{&InvalidRefError{Ref: "A b", Reason: "no"}, `image "A b" is not a valid reference: no|NAME[:TAG], NAME@DIGEST, an image ID or "host"`, nil},
		{&UnresolvedError{Ref: "a:1", Pull: cause}, `image "a:1" is not on the engine and could not be pulled (manifest unknown xx|…): |"a:1"|the image host`, cause},
		{&UnresolvedError{Ref: "abcdef012345"}, `an image ID cannot be pulled: put it there, or use the image host`, nil},
		{&UnresolvedError{Ref: "abcdef012345", LoadWith: "`load FILE`"}, "an image ID cannot be pulled: put it there with `load FILE`, or use the image host", nil},
		{&MissingError{Ref: "a:1"}, `image "a:1" is not on the engine`, engine.ErrNotFound},
		{&HostError{Reason: "there is no bash", LoadWith: "`load FILE`"}, "image \"host\" cannot be made here: there is no bash; |or put one on the engine with `load FILE`", nil},
		{&SourceError{Err: os.ErrNotExist}, "file does not exist", os.ErrNotExist},
		{&tooLargeError{limit: 5}, "more than 5 bytes|remove large and sparse files|the engine's own client", nil},
	} {
		for part := range strings.SplitSeq(tt.parts, "|") {
			if !strings.Contains(tt.err.Error(), part) {
				t.Errorf("%T says %q; want %q in it", tt.err, tt.err, part)
			}
		}
		if strings.Contains(tt.err.Error(), "\n") || len(tt.err.Error()) > maxWords+400 {
			t.Errorf("%T says %q; want one bounded line", tt.err, tt.err)
		}
		if tt.wraps != nil && !errors.Is(tt.err, tt.wraps) {
			t.Errorf("%T does not wrap %v", tt.err, tt.wraps)
		}
	}
}

func TestOneLine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{
		{" a\n\tb  c ", "a b c"},
		{"", ""},
		{strings.Repeat("a", maxWords), strings.Repeat("a", maxWords)},
		{strings.Repeat("a", maxWords+1), strings.Repeat("a", maxWords) + "…"},
		{strings.Repeat("a", maxWords-1) + "ä", strings.Repeat("a", maxWords-1) + "…"}, // not half of a character
	} {
		if got := oneLine(tt.text); got != tt.want {
			t.Errorf("oneLine(%.20q, %d bytes) = %q; want %q", tt.text, len(tt.text), got, tt.want)
		}
	}
}

// A name for a new image is a name, and none of ours.
func TestMakeRef(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ ref, want, err string }{
		{"app", "app:latest", ""},
		{"docker.io/library/app:1", "app:1", ""},
		{"sandboxbash/host:1", "sandboxbash/host:1", ""}, // a snapshot of another machine
		{"sandboxbash/runners:1", "sandboxbash/runners:1", ""},
		{"sandboxbash/runner:1", "", "reserved"},
		{"docker.io/sandboxbash/workspace", "", "reserved"},
		{"index.docker.io/sandboxbash/runner", "", "reserved"},
		{"host", "", "only be given a NAME[:TAG]"},
		{"abcdef012345", "", "only be given a NAME[:TAG]"},
		{"app@sha256:" + strings.Repeat("a", 64), "", "only be given a NAME[:TAG]"},
		{"App", "", "not a valid reference"},
	} {
		got, err := makeRef(tt.ref)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("makeRef(%q) = %q, %v; want %q, %q", tt.ref, got, err, tt.want, tt.err)
		}
	}
	if got, err := optionalRef(""); got != "" || err != nil {
		t.Errorf(`optionalRef("") = %q, %v; want no name`, got, err)
	}
}

// A package's files come along where one of its programs was asked for, by the path from
// before /usr was merged too.
func TestPackageFiles(t *testing.T) {
	t.Parallel()
	dir := writeAll(t, map[string][]byte{
		"git.list":   []byte("/.\n/usr/bin/git\n/usr/share/git-core/x\n/usr/share/doc/git/y\n/etc/shadow\n"),
		"bash.list":  []byte("/bin/bash\n/usr/share/b\n"),
		"other.list": []byte("/usr/bin/other\n/usr/share/other\n"),
		"lib.list":   []byte("/usr/lib/git\n/usr/share/lib\n"),
		"git.md5sum": []byte("/usr/bin/git\n/usr/share/sums\n"),
	})
	got := packageFiles(dir, map[string]bool{"/usr/bin/git": true, "/usr/bin/bash": true, "/usr/lib/git": true})
	want := []string{"/bin/bash", "/usr/share/b", "/usr/bin/git", "/usr/share/git-core/x"}
	if !slices.Equal(got, want) {
		t.Errorf("packageFiles() = %v; want %v", got, want)
	}
	if got := packageFiles(filepath.Join(dir, "none"), map[string]bool{"/usr/bin/git": true}); got != nil {
		t.Errorf("packageFiles() of no directory = %v; want none", got)
	}
}

func TestAbsolute(t *testing.T) {
	t.Parallel()
	got := absolute([]byte("/usr/share/perl/5.36\n\nrelative\n/etc/perl\n/usr/lib/../share/x\n/usr/local/lib/site_perl\n/usr/local/share/perl\n/root/x\n/usr/lib/python3.11\n"))
	if want := []string{"/usr/share/perl/5.36", "/usr/share/x", "/usr/lib/python3.11"}; !slices.Equal(got, want) {
		t.Errorf("absolute() = %v; want %v", got, want)
	}
}

// The linker's cache has shared objects of its own directories alone; the first directory
// wins.
func TestLibrariesOfATree(t *testing.T) {
	t.Parallel()
	tr := newTree()
	for _, path := range []string{
		"/usr/lib/liba.so.1", "/lib/x86_64-linux-gnu/liba.so.1", "/usr/lib/x86_64-linux-gnu/libb.so.2.3", "/usr/lib64/ld-linux-x86-64.so.2",
		"/usr/lib/libdev.so", "/usr/lib/deep/libc.so.6", "/opt/libd.so.1", "/usr/lib/notes.so.1",
	} {
		tr.make(path, 0o644, "")
	}
	want := map[string]string{
		"liba.so.1": "/lib/x86_64-linux-gnu/liba.so.1", "libb.so.2.3": "/usr/lib/x86_64-linux-gnu/libb.so.2.3", "ld-linux-x86-64.so.2": "/usr/lib64/ld-linux-x86-64.so.2",
	}
	if got := tr.libraries("amd64"); !maps.Equal(got, want) {
		t.Errorf("libraries() = %v; want %v", got, want)
	}
	if got := tr.libraries("arm64"); got["libb.so.2.3"] != "" || got["liba.so.1"] != "/usr/lib/liba.so.1" {
		t.Errorf("libraries(arm64) = %v; want none of x86_64", got)
	}
}

// A reference is read as the engine reads it, at the edges too.
func TestParseRefEdges(t *testing.T) {
	t.Parallel()
	hex := strings.Repeat("0123456789abcdef", 4)
	for _, tt := range []struct {
		ref, want string // the name for the engine; "" is an error
		byID      bool
	}{
		{"a:" + strings.Repeat("x", 128), "a:" + strings.Repeat("x", 128), false},
		{"a:" + strings.Repeat("x", 129), "", false},
		{"a:_1", "a:_1", false},
		{"a:-1", "", false},
		{"a:.1", "", false},
		{"a__b/c.d/e-f", "a__b/c.d/e-f:latest", false},
		{"a___b", "", false},
		{"a..b", "", false},
		{strings.Repeat("a", 247), strings.Repeat("a", 247) + ":latest", false},
		{strings.Repeat("a", 248), "", false}, // with library/ in front: 256
		{"index.docker.io/a", "a:latest", false},
		{"docker.io/a/b:1", "a/b:1", false},
		{"docker.io:443/a", "docker.io:443/a:latest", false},
		{"[::1]:5000/a:1", "[::1]:5000/a:1", false},
		{"HOST.example/a", "HOST.example/a:latest", false},
		{"HOST/a", "HOST/a:latest", false},
		{"example.com", "example.com:latest", false},
		{"host:1", "host:1", false}, // a tag makes it a name
		{"Host", "", false},
		{"a@sha256:" + hex, "a@sha256:" + hex, false},
		{"a:1@sha256:" + hex, "a@sha256:" + hex, false},
		{"a@sha256:" + hex[:63], "", false},
		{"a@sha256:" + strings.ToUpper(hex), "", false},
		{"a@md5:" + hex, "", false},
		{"sha256:" + hex, "sha256:" + hex, true},
		{"sha256:" + hex[:12], "sha256:" + hex[:12], false}, // an image called sha256
		{hex, hex, true},
		{hex[:12], hex[:12], true},
		{hex[:11], hex[:11] + ":latest", false},
		{hex + "0", hex + "0:latest", false},
		{"a\x00b", "", false},
		{"a\n", "", false},
		{"a/", "", false},
		{"/a", "", false},
		{"a//b", "", false},
		{"ä", "", false},
		{"https://a/b", "", false},
	} {
		got, err := parseRef(tt.ref)
		if got.name != tt.want || got.byID != tt.byID || (err == nil) != (tt.want != "") {
			t.Errorf("parseRef(%.80q) = %+v, %v; want %.80q", tt.ref, got, err, tt.want)
		}
		if again, err := parseRef(got.name); tt.want != "" && (again != got || err != nil) {
			t.Errorf("parseRef(%.80q) = %+v, %v; want what it gave before, %+v", got.name, again, err, got)
		}
	}
}
