package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/sandboxbash/sandboxbash/agent"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
	"github.com/sandboxbash/sandboxbash/tool"
)

// jobCompleted is the notification job/completed.
type jobCompleted struct {
	Session string         `json:"session"`
	Jobs    []completedJob `json:"jobs"`
	// FollowUp is the message for the model.
	FollowUp string `json:"followUp"`
}

type completedJob struct {
	ID       string `json:"id"`
	Label    string `json:"label"`
	Text     string `json:"text"`
	Artifact string `json:"artifact,omitempty"`
}

// tell sends notifications about jobs that have ended. Only contract agent has them: the
// agents of other contracts read the files of their jobs, and a delivered job's files do
// not stay.
func (p *peer) tell(ctx context.Context, s *Session) {
	p.mu.Lock()
	contract := p.hello.contract
	p.mu.Unlock()
	if s.News == nil || contract != tool.Agent {
		<-ctx.Done()
		return
	}
	err := s.News.Deliveries(ctx, func(ctx context.Context, all []tool.Delivery) error {
		note := jobCompleted{Session: s.ID, FollowUp: tool.FollowUp(all)}
		for _, d := range all {
			note.Jobs = append(note.Jobs, completedJob{ID: d.JobID, Label: d.Label, Text: d.Text, Artifact: d.ArtifactID})
		}
		return p.out.notify(ctx, "job/completed", note)
	})
	if err != nil && ctx.Err() == nil {
		p.o.note(fmt.Sprintf("session %s: the ends of its jobs are not reported any more: %v", s.ID, err))
	}
}

type jobNamed struct {
	Session   string `json:"session"`
	ID        string `json:"id"`
	TimeoutMs int64  `json:"timeoutMs"` // of job/wait
	Tail      int64  `json:"tail"`      // of job/output
}

type jobList struct {
	Jobs []sandbox.JobInfo `json:"jobs"`
}

func (p *peer) jobs(ctx context.Context, session string) (Jobs, error) {
	s, err := p.session(ctx, session)
	if err != nil {
		return nil, err
	}
	return part(s.Jobs, "jobs")
}

func doJobList(ctx context.Context, p *peer, n named) (any, error) {
	jobs, err := p.jobs(ctx, n.Session)
	if err != nil {
		return nil, err
	}
	all, err := jobs.List(ctx)
	if err != nil {
		return nil, err
	}
	if all == nil {
		all = []sandbox.JobInfo{}
	}
	return jobList{all}, nil
}

func (p *peer) job(ctx context.Context, n jobNamed) (Job, error) {
	jobs, err := p.jobsOf(ctx, n)
	if err != nil {
		return nil, err
	}
	return jobs.Job(ctx, n.ID)
}

// jobsOf returns the jobs of a session for a call that names one of them.
func (p *peer) jobsOf(ctx context.Context, n jobNamed) (Jobs, error) {
	if n.ID == "" {
		return nil, badParams("id is required: that of a job")
	}
	return p.jobs(ctx, n.Session)
}

// errWaited is the cause of a wait's end at its timeout.
var errWaited = errors.New("the wait has timed out")

// doJobWait describes the job when it has ended, or at the timeout.
func doJobWait(ctx context.Context, p *peer, n jobNamed) (any, error) {
	job, err := p.job(ctx, n)
	if err != nil {
		return nil, err
	}
	wait, cancel := ctx, context.CancelFunc(func() {})
	if n.TimeoutMs > 0 {
		wait, cancel = context.WithTimeoutCause(ctx, milliseconds(n.TimeoutMs, math.MaxInt64), errWaited)
	}
	defer cancel()
	info, err := job.Wait(wait)
	if err != nil && ctx.Err() == nil && wait.Err() != nil {
		return job.Now(ctx)
	}
	if err != nil {
		return nil, err
	}
	return info, nil
}

func doJobKill(ctx context.Context, p *peer, n jobNamed) (any, error) {
	jobs, err := p.jobsOf(ctx, n)
	if err != nil {
		return nil, err
	}
	return jobs.Kill(ctx, n.ID)
}

type jobOutput struct {
	Text string `json:"text"`
}

// maxTail bounds a job's output in an answer, in bytes.
const maxTail = 1 << 20

func doJobOutput(ctx context.Context, p *peer, n jobNamed) (any, error) {
	switch {
	case n.Tail < 0 || n.Tail > maxTail:
		return nil, badParams("tail: it can be 1 to %d bytes", maxTail)
	case n.Tail == 0:
		n.Tail = sink.DefaultWindow // as for a command
	}
	job, err := p.job(ctx, n)
	if err != nil {
		return nil, err
	}
	text, err := job.Tail(ctx, n.Tail)
	if err != nil {
		return nil, err
	}
	return jobOutput{text}, nil
}

type backgroundCall struct {
	Request json.RawMessage `json:"request"`
}

// doJobBackground makes the command of a running request a job.
func doJobBackground(_ context.Context, p *peer, b backgroundCall) (any, error) {
	id, ok := checkID(b.Request)
	if !ok || id == nil {
		return nil, badParams("request is required: the id of a tools/call")
	}
	unknown := failure(KindUnknownRequest, "no command of a request %s is running that could become a job", shown(string(id)))
	p.mu.Lock()
	var s *Session
	if r := p.calls[string(id)]; r != nil {
		s = r.session
	}
	p.mu.Unlock()
	if s == nil || s.News == nil {
		return nil, unknown
	}
	err := s.News.Background(string(id))
	if errors.Is(err, agent.ErrNoCall) {
		return nil, unknown
	}
	return nil, err
}
