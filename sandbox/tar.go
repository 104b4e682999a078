package sandbox

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// tarOut packs files of the host. Symbolic links are packed as such; sockets,
// devices and FIFOs are left out.
type tarOut struct {
	archive *tar.Writer
	left    []string // credentials that were left out, relative
	err     error    // the first error of the host's files
}

func newTarOut(w io.Writer) *tarOut { return &tarOut{archive: tar.NewWriter(w)} }

// tree packs what is in a directory.
func (t *tarOut) tree(dir string) error { return t.below(dir, "") }

// named packs a file or a directory under its own name.
func (t *tarOut) named(src string) error {
	abs, err := filepath.Abs(src)
	if err != nil {
		return err
	}
	info, err := os.Stat(abs)
	if err != nil {
		t.err = err
		return err
	}
	if info.IsDir() {
		return t.below(abs, filepath.Base(abs))
	}
	if !info.Mode().IsRegular() {
		t.err = fmt.Errorf("%s is neither a regular file nor a directory", abs)
		return t.err
	}
	root, err := os.OpenRoot(filepath.Dir(abs))
	if err != nil {
		return err
	}
	defer root.Close()
	return t.file(root, filepath.Base(abs), filepath.Base(abs))
}

func (t *tarOut) below(dir, prefix string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.err = err
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			t.err = cmp.Or(t.err, err)
			return err
		}
		if isCredential(name) {
			t.left = append(t.left, name)
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return t.entry(root, name, path.Join(prefix, name), info)
	})
}

func (t *tarOut) entry(root *os.Root, name, as string, info fs.FileInfo) error {
	h := &tar.Header{Name: as, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	switch {
	case info.IsDir():
		if as == "." || as == "" {
			return nil
		}
		h.Typeflag, h.Name = tar.TypeDir, as+"/"
		return t.archive.WriteHeader(h)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := root.Readlink(name)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, filepath.ToSlash(target)
		return t.archive.WriteHeader(h)
	case info.Mode().IsRegular():
		return t.file(root, name, as)
	}
	return nil
}

func (t *tarOut) file(root *os.Root, name, as string) error {
	// It may have become a FIFO since: opening must not wait for a writer.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.err = cmp.Or(t.err, err)
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: it is no regular file any more", name)
	}
	var content io.Reader = f
	size := info.Size()
	if isGitConfig(name) {
		b, err := io.ReadAll(io.LimitReader(f, maxGitConfig))
		if err != nil {
			return err
		}
		clean := cleanGitConfig(b)
		if len(clean) != len(b) {
			t.left = append(t.left, name+" (credentials in it)")
		}
		content, size = bytes.NewReader(clean), int64(len(clean))
	}
	err = t.archive.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: as, Size: size, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX,
	})
	if err != nil {
		return err
	}
	if _, err := io.CopyN(t.archive, content, size); err != nil {
		return fmt.Errorf("%s: it changed while it was read: %w", name, err)
	}
	return nil
}

// credentialNames are files and directories whose purpose is to hold secrets.
var credentialNames = map[string]bool{
	".env": true, ".npmrc": true, ".netrc": true, "_netrc": true, ".pypirc": true, ".git-credentials": true,
	".ssh": true, ".gnupg": true, ".aws": true, ".azure": true, ".kube": true, ".docker": true, ".pgpass": true,
	"id_rsa": true, "id_ecdsa": true, "id_ed25519": true, "id_dsa": true,
}

// isCredential reports whether a file of a workspace stays on the host:
// well-known names, and .env.* but for examples.
func isCredential(name string) bool {
	base := path.Base(filepath.ToSlash(name))
	if credentialNames[base] {
		return true
	}
	kind, ok := strings.CutPrefix(base, ".env.")
	return ok && !slices.Contains([]string{"example", "sample", "template", "dist"}, kind)
}

// maxGitConfig bounds what of a .git/config is read; git's own are small.
const maxGitConfig = 1 << 20 // bytes

func isGitConfig(name string) bool {
	name = filepath.ToSlash(name)
	return strings.HasSuffix("/"+name, "/.git/config") || strings.Contains("/"+name, "/.git/modules/") && path.Base(name) == "config"
}

var (
	gitSecretLine = regexp.MustCompile(`(?i)^(\s*\[.*\])?\s*(extraheader|helper|password|token|cookiefile|sslkey)\s*=`)
	gitURLSecret  = regexp.MustCompile(`(\w+://)[^/@\s]+@`)
)

// cleanGitConfig drops the lines that carry credentials and the user part of
// URLs.
func cleanGitConfig(b []byte) []byte {
	var out bytes.Buffer
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, maxGitConfig+1)
	dropped := false // the line above, and it goes on in this one
	for lines.Scan() {
		secret := gitSecretLine.FindSubmatch(lines.Bytes())
		if dropped || secret != nil {
			dropped = bytes.HasSuffix(bytes.TrimRight(lines.Bytes(), "\r"), []byte(`\`))
			if secret != nil && len(secret[1]) > 0 { // its section is for the lines below
				out.Write(append(gitURLSecret.ReplaceAll(secret[1], []byte("$1")), '\n'))
			}
			continue
		}
		out.Write(gitURLSecret.ReplaceAll(lines.Bytes(), []byte("$1")))
		out.WriteByte('\n')
	}
	if !bytes.HasSuffix(b, []byte("\n")) && out.Len() > 0 {
		out.Truncate(out.Len() - 1)
	}
	return out.Bytes()
}

// tarIn makes entries below a directory of the host, and nothing anywhere else:
// every path goes through an os.Root.
type tarIn struct {
	root    *os.Root
	skipped []string
	dirs    []*tar.Header
}

func newTarIn(dir string) (*tarIn, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &tarIn{root: root}, nil
}

func (t *tarIn) entry(h *tar.Header, content io.Reader) error {
	if dir := path.Dir(h.Name); dir != "." {
		if err := t.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		t.dirs = append(t.dirs, h)
		return t.root.MkdirAll(h.Name, 0o755)
	case tar.TypeReg:
		return t.file(h, content)
	case tar.TypeSymlink:
		target := path.Join(path.Dir(h.Name), h.Linkname)
		if path.IsAbs(h.Linkname) || !filepath.IsLocal(filepath.FromSlash(target)) {
			t.skipped = append(t.skipped, h.Name+" (a link that leads out)")
			return nil
		}
		if err := t.clear(h.Name); err != nil {
			return err
		}
		return t.root.Symlink(h.Linkname, h.Name)
	default:
		t.skipped = append(t.skipped, h.Name+" (neither file nor directory)")
		return nil
	}
}

// clear removes a file or link in the way. A directory stays, and is an error of
// what comes next.
func (t *tarIn) clear(name string) error {
	info, err := t.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("a directory is in the way")
	}
	return t.root.Remove(name)
}

func (t *tarIn) file(h *tar.Header, content io.Reader) error {
	if err := t.clear(h.Name); err != nil {
		return err
	}
	f, err := t.root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err == nil {
		// Permissions only: set-user-ID bits stay in the container.
		err = f.Chmod(fs.FileMode(h.Mode).Perm())
	}
	return errors.Join(err, f.Close())
}

// finish sets the modes of directories: a read-only one had to be filled first.
func (t *tarIn) finish() error {
	for _, h := range slices.Backward(t.dirs) {
		if h.Name == "." {
			continue
		}
		if err := t.root.Chmod(h.Name, fs.FileMode(h.Mode).Perm()|0o700); err != nil {
			return err
		}
	}
	return nil
}
