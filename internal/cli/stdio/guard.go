package stdio

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/sandboxbash/sandboxbash/sink"
)

// Guard makes standard output and standard error fit for the log of a job of
// those runners: whatever any command of ours prints there is not a
// command to them. It may be called again, before anything was printed.
func (s *Streams) Guard(kinds sink.Runners) {
	s.kinds = kinds
	stdout, stderr := s.RawStdout, s.RawStderr
	defer func() { s.Stdout, s.Stderr = s.Masked(stdout), s.Masked(stderr) }()
	if kinds == 0 {
		return
	}
	out := sink.NewDefused(s.RawStdout, kinds)
	errs := sink.NewDefused(s.RawStderr, kinds)
	if sameFile(s.RawStdout, s.RawStderr) {
		errs = out.With(s.RawStderr) // what one has begun the other could end
	}
	if logsTo(s.RawStdout, kinds) {
		stdout = out
	}
	if logsTo(s.RawStderr, kinds) {
		stderr = errs
	}
}

// logsTo reports whether a stream can be the log of a job. The runners read pipes,
// and GitLab's reads files too; another pipe looks like theirs.
func logsTo(w io.Writer, kinds sink.Runners) bool {
	f, ok := w.(*os.File)
	if !ok {
		return true
	}
	info, err := f.Stat()
	return err != nil || !info.Mode().IsRegular() || kinds&sink.GitLab != 0
}

func sameFile(a, b io.Writer) bool {
	f, ok := a.(*os.File)
	g, both := b.(*os.File)
	if !ok || !both {
		return a == b
	}
	one, err := f.Stat()
	other, otherErr := g.Stat()
	return err == nil && otherErr == nil && os.SameFile(one, other)
}

// Raw returns a stream as it is, without masks and guard: for what has neither to
// fear, or brings its own.
func Raw(w io.Writer) io.Writer {
	w = PastMasks(w)
	if d, ok := w.(*sink.Defused); ok {
		return d.Unwrap()
	}
	return w
}

// Unguard ends what this process writes to the log of a job, and tells if
// something in it was no more than text on purpose. A reader that has stopped
// does not hold it up.
func (s *Streams) Unguard(quiet bool) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	count := 0
	for _, w := range []io.Writer{s.Stdout, s.Stderr} {
		if d, ok := PastMasks(w).(*sink.Defused); ok {
			g := NewWriter(over, d.Unwrap(), nil)
			_ = d.With(g).Close()
			_, _ = g.Flush(over)
			g.Close()
			count = max(count, d.Count())
		}
	}
	if count > 0 && !quiet {
		g := NewWriter(over, s.RawStderr, nil)
		defer g.Close()
		fmt.Fprintf(g, "sandboxbash: note: %d places in the output looked like commands to the CI runner, and were neutralised with a space (--ci none turns this off)\n", count)
		_, _ = g.Flush(over)
	}
}
