package mcpcmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/clientfile"
)

// maxFile bounds a configuration file. Larger ones are refused, and never cut.
const maxFile = 64 << 20

// A file is a client's configuration file, as it was and as it is to be.
type file struct {
	path     string
	was, now []byte
	there    bool
	mode     fs.FileMode
	dirs     fs.FileMode          // of directories that are made for it
	doc      *clientfile.Document // of JSON
}

// Permissions of files and directories that are made: those of a project are for all who work on it.
var (
	newFile = map[scope]fs.FileMode{user: 0o600, project: 0o644}
	newDir  = map[scope]fs.FileMode{user: 0o700, project: 0o755}
)

// open reads a file below a directory, which may be missing. It follows no link below that directory.
func open(base, path string, sc scope) (*file, error) {
	rel, err := filepath.Rel(base, path)
	if err != nil || !filepath.IsLocal(rel) {
		base, rel = filepath.Dir(path), filepath.Base(path)
	}
	at := base
	for name := range strings.SplitSeq(filepath.ToSlash(rel), "/") {
		at = filepath.Join(at, name)
		info, err := os.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			f := &file{path: path, mode: newFile[sc], dirs: newDir[sc]}
			return f, f.parse()
		case err != nil:
			return nil, err
		case info.Mode()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(at)
			return nil, exit.Misuse("edit that file by hand, as `sandboxbash mcp install --dry-run` of a machine without the link shows it", "%s is a link to %s, and links are not followed", at, target)
		case at != path && !info.IsDir():
			return nil, exit.Misuse("", "%s is not a directory", at)
		case at == path && !info.Mode().IsRegular():
			return nil, exit.Misuse("", "%s is not a file", at)
		case at == path && info.Size() > maxFile:
			return nil, exit.Misuse("", "%s has more than %d bytes", at, maxFile)
		}
	}
	f := &file{path: path, there: true}
	if err := f.read(); err != nil {
		return nil, err
	}
	return f, f.parse()
}

func (f *file) read() error {
	r, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer r.Close()
	info, err := r.Stat()
	if err != nil {
		return err
	}
	f.mode = info.Mode().Perm()
	f.was, err = io.ReadAll(io.LimitReader(r, maxFile))
	f.now = f.was
	return err
}

func (f *file) isTOML() bool { return filepath.Ext(f.path) == ".toml" }

// parse refuses what is not understood, and says where.
func (f *file) parse() error {
	var err error
	if f.isTOML() {
		_, err = clientfile.ParseTOML(f.was)
	} else {
		f.doc, err = clientfile.ParseJSON(f.was)
	}
	return f.placed(err)
}

// placed says in which file an error is.
func (f *file) placed(err error) error {
	if err == nil {
		return nil
	}
	return exit.Misuse("correct the file; nothing was changed", "%s: %v", f.path, err)
}

// state is what a file has of an edit.
type state int

const (
	absent state = iota
	same
	another // another value is there
)

// mark is in the lines of TOML that this program writes.
const mark = "written by sandboxbash mcp install"

func (e edit) table() clientfile.Table {
	return clientfile.Table{Mark: mark, Name: e.path, Lines: e.lines}
}

// state looks for an edit.
func (f *file) state(e edit) state {
	if f.isTOML() {
		return f.stateTOML(e)
	}
	if e.element {
		if f.doc.Has(e.value, e.path...) {
			return same
		}
		return absent
	}
	got := f.doc.Get(e.path...)
	switch {
	case got == nil:
		return absent
	case clientfile.EqualTo(got, e.value):
		return same
	}
	return another
}

func (f *file) stateTOML(e edit) state {
	all, err := clientfile.ParseTOML(f.now)
	if err != nil {
		return absent
	}
	got, ok := clientfile.Lookup(all, e.path...)
	if !ok {
		return absent
	}
	want := e.off
	if len(e.lines) > 0 {
		table, err := clientfile.ParseTOML([]byte(strings.Join(e.lines, "\n")))
		if err != nil {
			return another
		}
		want = table
	}
	if bytes.Equal(compact(got), compact(want)) {
		return same
	}
	return another
}

// set makes an edit.
func (f *file) set(e edit) error {
	var err error
	switch {
	case f.isTOML() && len(e.lines) > 0:
		f.now, err = clientfile.SetTable(f.now, e.table())
	case f.isTOML():
		f.now, _, err = clientfile.SetLine(f.now, e.path[0], e.line, e.off, mark)
	case e.element:
		err = f.doc.Add(e.value, e.path...)
		f.now = f.doc.Text()
	default:
		err = f.doc.Set(e.value, e.path...)
		f.now = f.doc.Text()
	}
	return f.placed(err)
}

// depth is how many names of an edit's path are there.
func (f *file) depth(e edit) int {
	if f.isTOML() {
		return 0
	}
	return f.doc.Depth(e.path...)
}

// unset takes an edit back.
func (f *file) unset(e edit) error {
	var err error
	switch {
	case f.isTOML() && len(e.lines) > 0:
		f.now, err = clientfile.RemoveTable(f.now, e.table())
	case f.isTOML():
		f.now, err = clientfile.RemoveLines(f.now, mark)
	case e.element:
		err = f.doc.RemoveFrom(e.value, e.keep, e.path...)
		f.now = f.doc.Text()
	default:
		err = f.doc.Remove(e.keep, e.path...)
		f.now = f.doc.Text()
	}
	return f.placed(err)
}

func (f *file) changed() bool { return !bytes.Equal(f.was, f.now) }

// empty reports whether the file holds nothing any more.
func (f *file) empty() bool {
	text := strings.Join(strings.Fields(string(f.now)), "")
	return text == "" || text == "{}"
}

// save writes the file whole or not at all, after a copy of what was there to a directory for copies.
// remove removes it.
func (f *file) save(copies string, remove bool) (copied string, err error) {
	if f.there {
		if copied, err = f.backUp(copies); err != nil {
			return "", fmt.Errorf("keep a copy of %s: %w", f.path, err)
		}
	}
	now, err := os.ReadFile(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || !bytes.Equal(now, f.was) || f.there != (err == nil) {
		return copied, exit.Misuse("try again", "%s was changed meanwhile, and is left as it is", f.path)
	}
	if remove {
		return copied, os.Remove(f.path)
	}
	if err := os.MkdirAll(filepath.Dir(f.path), f.dirs); err != nil {
		return copied, err
	}
	w, err := os.CreateTemp(filepath.Dir(f.path), ".sandboxbash-*")
	if err != nil {
		return copied, err
	}
	defer os.Remove(w.Name())
	_, err = w.Write(f.now)
	err = errors.Join(err, w.Chmod(f.mode), w.Sync(), w.Close())
	if err == nil {
		err = os.Rename(w.Name(), f.path)
	}
	return copied, err
}

func (f *file) backUp(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	name := strings.NewReplacer(string(filepath.Separator), "-", ":", "-").Replace(strings.Trim(f.path, string(filepath.Separator)))
	path := filepath.Join(dir, time.Now().UTC().Format("20060102T150405.000000")+"-"+name)
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = w.Write(f.was)
	return path, errors.Join(err, w.Sync(), w.Close())
}

// A record is one value that this program has written. Records are what uninstall goes by.
type record struct {
	Client  string          `json:"client"`
	Scope   scope           `json:"scope"`
	What    string          `json:"what"`
	File    string          `json:"file"`
	Path    []string        `json:"path"`
	Element bool            `json:"element,omitempty"`
	Value   json.RawMessage `json:"value,omitempty"`
	Lines   []string        `json:"lines,omitempty"`
	Line    string          `json:"line,omitempty"`
	Created bool            `json:"created,omitempty"` // the file, by this program
	Keep    int             `json:"keep,omitempty"`    // so many names of the path were there before
}

func (r record) edit() edit {
	e := edit{what: r.What, file: r.File, path: r.Path, element: r.Element, lines: r.Lines, line: r.Line, off: false, keep: r.Keep}
	if len(r.Value) > 0 {
		e.value = r.Value
	}
	return e
}

func recordOf(c client, s scope, e edit, created bool) record {
	r := record{Client: c.name, Scope: s, What: e.what, File: e.file, Path: e.path, Element: e.element, Lines: e.lines, Line: e.line, Created: created, Keep: e.keep}
	if e.value != nil {
		r.Value = compact(e.value)
	}
	return r
}

// records are kept in a file of the state directory.
type records struct {
	path string
	list []record
}

func loadRecords(dir string) (*records, error) {
	r := &records{path: filepath.Join(dir, "clients.json")}
	text, err := os.ReadFile(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r.list)
	}
	if err != nil {
		return nil, exit.Misuse("remove the file to go on without it", "what was installed is not known: %s: %v", r.path, err)
	}
	return r, nil
}

func (r *records) of(c client, s scope) (list []record) {
	for _, one := range r.list {
		if one.Client == c.name && one.Scope == s {
			list = append(list, one)
		}
	}
	return list
}

// has reports whether an edit was made by this program.
func (r *records) has(c client, s scope, e edit) bool {
	return slices.ContainsFunc(r.of(c, s), func(one record) bool {
		return one.File == e.file && slices.Equal(one.Path, e.path) && one.Element == e.element
	})
}

// put replaces the records of a client and scope that are about some files.
func (r *records) put(c client, s scope, files []string, list []record) error {
	r.list = slices.DeleteFunc(r.list, func(one record) bool {
		return one.Client == c.name && one.Scope == s && slices.Contains(files, one.File)
	})
	r.list = append(r.list, list...)
	if err := os.MkdirAll(filepath.Dir(r.path), 0o700); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r.list, "", "  ")
	if err != nil {
		return err
	}
	w, err := os.CreateTemp(filepath.Dir(r.path), ".clients-*")
	if err != nil {
		return err
	}
	defer os.Remove(w.Name())
	_, err = w.Write(append(text, '\n'))
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	return os.Rename(w.Name(), r.path)
}
