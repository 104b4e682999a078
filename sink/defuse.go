package sink

import (
	"bytes"
	"io"
	"slices"
	"sync"
)

// Runners are kinds of CI runner, as bits. A runner reads some lines in the log of a job as
// commands to itself, and the output of what it runs goes to that log.
type Runners int

const (
	// GitHub is the runner of GitHub Actions, and of Gitea and Forgejo: a line that begins with
	// :: after any white space, and ##[ anywhere in a line.
	GitHub Runners = 1 << iota
	// GitLab reads section markers anywhere: section_start:TIME:NAME.
	GitLab
	// Azure is the agent of Azure Pipelines: ##vso[ and ##[ anywhere in a line.
	Azure
	// TeamCity reads ##teamcity[ anywhere in a line.
	TeamCity

	// AllRunners is each of them.
	AllRunners = GitHub | GitLab | Azure | TeamCity
)

// A marker is the start of a command to a runner. Letters match in upper and lower case.
type marker struct {
	text    string
	runners Runners
	begins  bool // only at the start of a line
}

var markers = []marker{
	{text: "::", runners: GitHub, begins: true},
	{text: "##[", runners: GitHub | Azure},
	{text: "##vso[", runners: Azure},
	{text: "##teamcity[", runners: TeamCity},
	{text: "section_start:", runners: GitLab},
	{text: "section_end:", runners: GitLab},
}

// Defused is a writer for untrusted text to the log of a CI job. It writes a space before
// the last byte of each marker, so that the runner does not take the line for a command,
// and changes nothing else. It holds a possible marker back until it is known whether it
// is one. So the log never ends inside a marker, even if this process dies or another
// one writes next.
//
// Several Defused that share a log share their state: see With. They may be used
// concurrently; one Write runs at a time.
type Defused struct {
	w io.Writer
	*defuser
}

// defuser is the state of one log.
type defuser struct {
	runners Runners
	mine    []marker
	firsts  [256]bool // the first bytes of markers

	mu    sync.Mutex
	held  []byte // guarded by mu; the start of a possible marker
	fresh bool   // guarded by mu; nothing was written so far
	begin bool   // guarded by mu; nothing visible since the start of the line
	ended bool   // guarded by mu; the last byte written was LF, or there was none
	count int    // guarded by mu
	buf   []byte // guarded by mu; scratch
}

// NewDefused returns a Defused that writes to w, the log of a job of those runners.
func NewDefused(w io.Writer, runners Runners) *Defused {
	d := &defuser{runners: runners, fresh: true, begin: true, ended: true}
	for _, m := range markers {
		if m.runners&runners != 0 {
			d.mine = append(d.mine, m)
			d.firsts[m.text[0]], d.firsts[upper(m.text[0])] = true, true
		}
	}
	return &Defused{w: w, defuser: d}
}

// With returns a Defused that writes to the same log through another writer.
func (d *Defused) With(w io.Writer) *Defused { return &Defused{w: w, defuser: d.defuser} }

// Unwrap returns the writer to the log.
func (d *Defused) Unwrap() io.Writer { return d.w }

// Count returns how many markers were defused.
func (d *Defused) Count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count
}

// Write writes any part of the text. Its errors are those of the log's writer.
func (d *Defused) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.buf = d.buf[:0]
	if d.fresh && len(p) > 0 {
		d.fresh = false
		// .NET detects the encoding of a stream by its first bytes, and in UTF-16 markers
		// would have other bytes. No UTF-8 text starts with these bytes.
		if p[0] == 0 || p[0] == 0xFE || p[0] == 0xFF {
			d.buf, d.count = append(d.buf, ' '), d.count+1
		}
	}
	for rest := p; len(rest) > 0; {
		n := 0
		if len(d.held) == 0 {
			n = d.plain(rest)
		}
		d.put(rest[:n])
		if rest = rest[n:]; len(rest) > 0 {
			d.step(rest[0])
			rest = rest[1:]
		}
	}
	if err := d.flush(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes what is held back. If a runner reads lines it ends the last line too, so
// that the next writer starts a new one. It does not close the log's writer.
func (d *Defused) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.buf = d.buf[:0]
	cut := len(d.held) > 0
	d.put(d.held)
	d.held = nil
	if cut || !d.ended && d.runners&^GitLab != 0 {
		d.put([]byte{'\n'})
	}
	return d.flush()
}

func (d *defuser) plain(p []byte) int {
	for i, b := range p {
		if d.firsts[b] {
			return i
		}
	}
	return len(p)
}

// step handles one byte that may belong to a marker.
func (d *defuser) step(b byte) {
	d.held = append(d.held, b)
	for len(d.held) > 0 {
		whole, begun := d.look()
		if whole {
			last := len(d.held) - 1
			d.put(d.held[:last])
			d.put([]byte{' '})
			d.put(d.held[last:])
			d.held, d.count = d.held[:0], d.count+1
			return
		}
		if begun {
			return
		}
		d.put(d.held[:1])
		d.held = slices.Delete(d.held, 0, 1)
	}
}

// look reports whether the held bytes are a marker, or the start of one.
func (d *defuser) look() (whole, begun bool) {
	for _, m := range d.mine {
		if m.begins && !d.begin || len(d.held) > len(m.text) || !bytes.EqualFold(d.held, []byte(m.text[:len(d.held)])) {
			continue
		}
		if len(d.held) == len(m.text) {
			return true, false
		}
		begun = true
	}
	return false, begun
}

// put adds bytes to the buffer, and notes where a line starts. Runners end lines at LF
// and at CR, and trim white space of every kind: every byte that is not a visible
// character of ASCII counts as white space.
func (d *defuser) put(p []byte) {
	if len(p) == 0 {
		return
	}
	d.buf = append(d.buf, p...)
	line := p
	if n := bytes.LastIndexAny(p, "\r\n"); n >= 0 {
		line, d.begin = p[n+1:], true
	}
	d.begin = d.begin && !slices.ContainsFunc(line, func(b byte) bool { return b > ' ' && b < 0x7F })
	d.ended = p[len(p)-1] == '\n'
}

func (d *Defused) flush() error {
	if len(d.buf) == 0 {
		return nil
	}
	_, err := d.w.Write(d.buf)
	return err
}

func upper(b byte) byte {
	if b >= 'a' && b <= 'z' {
		return b - 'a' + 'A'
	}
	return b
}
