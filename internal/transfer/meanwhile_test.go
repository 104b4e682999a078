package transfer

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// hook is a writer that calls a function once, when what is written to it has a word.
type hook struct {
	io.Writer
	word string
	do   func()
}

func (h *hook) Write(p []byte) (int, error) {
	if h.do != nil && bytes.Contains(p, []byte(h.word)) {
		h.do()
		h.do = nil
	}
	return h.Writer.Write(p)
}

// A tree that the user changes while it is packed: the file that is to blame is named, also for the
// caller who gets an error of the stream as well.
func TestPackerMeanwhile(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(p *Packer, dir string) error{
		"Tree":  func(p *Packer, dir string) error { return p.Tree(dir) },
		"Named": func(p *Packer, dir string) error { return p.Named(dir) },
		"Placed": func(p *Packer, dir string) error {
			return p.Placed(Placing{FS: os.DirFS(dir), Name: ".", Limit: 1 << 20}, "as")
		},
	}
	for _, row := range []struct {
		name string
		do   func(dir string) error // when the header of first is written
		err  string
	}{
		{"the file shrinks", func(dir string) error { return os.Truncate(filepath.Join(dir, "first"), 10) }, "first: it changed while it was read"},
		{"the file grows", func(dir string) error { return os.Truncate(filepath.Join(dir, "first"), 1<<20) }, ""},
		{"the next vanishes", func(dir string) error { return os.Remove(filepath.Join(dir, "second")) }, "second"},
		{"the next becomes a directory", func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "second")), os.Mkdir(filepath.Join(dir, "second"), 0o755))
		}, "second"},
	} {
		for kind, pack := range kinds {
			dir := filepath.Join(t.TempDir(), "top")
			plant(t, dir, map[string]string{"first": strings.Repeat("x", 4000), "second": "y"})
			var b bytes.Buffer
			var done error
			p := NewPacker(&hook{&b, "first", func() { done = row.do(dir) }})
			err := pack(p, dir)
			if done != nil {
				t.Fatal(done)
			}
			if row.err == "" {
				if content := list(t, &b); err != nil || p.Err != nil || p.Close() != nil || !hasContent(content, strings.Repeat("x", 4000)) {
					t.Errorf("%s, %s: %v, noted %v; want the file as it was", kind, row.name, err, p.Err)
				}
				continue
			}
			if kind == "Placed" && row.name == "the next becomes a directory" {
				row.err = "not a regular file"
			}
			if err == nil || p.Err == nil || !strings.Contains(p.Err.Error(), row.err) {
				t.Errorf("%s, %s: %v, noted %v; want %q", kind, row.name, err, p.Err, row.err)
			}
		}
	}
}

func hasContent(list map[string]string, want string) bool {
	for _, content := range list {
		if content == want {
			return true
		}
	}
	return false
}

// An error of the stream is not one of this machine's files: its words say what has happened in
// the session.
func TestPackerStreamFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{"d/f": strings.Repeat("x", 100_000), "d/l -> f": ""})
	for kind, pack := range map[string]func(p *Packer) error{
		"Tree":  func(p *Packer) error { return p.Tree(dir) },
		"Named": func(p *Packer) error { return p.Named(filepath.Join(dir, "d", "f")) },
		"Bytes": func(p *Packer) error { return p.Bytes("b", make([]byte, 100_000)) },
		"Placed": func(p *Packer) error {
			return p.Placed(Placing{FS: os.DirFS(dir), Name: "d", Limit: 1 << 20}, "as")
		},
	} {
		broken := errors.New("the session is gone")
		for _, left := range []int{0, 700, 50_000} {
			p := NewPacker(&ends{left, broken})
			err := pack(p)
			if !errors.Is(err, broken) || p.Err != nil || strings.Contains(err.Error(), "changed") {
				t.Errorf("%s, after %d bytes: %v, noted %v; want the stream's error alone", kind, left, err, p.Err)
			}
		}
	}
}

// ends is a writer that fails after some bytes.
type ends struct {
	left int
	err  error
}

func (e *ends) Write(p []byte) (int, error) {
	if e.left -= len(p); e.left < 0 {
		return 0, e.err
	}
	return len(p), nil
}

// What is recorded is what a session has after it has unpacked the stream, credentials aside.
func TestPackerRecord(t *testing.T) {
	t.Parallel()
	dir, to := filepath.Join(t.TempDir(), "top"), t.TempDir()
	config := "[core]\n\tbare = false\n\turl = https://secret@host/x\n"
	plant(t, dir, map[string]string{"a": "1", "d/e/f": "2", "d/l -> e": "", "empty/": "", ".git/config": config, ".env": "secret", "d/.ssh/id_rsa": "secret", "o": ""})
	if err := errors.Join(os.Chmod(filepath.Join(dir, "a"), 0o751), os.Chmod(filepath.Join(dir, "empty"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, record := range []bool{true, false} {
		var b bytes.Buffer
		p := NewPacker(&b)
		p.Record = record
		if err := errors.Join(p.Tree(dir), p.Close()); err != nil {
			t.Fatal(err)
		}
		if !record {
			if len(p.Packed) > 0 {
				t.Errorf("recorded without being asked to: %v", p.Packed)
			}
			continue
		}
		if err := errors.Join(Read(&b, DefaultLimits, intoDir(t, to))); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(scanned(t, to), NewState(p.Packed)); diff != "" {
			t.Errorf("recorded (-unpacked +recorded):\n%s", diff)
		}
		for _, e := range p.Packed {
			if strings.Contains(e.Name, ".env") || strings.Contains(e.Name, ".ssh") {
				t.Errorf("%s was packed", e.Name)
			}
		}
	}
}

// intoDir makes entries as they are, without the checks of an Inbox.
func intoDir(t *testing.T, dir string) func(Entry, io.Reader) error {
	t.Helper()
	return func(e Entry, content io.Reader) error {
		name := filepath.Join(dir, filepath.FromSlash(e.Name))
		switch e.Kind {
		case Dir:
			return errors.Join(os.Mkdir(name, 0o700), os.Chmod(name, e.Mode))
		case Link:
			return os.Symlink(e.Target, name)
		case File:
			b, err := io.ReadAll(content)
			return errors.Join(err, os.WriteFile(name, b, 0o600), os.Chmod(name, e.Mode))
		case Other:
		}
		return fs.ErrInvalid
	}
}

// A file of bytes is readable for its owner alone: it may be a secret.
func TestPackerBytes(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := NewPacker(&b)
	if err := errors.Join(p.Bytes("d/name", []byte("content")), p.Bytes("none", nil), p.Close()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"0 d/name 600 content", "0 none 600"}, entries(t, &b)); diff != "" {
		t.Errorf("Bytes() (-want +got):\n%s", diff)
	}
}

// More than may be compared later is not kept.
func TestPackerRecordBounded(t *testing.T) {
	t.Parallel()
	p := NewPacker(io.Discard)
	p.Record = true
	for range DefaultLimits.Entries + 10 {
		p.note(Entry{Name: "x/", Kind: Dir})
	}
	if n := len(p.Packed); n != DefaultLimits.Entries+1 || p.Packed[0].Name != "x" {
		t.Errorf("%d entries are kept, the first %q; want one more than %d, and clean names", n, p.Packed[0].Name, DefaultLimits.Entries)
	}
}

// A file is compared as it went into the session: cleaned, if credentials were taken out of it.
func TestTreeSum(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{"f": "12345", ".git/config": "[core]\n\tpassword = secret\n", ".git/large": ""})
	plain := strings.Repeat("name = "+strings.Repeat("x", 1016)+"\n", maxCleaned/1024)[:maxCleaned-1024]
	large := append([]byte(plain), "password = secret\n"+strings.Repeat("y", 1024)...)
	if err := os.WriteFile(filepath.Join(dir, ".git", "large"), large, 0o644); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	clean := func(name string, content []byte) ([]byte, bool) {
		if filepath.Dir(name) != ".git" {
			return nil, false
		}
		return cleanGitConfig(content), true
	}
	of := func(content string) Entry {
		sum := Sum(sha256.Sum256([]byte(content)))
		return Entry{Kind: File, Mode: 0o644, Size: int64(len(content)), Sum: &sum}
	}
	for _, row := range []struct {
		name string
		tree Tree
		e    Entry
		same bool
	}{
		{"f", Tree{Root: root}, of("12345"), true},
		{"f", Tree{Root: root, Clean: clean}, of("12345"), true},
		{"f", Tree{Root: root, Clean: clean}, of("1234"), false},
		{".git/config", Tree{Root: root, Clean: clean}, of("[core]\n"), true},
		{".git/config", Tree{Root: root, Clean: clean}, of("[core]\n\tpassword = secret\n"), false},
		{".git/config", Tree{Root: root}, of("[core]\n"), false},
		{".git/large", Tree{Root: root, Clean: clean}, of(plain), true},
	} {
		row.e.Name = row.name
		if same, exists, err := row.tree.Is(row.e); same != row.same || !exists || err != nil {
			t.Errorf("%s: Is(%d bytes) = %t, %t, %v; want %t", row.name, row.e.Size, same, exists, err, row.same)
		}
	}
}
