// Package transfer takes files and trees of this machine into a session and back, and
// compares the two. A Packer packs what goes in, without credentials. The two ends that
// are inside the session, Unpack and Pack, are part of the runner.
//
// What comes out of a session is its commands' work: names, links, sizes and the order
// of entries are hostile, and so may be the stream itself.
// Read reads a stream of entries within Limits. An Inbox stages them, decides at
// the end what is to be done, and does it or nothing:
//
//   - nothing is written outside of the directory, and no link leads outside of it,
//     now or after a later transfer (see links.go);
//   - nothing is written that this machine's own tools run by themselves (see
//     guard.go);
//   - nothing is overwritten that differs from the state that is known to have been
//     alike on both sides, a State, unless the user says so.
//
// An Apply brings changes to a directory in which the user works, too: see stage.go.
//
// The package needs the standard library only.
package transfer

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Kind says what an entry is.
type Kind byte

// Kinds of entries. Other is what is never made on this machine: devices, FIFOs,
// hard links.
const (
	File  Kind = 'f'
	Dir   Kind = 'd'
	Link  Kind = 'l'
	Other Kind = 'o'
)

// Sum is the SHA-256 of a file's content.
type Sum [sha256.Size]byte

// Entry is one file, directory or symbolic link of a tree.
type Entry struct {
	Name   string // relative, with slashes, clean; "." is the tree itself
	Target string // of a link
	Size   int64  // of a file, in bytes
	Sum    *Sum   // of a file; nil until its content has been read
	Mode   fs.FileMode
	Kind   Kind
}

// Same reports whether two entries are alike: files by mode and content, links by
// target. All directories are.
func (e Entry) Same(f Entry) bool {
	if e.Kind != f.Kind {
		return false
	}
	switch e.Kind {
	case File:
		return sameMode(e.Mode, f.Mode) && e.Size == f.Size && e.Sum != nil && f.Sum != nil && *e.Sum == *f.Sum
	case Link:
		return e.Target == f.Target
	case Dir, Other:
		return true
	}
	return false
}

// Limits bound what is taken out of a session.
type Limits struct {
	Bytes   int64 // of all files together
	Entries int
	Names   int64 // bytes of all names and targets together
	Depth   int   // directories
}

// DefaultLimits keep the memory for a tree below some 150 megabytes, whatever a
// session sends: 64 bytes an entry, twice for a moment, and the names.
var DefaultLimits = Limits{Bytes: 16 << 30, Entries: 1 << 19, Names: 32 << 20, Depth: 256}

const (
	maxPath = 4096 // bytes; PATH_MAX of linux
	maxName = 255  // bytes; NAME_MAX of linux
)

// overhead is what a stream may be larger than the files in it: headers, padding,
// and records that nothing is kept of.
const overhead = 1 << 30 // bytes

// errTooLong ends a stream that is more than its files.
var errTooLong = errors.New("the stream is longer than what it may hold")

// Read reads a tar stream to its end and hands each entry to take, with the
// content of a file. It keeps nothing of an entry; what take keeps is its own
// copy.
func Read(r io.Reader, l Limits, take func(Entry, io.Reader) error) error {
	r = &bounded{r: r, left: l.Bytes + overhead}
	archive := tar.NewReader(r)
	for entries, total, names := 0, int64(0), int64(0); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			_, err := io.Copy(io.Discard, r) // the padding behind the end
			return err
		}
		if err != nil {
			return err
		}
		e, err := l.entry(h)
		if err != nil {
			return err
		}
		if entries++; entries > l.Entries {
			return fmt.Errorf("it has more than %d files", l.Entries)
		}
		if names += int64(len(e.Name) + len(e.Target)); names > l.Names {
			return fmt.Errorf("the names of its files are more than %d bytes", l.Names)
		}
		if e.Size > l.Bytes-total { // total+e.Size could overflow
			return fmt.Errorf("%s: it is larger than %d bytes", shown(e.Name), l.Bytes)
		}
		total += e.Size
		if err := take(e, archive); err != nil {
			return fmt.Errorf("%s: %w", shown(e.Name), err)
		}
	}
}

// shown is a name as a message has it: quoted, if it is not plain.
func shown(name string) string {
	if len(name) > maxName {
		name = name[:maxName] + "…"
	}
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

// bounded fails when more is read than left says.
type bounded struct {
	r    io.Reader
	left int64 // bytes
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// entry checks one header. The strings of a header may be small parts of a large
// record: they are copied.
func (l Limits) entry(h *tar.Header) (Entry, error) {
	e := Entry{Name: path.Clean(h.Name), Mode: fs.FileMode(h.Mode).Perm()}
	switch {
	case len(h.Name) > maxPath:
		return e, fmt.Errorf("a name has %d bytes; the limit is %d", len(h.Name), maxPath)
	case len(h.Linkname) > maxPath:
		return e, fmt.Errorf("%q: the target of a link has %d bytes; the limit is %d", e.Name, len(h.Linkname), maxPath)
	case strings.IndexByte(h.Name, 0) >= 0 || strings.IndexByte(h.Linkname, 0) >= 0:
		return e, fmt.Errorf("entry %q has a NUL byte", e.Name)
	}
	if err := l.checkName(e); err != nil {
		return e, err
	}
	e.Name = strings.Clone(e.Name)
	switch h.Typeflag {
	case tar.TypeDir:
		e.Kind = Dir
	case tar.TypeSymlink:
		e.Kind, e.Target = Link, strings.Clone(h.Linkname)
	case tar.TypeReg:
		e.Kind, e.Size = File, h.Size
	case tar.TypeGNUSparse, tar.TypeXGlobalHeader:
		return e, fmt.Errorf("%s: entries of type %q are not taken", shown(e.Name), h.Typeflag)
	default:
		e.Kind = Other
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") { // a few bytes that stand for any number
			return e, fmt.Errorf("%s: sparse entries are not taken", shown(e.Name))
		}
	}
	switch {
	case e.Size < 0:
		return e, fmt.Errorf("%s: its size is negative", shown(e.Name))
	case e.Kind != Dir && e.Name == ".":
		return e, errors.New("an entry has no name but is not a directory")
	}
	return e, nil
}

// checkName refuses names that are not those of a file below a directory.
func (l Limits) checkName(e Entry) error {
	switch {
	case strings.IndexByte(e.Name, 0) >= 0 || strings.IndexByte(e.Target, 0) >= 0:
		return fmt.Errorf("entry %q has a NUL byte", e.Name)
	case strings.Count(e.Name, "/") > l.Depth:
		return fmt.Errorf("%s: it is deeper than %d directories", shown(e.Name), l.Depth)
	case !filepath.IsLocal(filepath.FromSlash(e.Name)):
		return fmt.Errorf("entry %q leads out of the directory", e.Name)
	case longComponent(e.Name):
		return fmt.Errorf("%q: a name has more than %d bytes", e.Name, maxName)
	}
	return nil
}

func longComponent(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > maxName {
			return true
		}
	}
	return false
}
