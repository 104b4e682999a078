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

// Report is what Verify has found.
type Report struct {
	Files    int       `json:"files"`
	Records  int       `json:"records"`
	Head     string    `json:"head"` // Hash of the last line; note it elsewhere
	Problems []Problem `json:"problems"`
	// Torn is the last line if it was cut off while it was written, as far as one can
	// see: whoever has made it no longer lived to end it. The next record goes on from it.
	Torn *Problem `json:"torn"`
	// Unclosed are intents without an outcome: the command is running, or the process
	// that would have recorded its end was killed.
	Unclosed []Record `json:"unclosed"`
	// Missed is how many records could not be written, by those that could.
	Missed int64 `json:"missed"`
	// HeadFound reports whether a record has the hash that was asked for.
	HeadFound bool `json:"-"`
}

// Verify reads the whole log in dir and reports what is wrong with its chain. head
// is a Hash that was noted earlier, or "". Nothing is written. What is appended
// meanwhile is not seen.
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

// Each calls do with every record of the log in dir, oldest first, with its file,
// the number of its line and the line itself; and bad, if not nil, with each line
// that is no record, and whether it has an end. It is the log as it is when Each is
// called.
func Each(dir string, do func(r Record, at Problem, line []byte) error, bad func(at Problem, line []byte, whole bool)) error {
	s, err := look(dir)
	if err != nil {
		return fmt.Errorf("audit log in %s: %w", dir, err)
	}
	defer s.close()
	for _, name := range append(s.sealed, currentName) {
		in, err := s.reader(name)
		if err != nil {
			return fmt.Errorf("audit log in %s: %w", dir, err)
		}
		err = lines(in, func(n int, line []byte, whole bool) error {
			at := Problem{File: name, Line: n}
			r, err := parse(line)
			if err == nil {
				return do(r, at, line)
			}
			if bad != nil {
				at.Text = "it is no record: " + err.Error()
				bad(at, line, whole)
			}
			return nil
		})
		if err = errors.Join(err, in.Close()); err != nil {
			return fmt.Errorf("audit log in %s: %s: %w", dir, name, err)
		}
	}
	return nil
}

// snapshot is a log at a moment.
type snapshot struct {
	root    *os.Root
	sealed  []string
	current *os.File // nil if there is none
	size    int64    // of current
}

// look takes a snapshot. Writers are held off as long as that takes, not as long as
// the reading.
func look(dir string) (*snapshot, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	s := &snapshot{root: root}
	lock, err := root.Open(lockName)
	if err == nil {
		defer lock.Close() // and with it the lock
		err = waitForLock(lock, readPatience)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil // a copy of a log, that nobody writes to
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

// readPatience is how long a writer may hold the log: each holds it for one record.
const readPatience = 10 * time.Second

func (s *snapshot) close() {
	if s.current != nil {
		_ = s.current.Close() // it was read
	}
	_ = s.root.Close()
}

// reader reads one of its files.
func (s *snapshot) reader(name string) (io.ReadCloser, error) {
	if name != currentName {
		return s.root.Open(name)
	}
	if s.current == nil {
		return io.NopCloser(strings.NewReader("")), nil
	}
	return io.NopCloser(io.NewSectionReader(s.current, 0, s.size)), nil
}

// checker follows the chain.
type checker struct {
	head   string
	report Report
	file   string

	want    position  // what the next record goes on from
	before  Problem   // where the last line was
	suspect *suspect  // a link that does not fit, until the next record tells whose fault it is
	torn    *tornLine // the last line, if it is no record
	from    Record    // the first record of all
	fromAt  Problem
	removed map[string]bool // RemovedHead of retentions
	open    map[string]Record
	order   []string // ids of open, as they came
}

// suspect is a record that does not name the line before it.
type suspect struct{ before, at Problem }

func (c *checker) add(at Problem, format string, args ...any) {
	at.Text = fmt.Sprintf(format, args...)
	c.report.Problems = append(c.report.Problems, at)
}

// tornLine is a line that is no record.
type tornLine struct {
	at    Problem
	cut   bool // it begins as the record would that belongs there
	whole bool // it has an end
}

// bad takes a line that is no record. It is all right if it was cut off, and the
// next record says so.
func (c *checker) bad(at Problem, line []byte, whole bool) {
	c.settle(nil)
	c.enter(at)
	cut := c.cutOff(line)
	if c.torn != nil {
		if cut && c.torn.cut { // the record that was to say so was cut off itself
			at = c.torn.at
		} else {
			c.report.Problems = append(c.report.Problems, c.torn.at)
		}
	}
	c.torn = &tornLine{at, cut, whole}
	c.want.hash, c.before = Hash(line), at
	c.report.Head = c.want.hash
}

// cutOff tells whether a line can be the begin of the next record. A file system
// that has lost its power may have zeros at the end of a file.
func (c *checker) cutOff(line []byte) bool {
	begin := fmt.Sprintf(`{"seq":%d,"prev":"%s","time":"`, c.want.seq+1, c.want.hash)
	line = bytes.TrimRight(line, "\x00")
	n := min(len(line), len(begin))
	return len(line) <= maxLine && string(line[:n]) == begin[:n]
}

// enter counts files.
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
		if r.Seq == c.want.seq+2 { // that line was the one between
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

// settle finds out which of two lines was changed whose link does not fit: a record
// that the next one names is as it was written. fits is nil where there is no next.
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
		*fits = true // said
	}
}

// follow notes what records say of each other.
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

// endings says what only the whole log can tell.
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
		c.add(at, "no record has the hash %s: the log's end was cut off, or it was written anew", c.head)
	}
}
