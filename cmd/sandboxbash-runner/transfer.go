//go:build linux

package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Transfer runs as the session's user: it can read and write what a command
// could, and no more.

// push unpacks a tar stream below a directory, which it makes if need be, and
// prints the stream's hash, so that the sender knows that all of it was written.
func push(args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: push DIR")
	}
	if err := os.MkdirAll(args[0], 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(args[0])
	if err != nil {
		return err
	}
	defer root.Close()
	sum := sha256.New()
	src := io.TeeReader(in, sum)
	archive := tar.NewReader(src)
	var dirs []*tar.Header // modes are set last: a read-only one must be filled first
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := unpack(root, h, archive); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
		if h.Typeflag == tar.TypeDir {
			dirs = append(dirs, h)
		}
	}
	for _, h := range dirs {
		if err := root.Chmod(clean(h.Name), fs.FileMode(h.Mode).Perm()|0o700); err != nil && clean(h.Name) != "." {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, src); err != nil { // the padding behind the end
		return err
	}
	_, err = fmt.Fprintln(out, hex.EncodeToString(sum.Sum(nil)))
	return err
}

func clean(name string) string { return path.Clean(strings.TrimLeft(name, "/")) }

// unpack makes one entry. It replaces a file, and never follows a link.
func unpack(root *os.Root, h *tar.Header, content io.Reader) error {
	name := clean(h.Name)
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		if err := makeParent(root, name); err != nil {
			return err
		}
		return root.Symlink(h.Linkname, name)
	case tar.TypeReg:
		if err := makeParent(root, name); err != nil {
			return err
		}
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		if err == nil {
			err = f.Chmod(fs.FileMode(h.Mode).Perm())
		}
		return errors.Join(err, f.Close())
	default:
		return fmt.Errorf("entries of type %q are not unpacked", h.Typeflag)
	}
}

// makeParent makes the directory of an entry, and removes what stands in the
// entry's place.
func makeParent(root *os.Root, name string) error {
	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// pull packs a file or a directory into a tar stream, in lexical order. What is
// neither a regular file, a directory nor a symbolic link is left out; so is
// what vanishes meanwhile. A file that shrinks meanwhile fails the transfer.
func pull(args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: pull PATH")
	}
	top := args[0]
	info, err := os.Lstat(top)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(out)
	if !info.IsDir() {
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s: neither a regular file nor a directory", top)
		}
		root, err := os.OpenRoot(filepath.Dir(top))
		if err != nil {
			return err
		}
		defer root.Close()
		return errors.Join(pack(archive, root, filepath.Base(top)), archive.Close())
	}
	root, err := os.OpenRoot(top)
	if err != nil {
		return err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		return pack(archive, root, name)
	})
	return errors.Join(err, archive.Close())
}

func pack(archive *tar.Writer, root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	h := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	switch {
	case info.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		return archive.WriteHeader(h)
	case info.Mode()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = root.Readlink(name); err != nil {
			return nil //nolint:nilerr // it vanished or changed its kind meanwhile
		}
		return archive.WriteHeader(h)
	case info.Mode().IsRegular():
		return packFile(archive, root, name, h)
	}
	return nil
}

func packFile(archive *tar.Writer, root *os.Root, name string, h *tar.Header) error {
	// It may have become a FIFO since: opening must not wait for a writer.
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := archive.WriteHeader(h); err != nil {
		return err
	}
	if _, err := io.CopyN(archive, f, info.Size()); err != nil {
		return fmt.Errorf("%s: it changed while it was read: %w", name, err)
	}
	return nil
}

// gitIdentity makes commits possible where the image knows no such user. It is
// the lowest of git's user files: anything else overrides it.
const gitIdentity = "[user]\n\tname = agent\n\temail = agent@sandbox.invalid\n"

// settleHome puts into the user's home what programs expect there, and sees that
// temporary files can be made.
func settleHome() error {
	home := os.Getenv("HOME")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	// The image's own mode shines through. Where the engine cannot give a tmpfs to
	// the user, it belongs to uid 0 and is open to all.
	if err := os.Chmod(home, 0o700); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	for _, dir := range []string{os.TempDir(), home} {
		probe, err := os.CreateTemp(dir, "")
		if err != nil {
			return err
		}
		probe.Close()
		if err := os.Remove(probe.Name()); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(filepath.Join(home, ".gitconfig"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil // the image's own
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(gitIdentity)
	return errors.Join(err, f.Close())
}

// listProcesses prints the container's processes but for PID 1 and the runners:
// pid, parent, group, state, CPU ticks, start ticks, resident pages, and the
// command line with its arguments quoted by NUL, ended by a newline that it
// cannot contain unescaped.
func listProcesses(out io.Writer) error {
	for _, p := range processes() {
		cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
		if err != nil || p.pid == os.Getpid() {
			continue
		}
		if strings.HasPrefix(string(cmdline), "/.sandboxbash/runner\x00") {
			continue
		}
		if len(cmdline) == 0 {
			cmdline = []byte(p.name) // a zombie has none
		}
		text := strings.ReplaceAll(strings.TrimRight(string(cmdline), "\x00"), "\x00", " ")
		if _, err := fmt.Fprintf(out, "%d %d %d %c %d %d %d %q\n",
			p.pid, p.parent, p.group, p.state, p.cpuTicks, p.startTicks, p.pages, text); err != nil {
			return err
		}
	}
	return nil
}
