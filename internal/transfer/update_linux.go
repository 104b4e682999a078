package transfer

import (
	"archive/tar"
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// This file is the end of an update that is inside the session. See session_linux.go.

// Update reads an update of a directory, does it, and writes a verdict for each change. Each file
// appears whole under its name. An update that was cut off has done a part: done again, it does
// the rest.
func Update(out io.Writer, top string, in io.Reader) error {
	root, err := openTop(top)
	if err != nil {
		return err
	}
	defer root.Close()
	stream := bufio.NewReader(in)
	deltas, ask, err := readUpdate(stream)
	if err != nil {
		return err
	}
	u := &update{root: root, deltas: deltas, verdicts: make([]Verdict, len(deltas)), buf: make([]byte, len(zeros))}
	if ask {
		err = u.ask()
	} else {
		err = u.do(stream)
	}
	if err != nil {
		return err
	}
	answer := make([]byte, 0, len(deltas)+1)
	for _, v := range u.verdicts {
		answer = append(answer, byte(v))
	}
	_, err = out.Write(append(answer, endMark))
	return err
}

// update is one Update.
type update struct {
	root     *os.Root
	deltas   []Delta
	verdicts []Verdict // 0 until it is decided
	buf      []byte
}

func (u *update) ask() (err error) {
	for i, d := range u.deltas {
		if u.verdicts[i], err = u.judge(d); err != nil {
			return fmt.Errorf("%s: %w", shown(d.Name), err)
		}
	}
	return nil
}

// do removes what goes, from the deepest, then makes directories, then files and links.
func (u *update) do(stream io.Reader) error {
	for i, d := range slices.Backward(u.deltas) {
		if d.Now.Kind == 0 || d.Was.Kind != 0 && d.Was.Kind != d.Now.Kind && (d.Was.Kind == Dir || d.Now.Kind == Dir) {
			if err := u.remove(i, d); err != nil {
				return fmt.Errorf("%s: %w", shown(d.Name), err)
			}
		}
	}
	for i, d := range u.deltas {
		if d.Now.Kind == Dir && u.verdicts[i] == 0 {
			if err := u.makeDir(i, d); err != nil {
				return fmt.Errorf("%s: %w", shown(d.Name), err)
			}
		}
	}
	for archive := tar.NewReader(stream); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		name := path.Clean(h.Name)
		i, ok := u.find(name)
		if !ok || u.verdicts[i] != 0 {
			continue
		}
		if err := u.put(i, h, archive); err != nil {
			return fmt.Errorf("%s: %w", shown(name), err)
		}
	}
	for i, v := range u.verdicts {
		if v == 0 {
			u.verdicts[i] = Missed
		}
	}
	// The host's end writes until its stream has ended.
	_, err := io.Copy(io.Discard, stream)
	return err
}

// remove does a deletion, or makes room for an entry of another kind: that change is then to be
// done, and has no verdict yet.
func (u *update) remove(i int, d Delta) error {
	verdict, err := u.judge(d)
	if err != nil {
		return err
	}
	if verdict != Taken {
		u.verdicts[i] = verdict
		return nil
	}
	err = u.root.Remove(d.Name)
	full := errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)
	switch {
	case full && d.Now.Kind == 0: // the directory is the session's from now on
		u.verdicts[i] = Alike
	case full:
		u.verdicts[i] = Clash
	case err != nil && !missing(err):
		return err
	case d.Now.Kind == 0:
		u.verdicts[i] = Taken
	default:
		u.deltas[i].Was = Entry{} // which it is now: nothing
	}
	return nil
}

func (u *update) makeDir(i int, d Delta) error {
	verdict, err := u.judge(d)
	if err != nil {
		return err
	}
	u.verdicts[i] = verdict
	if verdict != Taken {
		return nil
	}
	if err := u.root.MkdirAll(d.Name, 0o755); err != nil {
		return err
	}
	return u.root.Chmod(d.Name, d.Now.Mode.Perm()|0o700)
}

// put makes a file or a link next to its place, and puts it there if that is as both sides had it.
func (u *update) put(i int, h *tar.Header, content io.Reader) error {
	d := u.deltas[i]
	aside := path.Join(path.Dir(d.Name), stagePrefix+"sync")
	if verdict, err := u.judge(d); err != nil || verdict != Taken { // spares the content, and its directory is there
		u.verdicts[i] = verdict
		return err
	}
	if dir := path.Dir(d.Name); dir != "." {
		if err := u.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := u.root.Remove(aside); err != nil && !missing(err) { // of an update that was killed
		return err
	}
	arrived, err := u.stage(aside, d, h, content)
	if err == nil && arrived {
		u.verdicts[i], err = u.judge(d)
	} else {
		u.verdicts[i] = Missed
	}
	if err == nil && u.verdicts[i] == Taken {
		return u.root.Rename(aside, d.Name)
	}
	if removeErr := u.root.Remove(aside); removeErr != nil && !missing(removeErr) {
		err = errors.Join(err, removeErr)
	}
	return err
}

// stage makes what was announced, and reports whether it is that.
func (u *update) stage(aside string, d Delta, h *tar.Header, content io.Reader) (bool, error) {
	switch {
	case d.Now.Kind == Link && h.Typeflag == tar.TypeSymlink && h.Linkname == d.Now.Target:
		return true, u.root.Symlink(d.Now.Target, aside)
	case d.Now.Kind != File || h.Typeflag != tar.TypeReg || h.Size != d.Now.Size:
		return false, nil
	}
	f, err := u.root.OpenFile(aside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false, err
	}
	sum := sha256.New()
	_, err = io.CopyBuffer(io.MultiWriter(f, sum), content, u.buf)
	if err == nil {
		err = f.Chmod(d.Now.Mode.Perm())
	}
	return Sum(sum.Sum(nil)) == *d.Now.Sum, errors.Join(err, f.Close())
}

// judge compares what is in the session with both ends of a change.
func (u *update) judge(d Delta) (Verdict, error) {
	here, err := u.here(d)
	switch {
	case err != nil:
		return 0, err
	case sameOrGone(here, d.Now):
		return Alike, nil
	case sameOrGone(here, d.Was):
		return Taken, nil
	case here.Kind == 0:
		return Gone, nil
	}
	return Clash, nil
}

// here returns what is at the name of a change. It does not read a file that has the size of neither
// end.
func (u *update) here(d Delta) (Entry, error) {
	e := Entry{Name: d.Name}
	open, err := u.way(path.Dir(d.Name))
	if err != nil || open == wayMissing {
		return e, err
	}
	if open == wayBlocked {
		if d.Now.Kind != 0 {
			e.Kind = Other
		}
		return e, nil // what is deleted cannot be there
	}
	info, err := u.root.Lstat(d.Name)
	if missing(err) {
		return e, nil
	}
	if err != nil {
		return e, err
	}
	e.Kind, e.Mode, e.Size = kindOf(info), info.Mode().Perm(), info.Size()
	switch e.Kind {
	case Link:
		e.Target, err = u.root.Readlink(d.Name)
	case File:
		if d.Was.Kind == File && d.Was.Size == e.Size || d.Now.Kind == File && d.Now.Size == e.Size {
			var sum Sum
			sum, e.Size, err = u.sum(d.Name)
			e.Sum = &sum
		}
	case Dir, Other:
	}
	return e, err
}

func (u *update) sum(name string) (Sum, int64, error) {
	f, err := u.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return Sum{}, 0, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.CopyBuffer(h, onlyReader{f}, u.buf)
	return Sum(h.Sum(nil)), n, err
}

// onlyReader hides what a file can do besides: io.CopyBuffer is to use its buffer.
type onlyReader struct{ io.Reader }

// way says what is on the way to a directory of the session. Links are not followed.
func (u *update) way(dir string) (way, error) {
	if dir == "." {
		return wayOpen, nil
	}
	for end := 0; end < len(dir); end++ {
		next := strings.IndexByte(dir[end:], '/')
		if next < 0 {
			next = len(dir) - end
		}
		end += next
		info, err := u.root.Lstat(dir[:end])
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return wayMissing, nil
		case err != nil:
			return wayBlocked, err
		case !info.IsDir() && u.becomesDir(dir[:end]):
			return wayMissing, nil
		case !info.IsDir():
			return wayBlocked, nil
		}
	}
	return wayOpen, nil
}

// becomesDir reports whether this update can put a directory in the place of a file: one that only asks
// does not.
func (u *update) becomesDir(name string) bool {
	i, ok := u.find(name)
	return ok && u.deltas[i].Now.Kind == Dir && u.verdicts[i] == Taken
}

func (u *update) find(name string) (int, bool) {
	return slices.BinarySearchFunc(u.deltas, name, func(d Delta, name string) int { return strings.Compare(d.Name, name) })
}
