package wire

import "time"

// JobVerb says what is asked about the jobs of a session.
type JobVerb uint64

// Verbs. All but JobList and JobWatch are about one job.
const (
	JobList   JobVerb = iota // answered by JobStates
	JobRead                  // the output from From on, as far as it goes now
	JobFollow                // the same, and what comes until the job has ended
	JobTail                  // the last From bytes of what there is
	JobWait                  // ends when the job has
	JobKill                  // has Runner end it; does not wait
	JobRemove                // of a job that has ended
	JobNote                  // writes down that the job is Known, and its Artifact
	JobWatch                 // a byte whenever jobs may have changed, as long as it is read
)

// JobQuery is what the runner's verb `jobs` reads from its standard input.
type JobQuery struct {
	Verb     JobVerb
	ID       string
	From     uint64
	Runner   int
	Known    bool   // its owner has been told the end
	Artifact string // where its output is kept on the host
	// Watch names what JobWatch is for: of one name one watch is served at a
	// time, others wait.
	Watch string
	Keep  JobKeep
}

// JobKeep says how long jobs that have ended are kept. Those of a request do for
// all jobs of the session.
type JobKeep struct {
	Known   time.Duration // after the end, or after its owner was told if that is later
	Unknown time.Duration // after the end
}

// JobState is what there is of one job in the session. Its records are sealed,
// and for who has the key to open.
type JobState struct {
	ID       string
	Start    []byte
	End      []byte // empty if there is none
	Alive    bool   // its runner keeps it: it has not ended
	Known    bool
	Size     uint64 // bytes of the output's file
	Artifact string
}

// Append appends the message's encoding to dst.
func (m JobQuery) Append(dst []byte) []byte {
	e := encoder{dst}
	e.uint(uint64(m.Verb))
	e.string(m.ID)
	e.uint(m.From)
	e.int(m.Runner)
	e.bool(m.Known)
	e.string(m.Artifact)
	e.string(m.Watch)
	e.keep(m.Keep)
	return e.b
}

// ParseJobQuery decodes a JobQuery.
func ParseJobQuery(b []byte) (JobQuery, error) {
	d := decoder{b: b}
	m := JobQuery{
		Verb: JobVerb(d.uint()), ID: d.string(), From: d.uint(), Runner: d.int(), Known: d.bool(),
		Artifact: d.string(), Watch: d.string(), Keep: d.keep(),
	}
	return m, d.end()
}

func (e *encoder) keep(k JobKeep) {
	e.int(int(k.Known))
	e.int(int(k.Unknown))
}

func (d *decoder) keep() JobKeep { return JobKeep{Known: d.duration(), Unknown: d.duration()} }

// AppendJobStates appends the encoding of a list to dst.
func AppendJobStates(dst []byte, all []JobState) []byte {
	e := encoder{dst}
	for _, m := range all {
		e.string(m.ID)
		e.bytes(m.Start)
		e.bytes(m.End)
		e.bool(m.Alive)
		e.bool(m.Known)
		e.uint(m.Size)
		e.string(m.Artifact)
	}
	return e.b
}

// ParseJobStates decodes a list. The records are parts of b.
func ParseJobStates(b []byte) ([]JobState, error) {
	d := decoder{b: b}
	var all []JobState
	for len(d.b) > 0 {
		all = append(all, JobState{
			ID: d.string(), Start: d.bytes(), End: d.bytes(), Alive: d.bool(), Known: d.bool(), Size: d.uint(), Artifact: d.string(),
		})
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	return all, nil
}
