package audit

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

// Problem is a line that is not as it was written.
type Problem struct {
	File string `json:"file"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

func (p Problem) String() string { return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text) }

// Report is the result of Verify.
type Report struct {
	Files    int       `json:"files"`
	Records  int       `json:"records"`
	Head     string    `json:"head"` // Hash of the last line; note it elsewhere
	Problems []Problem `json:"problems"`
	// Torn is the last line, if it looks as if its writer was killed while writing it.
	// The next record continues after it.
	Torn *Problem `json:"torn"`
	// Unclosed are intents without an outcome: the command is running, or the process
	// that would have recorded its end was killed.
	Unclosed []Record `json:"unclosed"`
	// Missed is how many records could not be written, as later records say.
	Missed int64 `json:"missed"`
	// HeadFound reports whether a record has the hash that Verify was given.
	HeadFound bool `json:"-"`
}

// Verify reads the whole log in dir and reports what is wrong with its chain. head is
// the Head of an earlier Report, or "". Verify writes nothing, and does not see records
// that are appended meanwhile.
func Verify(dir, head string) (Report, error) {
	c := &checker{head: head, want: position{0, first}, open: map[string]Record{}}
	err := Each(dir, c.record, c.bad)
	if err != nil {
		return c.report, err
	}
	c.settle(nil)
	c.endings()
	return c.report, nil
}

// Each calls do with every record of the log in dir, oldest first, with its file, its
// line number and the line itself. If bad is not nil, Each calls it with each line that
// is not a record; whole reports whether the line has a line end. Records that are
// appended after the call of Each are not seen.
func Each(dir string, do func(r Record, at Problem, line []byte) error, bad func(at Problem, line []byte, whole bool)) error {
	return NewReader(dir).Each(do, bad)
}

// Reader reads a log in parts. It is for one goroutine, and holds no file open.
type Reader struct {
	dir  string
	file int   // number of the file that was current at the last read; 0: nothing was read
	size int64 // how much of that file was read
	line int   // and how many lines
}

// NewReader returns a Reader of the log in dir that has read nothing.
func NewReader(dir string) *Reader { return &Reader{dir: dir} }

// Each is the function Each for the records that were appended since the last call; the
// first call is for all. After an error the Reader is of no more use.
func (r *Reader) Each(do func(r Record, at Problem, line []byte) error, bad func(at Problem, line []byte, whole bool)) error {
	s, err := look(r.dir)
	if err != nil {
		return fmt.Errorf("audit log in %s: %w", r.dir, err)
	}
	defer s.close()
	if n := s.number(currentName); n < r.file || n == r.file && s.size < r.size {
		r.file = 0 // it is another log
	}
	for _, name := range append(s.sealed, currentName) {
		if err := r.read(s, name, do, bad); err != nil {
			return fmt.Errorf("audit log in %s: %w", r.dir, err)
		}
	}
	r.size = s.size
	return nil
}

// read reads what is new in one file of a snapshot.
func (r *Reader) read(s *snapshot, name string, do func(r Record, at Problem, line []byte) error, bad func(at Problem, line []byte, whole bool)) error {
	number := s.number(name)
	if number < r.file {
		return nil
	}
	if number > r.file {
		r.file, r.size, r.line = number, 0, 0
	}
	in, err := s.reader(name, r.size)
	if err != nil {
		return err
	}
	before := r.line
	err = lines(in, func(n int, line []byte, whole bool) error {
		r.line = before + n
		at := Problem{File: name, Line: r.line}
		if !whole {
			r.line-- // the next read goes on in it
		}
		one, err := parse(line)
		if err == nil {
			return do(one, at, line)
		}
		if bad != nil {
			at.Text = "it is not a record: " + err.Error()
			bad(at, line, whole)
		}
		return nil
	})
	if err = errors.Join(err, in.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// snapshot is a log at one moment.
type snapshot struct {
	root    *os.Root
	sealed  []string
	current *os.File // nil if there is none
	size    int64    // of current
}

// look takes a snapshot. It locks writers out only while it does so, not while the
// snapshot is read.
func look(dir string) (*snapshot, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	s := &snapshot{root: root}
	lock, err := root.Open(lockName)
	if err == nil {
		defer lock.Close() // which releases the lock
		err = waitForLock(lock, readPatience)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil // a copy of a log, without writers
	}
	if err == nil {
		s.sealed, err = sealedFiles(root)
	}
	if err == nil {
		s.current, err = root.Open(currentName)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err == nil && s.current != nil {
		var info fs.FileInfo
		if info, err = s.current.Stat(); err == nil {
			s.size = info.Size()
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// readPatience is how long look waits for writers, each of which holds the lock for one
// record.
const readPatience = 10 * time.Second

func (s *snapshot) close() {
	if s.current != nil {
		_ = s.current.Close() // it was only read
	}
	_ = s.root.Close()
}

// number is the number in the name of a sealed file, and for the current one that which it will have.
func (s *snapshot) number(name string) int {
	if name != currentName {
		return sealedNumber(name)
	}
	if len(s.sealed) == 0 {
		return 1
	}
	return sealedNumber(s.sealed[len(s.sealed)-1]) + 1
}

// reader opens one of the snapshot's files, from a byte on.
func (s *snapshot) reader(name string, from int64) (io.ReadCloser, error) {
	if name != currentName {
		f, err := s.root.Open(name)
		if err != nil {
			return nil, err
		}
		if _, err := f.Seek(from, io.SeekStart); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
	if s.current == nil {
		return io.NopCloser(strings.NewReader("")), nil
	}
	return io.NopCloser(io.NewSectionReader(s.current, from, s.size-from)), nil
}

// checker verifies the chain, one line after the other.
type checker struct {
	head   string
	report Report
	file   string

	want    position  // of the last line: the next record must continue from it
	before  Problem   // file and number of the last line
	suspect *suspect  // a link that does not fit, until the next record shows which line was changed
	torn    *tornLine // the last line, if it is not a record
	from    Record    // the first record
	fromAt  Problem
	removed map[string]bool // RemovedHead of retentions
	open    map[string]Record
	order   []string // ids of open, in the order of the log
}

// suspect is a record that does not name the line before it.
type suspect struct{ before, at Problem }

func (c *checker) add(at Problem, format string, args ...any) {
	at.Text = fmt.Sprintf(format, args...)
	c.report.Problems = append(c.report.Problems, at)
}

// tornLine is a line that is not a record.
type tornLine struct {
	at    Problem
	cut   bool // it begins like the next record
	whole bool // it has a line end
}

// bad checks a line that is not a record. Such a line is not a problem if it was cut
// off and the next record says so.
func (c *checker) bad(at Problem, line []byte, whole bool) {
	c.settle(nil)
	c.enter(at)
	cut := c.cutOff(line)
	if c.torn != nil {
		if cut && c.torn.cut { // the Torn record was cut off too
			at = c.torn.at
		} else {
			c.report.Problems = append(c.report.Problems, c.torn.at)
		}
	}
	c.torn = &tornLine{at, cut, whole}
	c.want.hash, c.before = Hash(line), at
	c.report.Head = c.want.hash
}

// cutOff reports whether a line can be the start of the next record. After a loss of
// power the file system may have zeros at the end of a file.
func (c *checker) cutOff(line []byte) bool {
	begin := fmt.Sprintf(`{"seq":%d,"prev":"%s","time":"`, c.want.seq+1, c.want.hash)
	line = bytes.TrimRight(line, "\x00")
	n := min(len(line), len(begin))
	return len(line) <= maxLine && string(line[:n]) == begin[:n]
}

// enter notes the file of a line, and counts files.
func (c *checker) enter(at Problem) {
	if c.file != at.File {
		c.file = at.File
		c.report.Files++
	}
}

func (c *checker) record(r Record, at Problem, line []byte) error {
	c.enter(at)
	hash := Hash(line)
	fits := r.Prev == c.want.hash
	c.settle(&fits)
	if c.torn != nil && (r.Kind != Torn || !fits || !c.torn.cut) {
		c.report.Problems = append(c.report.Problems, c.torn.at)
		if r.Seq == c.want.seq+2 { // the torn line was the record before this one
			c.want.seq++
			fits = true
		}
	}
	c.torn = nil
	switch {
	case c.report.Records == 0 && c.before == (Problem{}):
		c.from, c.fromAt = r, at
	case r.Seq > c.want.seq+1:
		c.add(at, "%d records are missing before this one: %d to %d", r.Seq-c.want.seq-1, c.want.seq+1, r.Seq-1)
	case r.Seq < c.want.seq+1:
		c.add(at, "record %d stands behind record %d: it was moved or repeated", r.Seq, c.want.seq)
	case !fits:
		c.suspect = &suspect{c.before, at}
	}
	c.report.Records++
	c.report.Missed += r.Missed
	c.report.HeadFound = c.report.HeadFound || hash == c.head
	c.want, c.before, c.report.Head = position{r.Seq, hash}, at, hash
	c.follow(r)
	return nil
}

// settle decides which of two lines was changed if the link between them does not fit.
// If the second one fits its successor, the first one was changed. fits is nil if there
// is no successor.
func (c *checker) settle(fits *bool) {
	s := c.suspect
	c.suspect = nil
	switch {
	case s == nil:
	case fits == nil:
		c.add(s.before, "it was changed, or the line behind it: that holds another hash of it")
	case *fits:
		c.add(s.before, "it was changed: the line behind it holds another hash of it")
	default:
		c.add(s.at, "it was changed: neither does it hold the hash of the line before it, nor the line behind it that of this one")
		*fits = true // reported already
	}
}

// follow notes open intents and removed files.
func (c *checker) follow(r Record) {
	switch r.Kind { //nolint:exhaustive // the others stand for themselves
	case Intent:
		c.open[r.ID] = r
		c.order = append(c.order, r.ID)
	case Outcome:
		delete(c.open, r.ID)
	case Retention:
		if c.removed == nil {
			c.removed = map[string]bool{}
		}
		c.removed[r.RemovedHead] = true
	}
}

// endings adds what is known only at the end of the log.
func (c *checker) endings() {
	if t := c.torn; t != nil && t.cut && !t.whole {
		t.at.Text = "the last line was cut off while it was written"
		c.report.Torn = &t.at
	} else if t != nil {
		c.report.Problems = append(c.report.Problems, t.at)
	}
	if c.from.Seq > 1 && !c.removed[c.from.Prev] {
		c.add(c.fromAt, "records 1 to %d are missing before this one, and no record says that they were removed for their age", c.from.Seq-1)
	} else if c.from.Seq == 1 && c.from.Prev != first {
		c.add(c.fromAt, "the first record names one before it")
	}
	for _, id := range c.order {
		if r, ok := c.open[id]; ok {
			delete(c.open, id)
			c.report.Unclosed = append(c.report.Unclosed, r)
		}
	}
	if c.head != "" && !c.report.HeadFound {
		at := c.before
		at.File = cmp.Or(at.File, currentName)
		c.add(at, "no record has the hash %s: the log's end was cut off, or it was rewritten", c.head)
	}
}
