package images

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/ociarchive"
)

// tree is a root file system for an image. It has files of this machine under their own
// paths, and files that this package makes. It has no owners, times and special mode bits,
// and nothing but files, directories and links. The files of this machine are read when
// the tree is written.
type tree struct {
	entries map[string]entry
	missing map[string]bool // paths that do not exist, or are not taken
	files   map[string]bool // permitted besides those of permitted: of tools that were added
	roots   []string        // the same, with all that is below
}

type entry struct {
	mode  fs.FileMode // type, and permissions of a file
	size  int64
	mtime time.Time
	link  string // target of a symbolic link
	data  []byte // of a made file
	made  bool
	inode inode // of a file; equal ones are hard links
}

func newTree() *tree {
	return &tree{entries: make(map[string]entry), missing: make(map[string]bool)}
}

// permit lets the tree take files, and roots with all that is below them. dpkg may know a path by its
// place before /usr was merged.
func (t *tree) permit(files, roots []string) {
	if t.files == nil {
		t.files = make(map[string]bool)
	}
	for _, path := range files {
		t.files[path], t.files["/usr"+path] = true, true
	}
	t.roots = append(t.roots, roots...)
}

func (t *tree) permitted(path string) bool {
	return permitted(path) || t.files[path] ||
		slices.ContainsFunc(t.roots, func(root string) bool { return path == root || strings.HasPrefix(path, root+"/") })
}

// maxLinks bounds the links followed for one path, as the kernel does (ELOOP).
const maxLinks = 40

// add takes the file, directory or link at path, and what leads there: parent directories
// and the targets of links, under the same paths. It returns the path that the links lead
// to, or "" if that does not exist or may not be taken. A directory is taken without its
// content.
func (t *tree) add(path string) string {
	rest := strings.Split(strings.Trim(filepath.Clean(path), "/"), "/")
	at, links := "/", 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == ".." || name == "." || name == "" {
			if name == ".." {
				at = filepath.Dir(at)
			}
			continue
		}
		next := filepath.Join(at, name)
		e, ok := t.entry(next, len(rest) > 0)
		if !ok {
			return ""
		}
		t.entries[next] = e
		if e.mode&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return ""
		}
		if filepath.IsAbs(e.link) {
			at = "/"
		}
		rest = append(strings.Split(strings.Trim(e.link, "/"), "/"), rest...)
	}
	return at
}

// entry returns what is at path. A directory on the way to a permitted path need not be
// permitted itself.
func (t *tree) entry(path string, onTheWay bool) (entry, bool) {
	if e, ok := t.entries[path]; ok {
		return e, true
	}
	if t.missing[path] {
		return entry{}, false
	}
	e, ok := look(path)
	if ok && e.mode.IsDir() && (onTheWay || t.permitted(path)) {
		return e, true
	}
	if !ok || !t.permitted(path) {
		t.missing[path] = !ok
		return entry{}, false
	}
	return e, true
}

// look reads an entry. It leaves out special files, and files that not every user may
// read: they may be secret.
func look(path string) (entry, bool) {
	info, err := os.Lstat(path)
	if err != nil {
		return entry{}, false
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return entry{mode: fs.ModeDir | 0o755}, true
	case mode&fs.ModeSymlink != 0:
		link, err := os.Readlink(path)
		return entry{mode: fs.ModeSymlink | 0o777, link: link}, err == nil
	case mode.IsRegular() && mode&0o004 != 0:
		return entry{mode: mode.Perm(), size: info.Size(), mtime: info.ModTime(), inode: inodeOf(info)}, true
	}
	return entry{}, false
}

// addAll takes what is at path and, of a directory, everything below it.
func (t *tree) addAll(path string) {
	target := t.add(path)
	if target == "" || !t.entries[target].mode.IsDir() {
		return
	}
	list, err := os.ReadDir(target)
	if err != nil {
		return // what we may not read, the sandbox does not get
	}
	for _, d := range list {
		below := filepath.Join(target, d.Name())
		if d.IsDir() {
			if t.permitted(below) {
				t.addAll(below)
			}
			continue
		}
		t.add(below)
	}
}

// shorten makes absolute links between files below dir relative, so that following them
// looks at nothing outside dir. Every start of a program follows such a link to the
// dynamic linker; this halves the look-ups.
func (t *tree) shorten(dir string) {
	for path, e := range t.entries {
		if e.mode&fs.ModeSymlink == 0 || !filepath.IsAbs(e.link) || !strings.HasPrefix(path, dir+"/") {
			continue
		}
		to := filepath.Clean(e.link)
		top, rest, _ := strings.Cut(to[1:], "/")
		if merged := t.entries["/"+top]; merged.mode&fs.ModeSymlink != 0 { // as /lib to /usr/lib
			to = filepath.Join("/", merged.link, rest)
		}
		if !strings.HasPrefix(to, dir+"/") {
			continue
		}
		if link, err := filepath.Rel(filepath.Dir(path), to); err == nil {
			e.link = link
			t.entries[path] = e
		}
	}
}

// make adds an entry that this machine need not have.
func (t *tree) make(path string, mode fs.FileMode, data string) {
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
		if _, ok := t.entries[dir]; !ok {
			t.entries[dir] = entry{mode: fs.ModeDir | 0o755, made: true}
		}
	}
	t.entries[path] = entry{mode: mode, data: []byte(data), size: int64(len(data)), made: true}
}

// digest covers what decides the bytes of the tar and is known without reading files:
// their paths, sizes, times and modes.
func (t *tree) digest(version string) string {
	h := sha256.New()
	fmt.Fprintln(h, version)
	for _, path := range slices.Sorted(maps.Keys(t.entries)) {
		e := t.entries[path]
		fmt.Fprintf(h, "%q %o %d %d %q %x\n", path, e.mode, e.size, mtimeOf(e), e.link, sha256.Sum256(e.data))
	}
	return hex.EncodeToString(h.Sum(nil))
}

func mtimeOf(e entry) int64 {
	if e.mtime.IsZero() {
		return 0
	}
	return e.mtime.UnixNano()
}

// size returns the sum of the files' sizes, in bytes.
func (t *tree) size() (n int64) {
	for _, e := range t.entries {
		n += e.size
	}
	return n
}

// write streams the tree as a tar, in the order of its paths, and calls wrote
// with the bytes of files written so far.
func (t *tree) write(ctx context.Context, w io.Writer, wrote func(int64)) error {
	tw := tar.NewWriter(w)
	first := make(map[inode]string)
	buf := make([]byte, 256<<10)
	var sum int64
	for _, path := range slices.Sorted(maps.Keys(t.entries)) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e := t.entries[path]
		hdr := header(path, e)
		if same, ok := first[e.inode]; ok && e.inode != (inode{}) {
			hdr.Typeflag, hdr.Linkname, hdr.Size = tar.TypeLink, same, 0
		}
		if err := tw.WriteHeader(hdr); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if hdr.Typeflag != tar.TypeReg {
			continue
		}
		if e.inode != (inode{}) {
			first[e.inode] = hdr.Name
		}
		if err := copyContent(tw, path, e, buf); err != nil {
			return err
		}
		sum += e.size
		wrote(sum)
	}
	return tw.Close()
}

func header(path string, e entry) *tar.Header {
	// The group gets no permissions: it is root's, and has no other member. For each
	// directory and file with group permissions on a path, a kernel asks a FUSE storage
	// driver for the ACL, which takes a round trip.
	hdr := &tar.Header{Name: path[1:], Mode: int64(e.mode.Perm() &^ 0o070), ModTime: ociarchive.Epoch, Format: tar.FormatPAX}
	switch {
	case e.mode.IsDir():
		hdr.Typeflag, hdr.Name = tar.TypeDir, hdr.Name+"/"
		if e.mode&fs.ModeSticky != 0 { // /tmp is for every user
			hdr.Mode = 0o1777
		}
	case e.mode&fs.ModeSymlink != 0:
		hdr.Typeflag, hdr.Linkname = tar.TypeSymlink, e.link
	default:
		hdr.Typeflag, hdr.Size = tar.TypeReg, e.size
		if strings.HasSuffix(path, ".py") {
			// Python ignores a compiled module whose recorded time is not its source's.
			hdr.ModTime = e.mtime.Truncate(time.Second)
		}
	}
	return hdr
}

func copyContent(w io.Writer, path string, e entry, buf []byte) error {
	if e.made {
		_, err := w.Write(e.data)
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	err = copyWhole(w, f, e.size, e.mtime, buf)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

var errChanged = errors.New("changed while it was read; try again")

// copyWhole copies a file that was found with that size and time. It returns errChanged if
// it has others by now: the digest of a snapshot covers them, so that a package which is
// upgraded meanwhile must not be in the image of the one before. Without a buffer it makes
// one.
func copyWhole(w io.Writer, f fs.File, size int64, mtime time.Time, buf []byte) error {
	// Neither side may copy in its own way: the buffer is the caller's.
	n, err := io.CopyBuffer(struct{ io.Writer }{w}, io.LimitReader(f, size), buf)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && (n != size || info.Size() != size || !info.ModTime().Equal(mtime)) {
		err = errChanged
	}
	return err
}

// link adds a symbolic link that this machine need not have.
func (t *tree) link(path, to string) {
	t.make(path, 0, "")
	t.entries[path] = entry{mode: fs.ModeSymlink | 0o777, link: to, made: true}
}
