//go:build linux

package user

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Survey prints a line for each directory: a digest of its contents, the number of entries,
// and the bytes that they take on the disk. The digest is computed from paths, modes, sizes,
// inodes and change times. The kernel sets the change times, so the digest stays the same
// only if nothing below the directory was changed. The digest is "-" if the tree is deeper
// than maxSurveyDepth or the time was over. The numbers then cover what was read.
func Survey(args []string, out io.Writer) error {
	var a wire.SurveyArgs
	if err := wire.ParseArgs(args, &a); err != nil {
		return err
	}
	for _, dir := range a.Dirs {
		s := surveyor{until: time.Now().Add(a.Limit)}
		answer := wire.Survey{}
		if err := s.tree(dir); err == nil {
			answer.Digest = hex.EncodeToString(s.sum[:])
		}
		answer.Entries, answer.Bytes = s.entries, s.bytes
		if _, err := out.Write(wire.AppendSurvey(nil, answer)); err != nil {
			return err
		}
	}
	return nil
}

// maxSurveyDepth bounds the open descriptors and the length of paths. Deeper entries cannot
// be pulled either.
const maxSurveyDepth = 256

// maxNames is how many names of a directory are in memory at once.
const maxNames = 4096

// blockSize is the unit of st_blocks, see stat(2).
const blockSize = 512 // bytes

var errSurvey = errors.New("not all of it could be looked at")

// surveyor adds up the entries of a tree. Its memory does not grow with the tree.
type surveyor struct {
	until   time.Time
	sum     [sha256.Size]byte // of the entries' digests, xor: their order does not matter
	entries int64
	bytes   int64
}

func (s *surveyor) tree(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return s.dir(os.NewFile(uintptr(fd), dir), nil, 0)
}

// dir looks at everything in an open directory, and closes it. Its path is given as
// a digest: that of the path above and its name.
func (s *surveyor) dir(d *os.File, path []byte, depth int) error {
	defer d.Close()
	for {
		names, err := d.Readdirnames(maxNames)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := s.entry(d, path, name, depth); err != nil {
				return err
			}
		}
		if time.Now().After(s.until) {
			return errSurvey
		}
	}
}

func (s *surveyor) entry(d *os.File, path []byte, name string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	h := sha256.New()
	h.Write(path)
	io.WriteString(h, name) //nolint:errcheck // a hash takes everything
	below := h.Sum(nil)
	var fixed []byte
	for _, n := range []uint64{uint64(st.Mode), uint64(st.Uid), uint64(st.Gid), uint64(st.Size), st.Ino, uint64(st.Ctim.Sec), uint64(st.Ctim.Nsec)} {
		fixed = binary.BigEndian.AppendUint64(fixed, n)
	}
	h.Write(fixed)
	for i, b := range h.Sum(nil) {
		s.sum[i] ^= b
	}
	s.entries++
	s.bytes += st.Blocks * blockSize / max(1, int64(st.Nlink)) // each link has its part
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	if depth >= maxSurveyDepth {
		return errSurvey
	}
	fd, err := unix.Openat(int(d.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return s.dir(os.NewFile(uintptr(fd), name), below, depth+1)
}
