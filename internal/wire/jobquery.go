package wire

import "time"

// JobVerb says what is asked about the jobs of a session.
type JobVerb uint64

// Verbs. All but JobList and JobWatch name one job.
const (
	JobList   JobVerb = iota // answered by JobStates
	JobRead                  // the output from From on, as far as it goes now
	JobFollow                // the same, and what comes until the job has ended
	JobTail                  // the last From bytes of what there is
	JobWait                  // ends when the job has
	JobKill                  // has Runner end it; does not wait
	JobRemove                // forgets a job that has ended
	JobNote                  // records that the job is Known, and its Artifact
	JobWatch                 // JobNews whenever jobs may have changed, as long as it is read
)

// JobNews is the byte that answers a JobWatch.
const JobNews = '\n'

// JobQuery is what the runner's verb `jobs` reads from its standard input.
type JobQuery struct {
	Verb     JobVerb
	ID       string
	From     uint64
	Runner   int
	Known    bool   // its owner knows the end
	Artifact string // where its output is kept on the host
	// Watch names a JobWatch. One watch of a name is served at a time, others wait.
	Watch string
	Keep  JobKeep
}

// JobKeep says how long jobs that have ended are kept. The JobKeep of a query applies to
// all jobs of the session.
type JobKeep struct {
	Known   time.Duration // after the end, or after its owner learned of the end if that is later
	Unknown time.Duration // after the end
}

// JobState describes one job of the session. Its records are sealed: only a holder of
// the key can tell whether a runner wrote them.
type JobState struct {
	ID       string
	Start    []byte
	End      []byte // empty if there is none
	Alive    bool   // its runner keeps it: it has not ended
	Known    bool
	Size     uint64 // bytes of the output's file
	Artifact string
}

func (m *JobQuery) fields(c *codec) {
	number(c, &m.Verb)
	c.string(&m.ID)
	c.uint(&m.From)
	c.int(&m.Runner)
	c.bool(&m.Known)
	c.string(&m.Artifact)
	c.string(&m.Watch)
	m.Keep.fields(c)
}

func (m *JobKeep) fields(c *codec) {
	c.duration(&m.Known)
	c.duration(&m.Unknown)
}

func (m *JobState) fields(c *codec) {
	c.string(&m.ID)
	c.bytes(&m.Start)
	c.bytes(&m.End)
	c.bool(&m.Alive)
	c.bool(&m.Known)
	c.uint(&m.Size)
	c.string(&m.Artifact)
}

// Append appends the message's encoding to dst.
func (m JobQuery) Append(dst []byte) []byte { return encode(dst, &m) }

// ParseJobQuery decodes a JobQuery.
func ParseJobQuery(b []byte) (m JobQuery, err error) {
	err = decode(b, &m)
	return m, err
}

// AppendJobStates appends the encoding of a list to dst.
func AppendJobStates(dst []byte, all []JobState) []byte {
	for _, m := range all {
		dst = encode(dst, &m)
	}
	return dst
}

// ParseJobStates decodes a list. The records are parts of b.
func ParseJobStates(b []byte) ([]JobState, error) {
	var all []JobState
	for c := (codec{b: b, reading: true}); len(c.b) > 0; {
		var m JobState
		if m.fields(&c); c.err != nil {
			return nil, c.err
		}
		all = append(all, m)
	}
	return all, nil
}
