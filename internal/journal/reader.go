package journal

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

// Dir is the reading side of a directory of journals. It may be used concurrently.
type Dir struct{ path string }

// Open returns the journals in a directory, which need not exist. It touches no file.
func Open(dir string) *Dir { return &Dir{dir} }

// Path returns the directory.
func (d *Dir) Path() string { return d.path }

// Sessions returns who the journals are about, the one with the oldest last record first. It is not an error if there
// is no journal.
func (d *Dir) Sessions() ([]Session, error) {
	entries, err := os.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journals: %w", err)
	}
	var all []Session
	for _, e := range entries {
		if !e.IsDir() || !validSession(e.Name()) {
			continue
		}
		s, err := d.Session(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed meanwhile, or has no record yet
		}
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Session) int { return cmp.Or(a.Modified.Compare(b.Modified), cmp.Compare(a.ID, b.ID)) })
	return all, nil
}

// Session returns who a journal is about; an error that wraps fs.ErrNotExist if there is none of the id. If nothing is
// known but the id, the other fields are empty.
func (d *Dir) Session(id string) (Session, error) {
	root, err := d.root(id)
	if err != nil {
		return Session{}, err
	}
	defer root.Close()
	s := Session{}
	if b, err := root.ReadFile(sessionName); err == nil {
		_ = json.Unmarshal(b, &s) // what is damaged is not known
	}
	s.ID = id
	numbers, err := segments(root)
	if err != nil {
		return Session{}, fmt.Errorf("journal of %s: %w", id, err)
	}
	for _, n := range numbers {
		if info, err := root.Lstat(segmentFile(n)); err == nil {
			s.Bytes += info.Size()
			s.Modified = info.ModTime()
		}
	}
	if s.Bytes == 0 {
		return Session{}, fmt.Errorf("journal of %s: %w", id, fs.ErrNotExist)
	}
	return s, nil
}

func (d *Dir) root(id string) (*os.Root, error) {
	if !validSession(id) {
		return nil, fmt.Errorf("journal of session %q: %w", id, fs.ErrNotExist)
	}
	base, err := os.OpenRoot(d.path)
	if err != nil {
		return nil, fmt.Errorf("journals: %w", err)
	}
	defer base.Close()
	root, err := base.OpenRoot(id)
	if err != nil {
		return nil, fmt.Errorf("journal of %s: %w", id, err)
	}
	return root, nil
}

// Reader reads the journal of one session. It is for one goroutine.
type Reader struct {
	id   string
	root *os.Root
	file *os.File // nil: no segment is open
	n    int      // its number
	off  int64    // of the next frame in it
	buf  []byte   // what was read from off on
}

// Reader returns a reader of the whole journal of a session. The caller must call Close. The error wraps fs.ErrNotExist
// if there is no journal.
func (d *Dir) Reader(id string) (*Reader, error) { return d.Tail(id, -1) }

// Tail returns a reader that begins near the end: with the segment in which that many bytes before the end are, so that it
// returns at least as much as that, if there is as much. A negative number is the whole journal.
func (d *Dir) Tail(id string, most int64) (*Reader, error) {
	root, err := d.root(id)
	if err != nil {
		return nil, err
	}
	r := &Reader{id: id, root: root}
	numbers, err := segments(root)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("journal of %s: %w", id, err), root.Close())
	}
	for i := len(numbers) - 1; i > 0 && most >= 0; i-- {
		info, err := root.Lstat(segmentFile(numbers[i]))
		if err != nil {
			continue
		}
		if most -= info.Size(); most < 0 {
			r.n = numbers[i] - 1 // next opens the one after it
			break
		}
	}
	return r, nil
}

// Close closes the files of the reader.
func (r *Reader) Close() error {
	r.drop()
	return r.root.Close()
}

func (r *Reader) drop() {
	if r.file != nil {
		_ = r.file.Close() // it was only read
		r.file = nil
	}
	r.buf, r.off = nil, 0
}

// Next returns the next record. The error is io.EOF if there is none at the moment; later calls return what has been written
// since.
func (r *Reader) Next() (Record, error) {
	rec, err := r.next()
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("journal of %s: %w", r.id, err)
	}
	rec.Session = r.id
	return rec, err
}

func (r *Reader) next() (Record, error) {
	for {
		if r.file == nil {
			if rec, ok, err := r.advance(); ok || err != nil {
				return rec, err
			}
		}
		kind, body, size, err := splitFrame(r.buf)
		if errors.Is(err, errPart) {
			more, err := r.fill(size)
			switch {
			case err != nil:
				return Record{}, err
			case more:
				continue
			}
			last, err := r.isLast()
			if last || err != nil {
				return Record{}, cmp.Or(err, io.EOF)
			}
			// A writer may have added to this segment after fill, and before it began the next one.
			if more, err := r.fill(size); more || err != nil {
				if err != nil {
					return Record{}, err
				}
				continue
			}
			left := int64(len(r.buf))
			r.drop()
			if left > 0 {
				return Record{Kind: Torn, Bytes: left}, nil
			}
			continue
		}
		if err != nil {
			if rec, lost, err := r.damaged(); lost || err != nil {
				return rec, err
			}
			continue
		}
		rec, ok := parseBody(kind, body)
		r.buf, r.off = r.buf[size:], r.off+int64(size)
		if !ok { // a later version has written it
			rec = Record{Kind: Torn, Bytes: int64(size)}
		}
		return rec, nil
	}
}

// readSize is how much is read of a segment at once, in bytes.
const readSize = 256 << 10

// fill reads more of the segment behind buf, and reports whether there was more. size is that of the frame that is wanted.
func (r *Reader) fill(size int) (bool, error) {
	info, err := r.file.Stat()
	if err != nil {
		return false, err
	}
	more := info.Size() - r.off - int64(len(r.buf))
	if more <= 0 {
		return false, nil
	}
	b := make([]byte, len(r.buf), len(r.buf)+int(min(more, max(readSize, int64(size-len(r.buf))))))
	copy(b, r.buf)
	n, err := r.file.ReadAt(b[len(b):cap(b)], r.off+int64(len(b)))
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	if n == 0 {
		return false, nil
	}
	r.buf = b[:len(b)+n]
	return true, nil
}

// A writer that removes a torn frame and writes another one in its place can be seen half way.
const (
	rereads     = 3
	rereadPause = 5 * time.Millisecond
)

// damaged handles bytes that are not a frame. It reports lost, with a record, if they stay so: nothing that follows in the
// segment can be trusted.
func (r *Reader) damaged() (rec Record, lost bool, err error) {
	for range rereads {
		time.Sleep(rereadPause)
		r.buf = nil
		if _, err := r.fill(0); err != nil {
			return Record{}, false, err
		}
		if _, _, _, err := splitFrame(r.buf); !errors.Is(err, errDamaged) {
			return Record{}, false, nil
		}
	}
	info, err := r.file.Stat()
	if err != nil {
		return Record{}, false, err
	}
	left := info.Size() - r.off
	r.off, r.buf = info.Size(), nil
	return Record{Kind: Torn, Bytes: left}, true, nil
}

// isLast reports whether no segment follows the open one.
func (r *Reader) isLast() (bool, error) {
	if _, err := r.root.Lstat(segmentFile(r.n + 1)); err == nil {
		return false, nil
	}
	numbers, err := segments(r.root)
	if err != nil || len(numbers) == 0 {
		return true, err
	}
	return numbers[len(numbers)-1] <= r.n, nil
}

// advance opens the segment that follows. If it can not, because some were removed, it opens a later one and returns a record
// that says so.
func (r *Reader) advance() (rec Record, ok bool, err error) {
	numbers, err := segments(r.root)
	if err != nil {
		return Record{}, false, err
	}
	for _, n := range numbers {
		if n <= r.n {
			continue
		}
		f, err := r.root.Open(segmentFile(n))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Record{}, false, err
		}
		gap := n != r.n+1
		r.file, r.n, r.off, r.buf = f, n, 0, nil
		if gap {
			return Record{Kind: Cut}, true, nil
		}
		return Record{}, false, nil
	}
	return Record{}, false, io.EOF
}
