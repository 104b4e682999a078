package transfer

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// entry is one of an archive.
type entry struct {
	tar.Header
	content string
}

// pack makes an archive, with the directories that its entries lie in.
func pack(tb testing.TB, entries ...entry) []byte {
	tb.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	made := map[string]bool{".": true, "/": true, "..": true}
	var dir func(name string)
	dir = func(name string) {
		if made[name] {
			return
		}
		made[name] = true
		dir(filepath.Dir(name))
		if err := w.WriteHeader(&tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
			tb.Fatal(err)
		}
	}
	for _, e := range entries {
		if e.Size = int64(len(e.content)); e.Typeflag == tar.TypeDir {
			made[strings.TrimSuffix(e.Name, "/")] = true
		}
		dir(filepath.Dir(strings.TrimSuffix(e.Name, "/")))
		if err := w.WriteHeader(&e.Header); err != nil {
			tb.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

func regular(name, content string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, content}
}

func symlink(name, target string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}, ""}
}

func directory(name string, mode int64) entry {
	return entry{tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: mode}, ""}
}

// unpack takes an archive into a directory.
func unpack(archive io.Reader, dir string, o Options) (Report, error) {
	in, err := Open(dir, o)
	if err != nil {
		return Report{}, err
	}
	if err := Read(archive, DefaultLimits, in.Take); err != nil {
		return Report{}, errors.Join(err, in.Close())
	}
	report, err := in.Finish()
	return report, errors.Join(err, in.Close())
}

// plant makes files below dir: a name with a slash at its end is a directory, one
// with " -> " a link.
func plant(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		name, target, isLink := strings.Cut(name, " -> ")
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		case isLink:
			err = os.Symlink(target, path)
		case err == nil:
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// tree describes a directory: mode and content, or target.
func tree(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		what := info.Mode().String()
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			what = "-> " + target
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			what += " " + string(b)
		}
		all[name] = what
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		tb.Fatal(err)
	}
	return all
}

// onlyInside checks that nothing but dir and its parents was made below outer.
func onlyInside(tb testing.TB, outer, dir string) {
	tb.Helper()
	for name := range tree(tb, outer) {
		path := filepath.Join(outer, name)
		if !strings.HasPrefix(path+"/", dir+"/") && !strings.HasPrefix(dir+"/", path+"/") {
			tb.Errorf("%s was made outside of %s", path, dir)
		}
	}
}

// stateOf is what a session had in common with a directory.
func stateOf(t *testing.T, entries ...entry) State {
	t.Helper()
	var all []Entry
	for _, e := range entries {
		to := Entry{Name: strings.TrimSuffix(e.Name, "/"), Mode: fs.FileMode(e.Mode).Perm(), Target: e.Linkname}
		switch e.Typeflag {
		case tar.TypeDir:
			to.Kind = Dir
		case tar.TypeSymlink:
			to.Kind = Link
		default:
			to.Kind, to.Size, to.Sum = File, int64(len(e.content)), new(Sum(sha256.Sum256([]byte(e.content))))
		}
		all = append(all, to)
	}
	return NewState(all)
}
