package journal

import (
	"testing"
	"time"
)

func TestState(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var s State
	running := func(want ...string) {
		t.Helper()
		got := s.Running()
		if len(got) != len(want) {
			t.Fatalf("%d run: %+v; want %v", len(got), got, want)
		}
		for i, one := range got {
			if one.Start.ID != want[i] {
				t.Errorf("number %d is %s; want %s", i, one.Start.ID, want[i])
			}
		}
	}
	running()
	s.Add(Record{Kind: SessionStart, Time: at(1)})
	s.Add(Record{Kind: Start, ID: "b", Mode: "command", Time: at(3)})
	s.Add(Record{Kind: Start, ID: "a", Mode: "terminal", Time: at(2), Cols: 80, Rows: 24})
	s.Add(Record{Kind: Start, ID: "p", Mode: "push", Time: at(4)})
	running("a", "b", "p")
	s.Add(Record{Kind: Resize, ID: "a", Cols: 100, Rows: 30})
	s.Add(Record{Kind: Output, ID: "a", Time: at(9), Data: []byte("xyz"), Skipped: 7})
	if got := s.Running()[0]; got.Bytes != 10 || !got.Last.Equal(at(9)) || got.Cols != 100 || got.Rows != 30 {
		t.Errorf("the terminal is %+v", got)
	}
	s.Add(Record{Kind: End, ID: "p"})
	s.Add(Record{Kind: End, ID: "a"})
	s.Add(Record{Kind: End, ID: "never begun here", JobTag: "x"})
	running("b")
	s.Add(Record{Kind: End, ID: "b", Job: "1", JobTag: "tag"})
	running("b")
	if got := s.Running()[0]; got.Job != "1" || got.JobTag != "tag" {
		t.Errorf("the job is %+v", got)
	}
	s.Add(Record{Kind: JobEnd, Job: "1", JobTag: "another"})
	running("b")
	s.Add(Record{Kind: JobEnd, Job: "1", JobTag: "tag"})
	s.Add(Record{Kind: JobEnd, Job: "1", JobTag: "tag"})
	running()
	s.Add(Record{Kind: Denied})
	s.Add(Record{Kind: Lost, Lost: 3})
	s.Add(Record{Kind: Start, ID: "c", Time: at(10)})
	s.Add(Record{Kind: SessionStop, Time: at(11)})
	running()
	if s.Denied != 1 || s.Missing != 3 || s.Commands != 3 || !s.Ended.Equal(at(11)) || !s.Last.Equal(at(11)) {
		t.Errorf("state %+v", s)
	}
}
