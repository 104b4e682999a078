package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// bashHere runs the scripts of session files with this machine's programs, in a directory.
type bashHere struct{ dir string }

func (b bashHere) Run(ctx context.Context, c sandbox.Command) (sandbox.Result, error) {
	out, err := sink.New(c.Output, nil, nil)
	if err != nil {
		return sandbox.Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	cmd := osexec.CommandContext(ctx, "bash", append([]string{"--noprofile", "--norc", "-c", c.Script, "bash"}, c.Args...)...)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = b.dir, []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}, c.Stdin, out.Stdout(), out.Stderr()
	err = cmd.Run()
	res := sandbox.Result{Output: out.Close(), Status: exec.Status{Reason: exec.Exited}}
	if code, ok := errors.AsType[*osexec.ExitError](err); ok {
		res.Code, err = code.ExitCode(), nil
	}
	return res, err
}

func bashFiles(t *testing.T) (files sessionFiles, dir string) {
	t.Helper()
	dir = t.TempDir()
	return sessionFiles{bashHere{dir}}, dir
}

// hostileNames are names of files that a shell, tail, stat or a reader of lines might take for
// something else.
var hostileNames = []string{
	"plain", "a b", "-n", "--", "-", "--version", "a\nb", "\n", "*", "?", "[a]", "$(touch pwned)", "`touch pwned`", "; touch pwned", "'", `"`, `\`,
	"\xff\xfe", "ä漢", "~", "#", "!", "a\tb", " ", "...", "%s%n", "x=1", "+1",
}

func TestFilesRoundTrip(t *testing.T) {
	t.Parallel()
	files, dir := bashFiles(t)
	for i, name := range hostileNames {
		want := []byte(fmt.Sprintf("%d\x00\xff\r\n of %q", i, name))
		if err := files.Write(t.Context(), name, want); err != nil {
			t.Errorf("Write(%q) = %v", name, err)
			continue
		}
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("Write(%q) wrote %q, %v; want %q", name, got, err, want)
		}
		if got, end, err := files.Read(t.Context(), name, 0, 1000); err != nil || !end || !bytes.Equal(got, want) {
			t.Errorf("Read(%q) = %q, %v, %v; want %q", name, got, end, err, want)
		}
	}
	list, err := files.List(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, f := range list {
		found[f.Name] = f.Type == "file" && f.Size > 0
	}
	for _, name := range hostileNames {
		if !found[name] {
			t.Errorf("List() has no file %q", name)
		}
	}
	if len(list) != len(hostileNames) {
		t.Errorf("List() has %d entries; want %d: %+v", len(list), len(hostileNames), list)
	}
}

func TestFilesRead(t *testing.T) {
	t.Parallel()
	files, dir := bashFiles(t)
	if err := os.WriteFile(filepath.Join(dir, "digits"), []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		from, most int64
		want       string
		end        bool
	}{
		{0, 10, "0123456789", true},
		{0, 9, "012345678", false},
		{0, 11, "0123456789", true},
		{3, 2, "34", false},
		{8, 2, "89", true},
		{10, 5, "", true},
		{maxOffset, maxFile, "", true},
	} {
		if got, end, err := files.Read(t.Context(), "digits", row.from, row.most); err != nil || string(got) != row.want || end != row.end {
			t.Errorf("Read(%d, %d) = %q, %v, %v; want %q, %v", row.from, row.most, got, end, err, row.want, row.end)
		}
	}
}

// What cannot be read, written or listed is refused in words, and leaves nothing behind.
func TestFilesRefusals(t *testing.T) {
	t.Parallel()
	files, dir := bashFiles(t)
	for name, err := range map[string]error{
		"directory": os.Mkdir(filepath.Join(dir, "directory"), 0o700),
		"file":      os.WriteFile(filepath.Join(dir, "file"), nil, 0o600),
		"dangling":  os.Symlink("nowhere", filepath.Join(dir, "dangling")),
		"device":    os.Symlink("/dev/zero", filepath.Join(dir, "device")),
	} {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	read := func(path string) error {
		_, _, err := files.Read(t.Context(), path, 0, 10)
		return err
	}
	write := func(path string) error { return files.Write(t.Context(), path, []byte("x")) }
	list := func(path string) error {
		_, err := files.List(t.Context(), path)
		return err
	}
	for _, row := range []struct {
		name string
		do   func(path string) error
		path string
		want string
	}{
		{"read", read, "none", `"none": there is no such file`},
		{"read", read, "none/at/all", `"none/at/all": there is no such file`},
		{"read", read, "dangling", `"dangling": there is no such file`},
		{"read", read, "directory", `"directory": it is a directory`},
		{"read", read, "device", `"device": it is not a plain file`},
		{"read", read, "a\x00b", "path: it has a NUL character"},
		{"write", write, "directory", `"directory": it is a directory`},
		{"write", write, "device", `"device": it is not a plain file`},
		{"write", write, "file/below", `"file/below": `},
		{"write", write, "a\x00b", "path: it has a NUL character"},
		{"list", list, "none", `"none": there is no such file`},
		{"list", list, "file", `"file": it is not a directory`},
		{"list", list, "a\x00b", "path: it has a NUL character"},
	} {
		err := row.do(row.path)
		if e, ok := errors.AsType[*Error](err); !ok || !strings.HasPrefix(e.Message, row.want) || e.Data.Kind != KindFile && e.Data.Kind != KindParams {
			t.Errorf("%s %q: %v; want %q", row.name, row.path, err, row.want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 4 {
		t.Errorf("what was refused has left %v, %v", entries, err)
	}
}

func TestFilesWrite(t *testing.T) {
	t.Parallel()
	files, dir := bashFiles(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("script"), []byte("a longer text than before"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(at("script"), 0o751), os.Symlink("script", at("link"))); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ path, text string }{
		{"link", "short"}, {"new/a/b/file", "below"}, {at("absolute"), "root"}, {"empty", ""},
	} {
		var data []byte // nil for an empty file
		if row.text != "" {
			data = []byte(row.text)
		}
		if err := files.Write(t.Context(), row.path, data); err != nil {
			t.Errorf("Write(%s) = %v", row.path, err)
		}
		path := row.path
		if !filepath.IsAbs(path) {
			path = at(path)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != row.text {
			t.Errorf("%s is %q, %v; want %q", row.path, got, err, row.text)
		}
	}
	info, err := os.Lstat(at("script"))
	if err != nil || info.Mode() != 0o751 || info.Size() != 5 {
		t.Errorf("behind the link: %v, %v; want the same permissions, and 5 bytes", info, err)
	}
	if info, err := os.Lstat(at("link")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link has become %v, %v", info, err)
	}
	all, err := filepath.Glob(at("*.new"))
	if below, _ := filepath.Glob(at("new/a/b/*.new")); err != nil || len(all)+len(below) != 0 {
		t.Errorf("files are left: %v %v, %v", all, below, err)
	}
}

func TestFilesList(t *testing.T) {
	t.Parallel()
	files, dir := bashFiles(t)
	if list, err := files.List(t.Context(), "."); err != nil || len(list) != 0 {
		t.Errorf("an empty directory: %+v, %v", list, err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, ".hidden"), 0o750), os.Symlink("/nowhere", filepath.Join(dir, "link")),
		os.WriteFile(filepath.Join(dir, "file"), make([]byte, 1234), 0o640), os.Chmod(filepath.Join(dir, ".hidden"), 0o750|os.ModeSticky)); err != nil {
		t.Fatal(err)
	}
	list, err := files.List(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range list {
		if f.Type != "file" {
			f.Size = 0 // of the file system
		}
		got = append(got, fmt.Sprintf("%s %s %d %s", f.Name, f.Type, f.Size, f.Mode))
	}
	if want := ".hidden directory 0 1750|file file 1234 0640|link link 0 0777"; strings.Join(got, "|") != want {
		t.Errorf("List() = %q; want %q", got, want)
	}
	// More files than are passed to one stat.
	many := filepath.Join(dir, "-many")
	if err := os.Mkdir(many, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 1203 {
		if err := os.WriteFile(filepath.Join(many, fmt.Sprintf("f%04d", i)), make([]byte, i%7), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err = files.List(t.Context(), "-many")
	if err != nil || len(list) != 1203 {
		t.Fatalf("List() has %d entries, %v; want 1203", len(list), err)
	}
	for i, f := range list {
		if f.Name != fmt.Sprintf("f%04d", i) || f.Size != int64(i%7) {
			t.Fatalf("entry %d is %+v", i, f)
		}
	}
}

// commandFunc answers a script as it likes.
type commandFunc func(c sandbox.Command) (sandbox.Result, error)

func (f commandFunc) Run(_ context.Context, c sandbox.Command) (sandbox.Result, error) { return f(c) }

// What a session's programs say is not believed when it cannot be so, and bounded.
func TestFilesOddAnswers(t *testing.T) {
	t.Parallel()
	lost := errors.New("the session is gone")
	says := func(text string, reason exec.Reason) commandFunc {
		return func(c sandbox.Command) (sandbox.Result, error) {
			_, err := io.WriteString(c.Output.LiveStdout, text)
			return sandbox.Result{Status: exec.Status{Reason: reason}}, err
		}
	}
	for _, row := range []struct {
		name string
		run  commandFunc
		kind Kind // of List
	}{
		{"names without their sizes", says("a\x00b\x00\x00", exec.Exited), KindFile},
		{"one size too few", says("a\x00b\x00\x0081a4 1\n", exec.Exited), KindFile},
		{"no separator", says("a 81a4 1\n", exec.Exited), KindFile},
		{"a size in letters", says("a\x00\x0081a4 x\n", exec.Exited), KindFile},
		{"a timeout", says("", exec.TimedOut), KindFile},
		{"a cancelled command", says("", exec.Cancelled), KindFile},
		{"more than a list may be", says(strings.Repeat("x", maxList+1), exec.Exited), KindTooLarge},
	} {
		list, err := sessionFiles{row.run}.List(t.Context(), "x")
		if kindOfError(err) != row.kind {
			t.Errorf("%s: %+v, %v; want %s", row.name, list, err, row.kind)
		}
	}
	if _, err := (sessionFiles{commandFunc(func(sandbox.Command) (sandbox.Result, error) { return sandbox.Result{}, lost })}).List(t.Context(), "x"); !errors.Is(err, lost) {
		t.Errorf("List() in a session that is gone = %v; want %v", err, lost)
	}
	// Masks may make a part longer than it was asked for, but not without a bound.
	if data, end, err := (sessionFiles{says(strings.Repeat("x", 1000), exec.Exited)}).Read(t.Context(), "x", 0, 10); err != nil || len(data) != 10 || end {
		t.Errorf("Read() of more than was asked for = %d bytes, %v, %v; want 10", len(data), end, err)
	}
	if _, _, err := (sessionFiles{says(strings.Repeat("x", maskRoom+10), exec.Exited)}).Read(t.Context(), "x", 0, 9); kindOfError(err) != KindTooLarge {
		t.Errorf("Read() of far more than was asked for = %v; want %s", err, KindTooLarge)
	}
}

// bounded has no other way to be written to: each would pass its limit.
func TestBounded(t *testing.T) {
	t.Parallel()
	b := &bounded{most: 5}
	if _, ok := any(b).(io.ReaderFrom); ok {
		t.Error("bounded reads without a limit")
	}
	if _, ok := any(b).(io.StringWriter); ok {
		t.Error("bounded is written to without a limit")
	}
	for _, row := range []struct {
		text, kept string
		over       bool
	}{{"abc", "abc", false}, {"de", "abcde", false}, {"f", "abcde", true}, {"", "abcde", true}} {
		if n, err := b.Write([]byte(row.text)); n != len(row.text) || err != nil || b.kept.String() != row.kept || b.over != row.over {
			t.Errorf("Write(%q) = %d, %v: %q, over %v; want %q, %v", row.text, n, err, b.kept.String(), b.over, row.kept, row.over)
		}
	}
}

func TestTerminalRequest(t *testing.T) {
	t.Parallel()
	own := append(make([]string, 0, 10), "A=session", "B=session")
	c := TerminalRequest{Command: "vi", Cwd: "src", Env: map[string]string{"C": "3", "A": "1"}, TimeoutSeconds: 1.5}.inSession(own)
	if got := strings.Join(c.Env, " "); c.Script != "vi" || c.Dir != "src" || got != "A=session B=session A=1 C=3" || c.Timeout != 1500*time.Millisecond {
		t.Errorf("inSession() = %+v", c)
	}
	if got := strings.Join(own[:4], " "); got != "A=session B=session  " {
		t.Errorf("the session's own variables have become %q", got)
	}
	for seconds, want := range map[float64]time.Duration{0: 0, 0.001: time.Millisecond, maxTimeout: maxTimeout * time.Second, maxTimeout * 2: 0, 1e12: 0, 1e300: 0, -1: -time.Second} {
		if got := (TerminalRequest{TimeoutSeconds: seconds}).inSession(nil).Timeout; got != want {
			t.Errorf("timeoutSeconds %g is %s; want %s", seconds, got, want)
		}
	}
}

func TestStoredArtifacts(t *testing.T) {
	t.Parallel()
	store, err := sink.NewStore(t.TempDir(), sink.StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := storedArtifacts{store: store, session: "s1"}
	if list, err := all.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("List() of a session that has written none = %+v, %v", list, err)
	}
	session, err := store.Session("s1")
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close() //nolint:errcheck // the artifact is complete
	out, err := sink.New(sink.Options{Artifact: sink.Always}, session, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(out.Stdout(), "0123456789"); err != nil {
		t.Fatal(err)
	}
	id := out.Close().Artifact.ID
	list, err := all.List(t.Context())
	if want := (ArtifactInfo{ID: id, Bytes: 10, Complete: true}); err != nil || len(list) != 1 || list[0] != want {
		t.Fatalf("List() = %+v, %v; want %+v", list, err, want)
	}
	for _, row := range []struct {
		from, most int64
		want       string
	}{{0, maxFile, "0123456789"}, {3, 4, "3456"}, {8, 9, "89"}, {10, 1, ""}, {maxOffset, maxFile, ""}} {
		if data, size, err := all.Read(t.Context(), id, row.from, row.most); err != nil || string(data) != row.want || size != 10 {
			t.Errorf("Read(%d, %d) = %q, %d, %v; want %q of 10", row.from, row.most, data, size, err, row.want)
		}
	}
	for _, other := range []storedArtifacts{{store: store, session: "s2"}, all} {
		if _, _, err := other.Read(t.Context(), "99", 0, 1); kindOfError(answerable(t.Context(), err)) != KindUnknownArtifact {
			t.Errorf("Read() of an artifact that is not there, in session %s = %v", other.session, err)
		}
	}
}
