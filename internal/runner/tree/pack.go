//go:build linux

package tree

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Pack writes a directory and what is in it as a tar stream, in the order of a walk with the names of each directory
// sorted. Its form is that of POSIX pax archives; extended attributes are in records SCHILY.xattr, as GNU tar and star write
// them, and files with holes in the format 1.0 of GNU tar. It reports as Copy does. Unpack reads it.
func Pack(out io.Writer, from string, l Limits) (wire.Tree, error) {
	src, err := unix.Open(from, openDir, 0)
	if err != nil {
		return wire.Tree{}, fmt.Errorf("%s: %w", from, err)
	}
	defer unix.Close(src)
	sum := sha256.New()
	w := io.MultiWriter(out, sum)
	p := &packing{raw: w, tar: tar.NewWriter(w), sum: sum, limits: l, hard: map[inode]string{}}
	top := &node{}
	if err := p.dir(src, top, 0); err != nil {
		return wire.Tree{}, err
	}
	if err := p.tar.Close(); err != nil {
		return wire.Tree{}, err
	}
	p.report.Sum = wire.Sum(sum.Sum(nil))
	return p.report, top.compare(src, &p.report)
}

type packing struct {
	raw    io.Writer
	tar    *tar.Writer
	sum    hash.Hash
	limits Limits
	hard   map[inode]string // the first name of a file that has several
	report wire.Tree
}

// dir packs an open directory and what is in it.
func (p *packing) dir(fd int, n *node, depth int) error {
	if depth > p.limits.Depth {
		return n.at(fmt.Errorf("it is deeper than %d directories", p.limits.Depth))
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return n.at(err)
	}
	n.saw(&st)
	h := header(n, &st, tar.TypeDir)
	h.Name += "/"
	if err := withAttributes(h, fd); err != nil {
		return n.at(err)
	}
	if err := p.tar.WriteHeader(h); err != nil {
		return n.at(err)
	}
	list, err := names(fd)
	if err != nil {
		return n.at(err)
	}
	slices.Sort(list)
	if p.report.Entries += int64(len(list)); p.report.Entries > int64(p.limits.Entries) {
		return n.at(fmt.Errorf("there are more than %d files", p.limits.Entries))
	}
	n.children = make([]*node, len(list))
	for i, name := range list {
		child := &node{name: name, up: n}
		n.children[i] = child
		err := p.entry(fd, child, depth)
		if errors.Is(err, errGone) {
			child.hot = true
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *packing) entry(dir int, n *node, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, n.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return n.at(gone(err))
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		fd, err := unix.Openat(dir, n.name, openDir, 0)
		if err != nil {
			return n.at(gone(err))
		}
		defer unix.Close(fd)
		return p.dir(fd, n, depth+1)
	}
	n.saw(&st)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFLNK, unix.S_IFIFO:
	default:
		p.report.Leave(n.path() + " (" + kind(st.Mode) + ")")
		return nil
	}
	if st.Nlink > 1 {
		key := inode{st.Dev, st.Ino}
		if first, ok := p.hard[key]; ok {
			h := header(n, &st, tar.TypeLink)
			h.Linkname = first
			return n.at(p.tar.WriteHeader(h))
		}
	}
	err := p.other(dir, n, &st)
	if err == nil && st.Nlink > 1 {
		p.hard[inode{st.Dev, st.Ino}] = header(n, &st, tar.TypeReg).Name
	}
	return n.at(err)
}

// other packs what is not a directory.
func (p *packing) other(dir int, n *node, st *unix.Stat_t) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		target, err := readlink(dir, n.name)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return errGone
		}
		if err != nil {
			return err
		}
		h := header(n, st, tar.TypeSymlink)
		h.Linkname = target
		return p.tar.WriteHeader(h)
	case unix.S_IFIFO:
		return p.tar.WriteHeader(header(n, st, tar.TypeFifo))
	}
	return p.file(dir, n)
}

// header is that of an entry. All names begin with ./, as those of GNU tar do for a directory.
func header(n *node, st *unix.Stat_t, kind byte) *tar.Header {
	name := "."
	if n.up != nil {
		name = "./" + n.path()
	}
	return &tar.Header{
		Typeflag: kind, Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: time.Unix(st.Mtim.Sec, st.Mtim.Nsec), Format: tar.FormatPAX, PAXRecords: map[string]string{},
	}
}

// attributePrefix begins the keys of records with extended attributes.
const attributePrefix = "SCHILY.xattr."

// A key of a record cannot have '=', so that character is written as in a URL, and with it the one that begins it.
var (
	attributeEscape   = strings.NewReplacer("%", "%25", "=", "%3D")
	attributeUnescape = strings.NewReplacer("%25", "%", "%3D", "=")
)

// maxRecords bounds the records of one entry, in bytes: package tar reads no more than a mebibyte.
const maxRecords = 900 << 10

func withAttributes(h *tar.Header, fd int) error {
	all, err := attributes(fd)
	size := 0
	for _, a := range all {
		if size += len(a.name) + len(a.value); size > maxRecords {
			return fmt.Errorf("its extended attributes are larger than %d bytes", maxRecords)
		}
		h.PAXRecords[attributePrefix+attributeEscape.Replace(a.name)] = string(a.value)
	}
	return err
}

func (p *packing) file(dir int, n *node) error {
	// It may have become a FIFO since: opening must not wait for a writer.
	fd, err := unix.Openat(dir, n.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return gone(err)
	}
	f := os.NewFile(uintptr(fd), n.name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errGone
	}
	n.saw(&st)
	if p.report.Bytes += st.Size; p.report.Bytes > p.limits.Bytes {
		return fmt.Errorf("all files together are larger than %d bytes", p.limits.Bytes)
	}
	h := header(n, &st, tar.TypeReg)
	if err := withAttributes(h, fd); err != nil {
		return err
	}
	if sparse(&st) {
		holes, err := extents(fd, st.Size)
		if err != nil {
			return err
		}
		return p.sparse(h, f, holes, st.Size)
	}
	h.Size = st.Size
	if err := p.tar.WriteHeader(h); err != nil {
		return err
	}
	return padded(p.tar, f, extent{0, st.Size}, n)
}

// padded writes a part of a file. One that has shrunk meanwhile is filled up with zeros, and has changed: its header is
// written already.
func padded(w io.Writer, f *os.File, e extent, n *node) error {
	done, err := io.Copy(w, io.NewSectionReader(f, e.at, e.size))
	if err == nil && done < e.size {
		n.hot = true
		_, err = io.CopyN(w, zeros{}, e.size-done)
	}
	return err
}

// zeros is a source of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// maxExtents is how many parts with data a file may have in the stream; package tar reads a mebibyte of them. In a file
// with more parts, small holes are written as zeros.
const maxExtents = 16 << 10

func joined(all []extent) []extent {
	for least := int64(blockSize); len(all) > maxExtents; least *= 2 {
		out := all[:1]
		for _, e := range all[1:] {
			if last := &out[len(out)-1]; e.at-(last.at+last.size) <= least {
				last.size = e.at + e.size - last.at
				continue
			}
			out = append(out, e)
		}
		all = out
	}
	return all
}

// tarBlock is the size of what a tar stream consists of, in bytes.
const tarBlock = 512

// sparse packs a file with holes. Package tar reads this format and does not write it: the records, and the header behind
// them, are written here.
func (p *packing) sparse(h *tar.Header, f *os.File, all []extent, size int64) error {
	all = joined(all)
	var at bytes.Buffer
	fmt.Fprintf(&at, "%d\n", len(all)+1)
	stored := int64(0)
	for _, e := range all {
		fmt.Fprintf(&at, "%d\n%d\n", e.at, e.size)
		stored += e.size
	}
	fmt.Fprintf(&at, "%d\n0\n", size) // so that a hole at the end is one
	at.Write(make([]byte, padding(int64(at.Len()))))
	stored += int64(at.Len())

	records := map[string]string{
		"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": h.Name, "GNU.sparse.realsize": strconv.FormatInt(size, 10),
		"mtime": paxTime(h.ModTime), "uid": strconv.Itoa(h.Uid), "gid": strconv.Itoa(h.Gid), "size": strconv.FormatInt(stored, 10),
	}
	maps.Copy(records, h.PAXRecords)
	if err := p.tar.Flush(); err != nil { // the padding of the entry before
		return err
	}
	body := paxRecords(records)
	if err := p.block(rawHeader("PaxHeaders/sparse", 'x', 0o644, int64(len(body)))); err != nil {
		return err
	}
	if err := p.padded(body); err != nil {
		return err
	}
	if err := p.block(rawHeader("GNUSparseFile", '0', h.Mode, min(stored, 1<<33-1))); err != nil {
		return err
	}
	if err := p.block(at.Bytes()); err != nil {
		return err
	}
	n := &node{}
	for _, e := range all {
		if err := padded(p.raw, f, e, n); err != nil {
			return err
		}
	}
	if n.hot {
		err := p.block(make([]byte, padding(stored)))
		return errors.Join(err, errShrunk)
	}
	return p.block(make([]byte, padding(stored)))
}

// errShrunk is an errGone of a file that was packed all the same.
var errShrunk = fmt.Errorf("it has become smaller: %w", errGone)

func (p *packing) block(b []byte) error {
	_, err := p.raw.Write(b)
	return err
}

func (p *packing) padded(b []byte) error {
	return errors.Join(p.block(b), p.block(make([]byte, padding(int64(len(b))))))
}

func padding(size int64) int64 { return -size & (tarBlock - 1) }

// paxTime is a time as a record has it.
func paxTime(t time.Time) string {
	sec, nsec := t.Unix(), int64(t.Nanosecond())
	if nsec == 0 {
		return strconv.FormatInt(sec, 10)
	}
	sign := ""
	if sec < 0 { // the fraction is one of the absolute value
		sign, sec, nsec = "-", -(sec + 1), 1e9-nsec
	}
	return strings.TrimRight(fmt.Sprintf("%s%d.%09d", sign, sec, nsec), "0")
}

// paxRecords encodes records as pax(1) says: each begins with its own length.
func paxRecords(records map[string]string) []byte {
	type record struct{ key, value string }
	var list []record
	for key, value := range records {
		list = append(list, record{key, value})
	}
	slices.SortFunc(list, func(a, b record) int { return cmp.Compare(a.key, b.key) })
	var out []byte
	for _, r := range list {
		size := len(r.key) + len(r.value) + 3 // a space, '=' and a line feed
		total := size + len(strconv.Itoa(size))
		if len(strconv.Itoa(total)) != len(strconv.Itoa(size)) {
			total = size + len(strconv.Itoa(total))
		}
		out = fmt.Appendf(out, "%d %s=%s\n", total, r.key, r.value)
	}
	return out
}

// rawHeader is a ustar header of uid 0. What does not fit is in the records before it.
func rawHeader(name string, kind byte, mode, size int64) []byte {
	b := make([]byte, tarBlock)
	copy(b[0:100], name)
	octal := func(field []byte, v int64) { copy(field, fmt.Sprintf("%0*o", len(field)-1, v)) }
	octal(b[100:108], mode)
	octal(b[108:116], 0)
	octal(b[116:124], 0)
	octal(b[124:136], size)
	octal(b[136:148], 0)
	copy(b[148:156], "        ")
	b[156] = kind
	copy(b[257:265], "ustar\x0000")
	sum := int64(0)
	for _, c := range b {
		sum += int64(c)
	}
	copy(b[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return b
}
