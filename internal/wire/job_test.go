package wire

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	testKey   = bytes.Repeat([]byte{7}, 32)
	testJob   = Job{Tag: "t", Owner: "o", Label: "make \xff", Timeout: time.Hour, Grace: time.Second, Cap: 1 << 30, Most: 15, Keep: JobKeep{Known: 1, Unknown: 2}, Key: testKey}
	testStart = JobStart{ID: "bg_1", Tag: "t", Owner: "o", Label: "make", PID: 7, Runner: 5, Started: time.Unix(1, 2).UTC(), Timeout: time.Hour}
	testEnd   = JobEnd{
		ID: "bg_1", Tag: "t", Ending: EndedTimeout, Code: 3, Signal: 9, Rung: RungKill, OOM: true, Left: 2, CPU: 5, MaxRSS: 6, Processes: 7,
		Elapsed: time.Minute, Ended: time.Unix(3, 4).UTC(), Clock: 8, Written: 10, Kept: 9, Full: true,
	}
)

func TestJobMessagesRoundTrip(t *testing.T) {
	t.Parallel()
	req := Request{Seq: 1, Shell: "bash", Script: []byte("x"), Dir: "/", Job: &testJob}
	if got, err := ParseRequest(req.Append(nil)); err != nil || cmp.Diff(req, got) != "" {
		t.Errorf("ParseRequest: %v, difference %s", err, cmp.Diff(req, got))
	}
	detach := Detach{Seq: 4}
	if got, err := ParseDetach(detach.Append(nil)); got != detach || err != nil {
		t.Errorf("ParseDetach(%+v) = %+v, %v; want the same, nil", detach, got, err)
	}
	detached := Detached{Seq: 4, ID: "bg_2", PID: 9, Stdout: 1, Stderr: 2, Failure: FailJobLimit, Errno: 28, Detail: "d"}
	if got, err := ParseDetached(detached.Append(nil)); got != detached || err != nil {
		t.Errorf("ParseDetached(%+v) = %+v, %v; want the same, nil", detached, got, err)
	}
	query := JobQuery{Verb: JobWatch, ID: "bg_1", From: 9, Runner: 5, Known: true, Artifact: "3", Watch: "w", Keep: JobKeep{Known: 1}}
	if got, err := ParseJobQuery(query.Append(nil)); got != query || err != nil {
		t.Errorf("ParseJobQuery(%+v) = %+v, %v; want the same, nil", query, got, err)
	}
	states := []JobState{{ID: "bg_1", Start: []byte("s"), End: []byte("e"), Alive: true, Size: 3}, {ID: "bg_2", Start: []byte{}, End: []byte{}, Known: true, Artifact: "7"}}
	if got, err := ParseJobStates(AppendJobStates(nil, states)); err != nil || cmp.Diff(states, got) != "" {
		t.Errorf("ParseJobStates: %v, difference %s", err, cmp.Diff(states, got))
	}
	if got, err := ParseJobStates(nil); got != nil || err != nil {
		t.Errorf("ParseJobStates(nothing) = %v, %v; want none, nil", got, err)
	}
}

// A job without a key could be forged, and a text without a bound would not fit
// into its record.
func TestJobRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Job){
		"no key":     func(j *Job) { j.Key = nil },
		"long label": func(j *Job) { j.Label = strings.Repeat("x", MaxJobText+1) },
		"long owner": func(j *Job) { j.Owner = strings.Repeat("x", MaxJobText+1) },
	} {
		j := testJob
		change(&j)
		if _, err := ParseRequest(Request{Job: &j}.Append(nil)); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: ParseRequest() error %v; want ErrFrame", name, err)
		}
	}
}

func TestSeal(t *testing.T) {
	t.Parallel()
	start, end := testStart.Seal(testKey), testEnd.Seal(testKey)
	if got, err := OpenJobStart(testKey, start); got != testStart || err != nil {
		t.Errorf("OpenJobStart() = %+v, %v; want %+v", got, err, testStart)
	}
	if got, err := OpenJobEnd(testKey, end); !cmp.Equal(got, testEnd) || err != nil {
		t.Errorf("OpenJobEnd() = %+v, %v; want %+v", got, err, testEnd)
	}
	if got, err := ReadJobEnd(end); !cmp.Equal(got, testEnd) || err != nil {
		t.Errorf("ReadJobEnd() = %+v, %v; want %+v", got, err, testEnd)
	}
	largest := testStart
	largest.Owner, largest.Label = strings.Repeat("o", MaxJobText), strings.Repeat("l", MaxJobText)
	if _, err := OpenJobStart(testKey, largest.Seal(testKey)); err != nil {
		t.Errorf("OpenJobStart(the longest texts): %v", err)
	}
}

// Whatever is changed in a record, it is not believed: one bit, its key, its kind.
func TestSealForged(t *testing.T) {
	t.Parallel()
	end := testEnd.Seal(testKey)
	for i := range end {
		forged := bytes.Clone(end)
		forged[i] ^= 1
		if _, err := OpenJobEnd(testKey, forged); !errors.Is(err, ErrSeal) {
			t.Fatalf("OpenJobEnd(byte %d changed): %v; want ErrSeal", i, err)
		}
	}
	other := bytes.Repeat([]byte{8}, 32)
	for name, err := range map[string]error{
		"another key": second(OpenJobEnd(other, end)),
		"no key":      second(OpenJobEnd(nil, testEnd.Seal(nil))),
		"a start":     second(OpenJobEnd(testKey, testStart.Seal(testKey))),
		"short":       second(OpenJobEnd(testKey, end[:20])),
		"nothing":     second(OpenJobEnd(testKey, nil)),
		"too long":    second(OpenJobEnd(testKey, seal(testKey, sealEnd, make([]byte, MaxRecord)))),
	} {
		if !errors.Is(err, ErrSeal) {
			t.Errorf("OpenJobEnd(%s): %v; want ErrSeal", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// No bytes make a parser panic, and what it accepts it can say again.
func FuzzJobs(f *testing.F) {
	f.Add(testEnd.Seal(testKey))
	f.Add(JobQuery{Verb: JobTail, ID: "bg_1"}.Append(nil))
	f.Add(Detached{ID: "bg_1"}.Append(nil))
	f.Add(AppendJobStates(nil, []JobState{{ID: "bg_1"}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := ParseJobQuery(data); err == nil {
			if again, err := ParseJobQuery(m.Append(nil)); err != nil || m != again {
				t.Errorf("a query changed when said again: %v", err)
			}
		}
		if m, err := ParseDetached(data); err == nil {
			if again, err := ParseDetached(m.Append(nil)); err != nil || m != again {
				t.Errorf("a hand-over changed when said again: %v", err)
			}
		}
		if m, err := ParseJobStates(data); err == nil {
			if again, err := ParseJobStates(AppendJobStates(nil, m)); err != nil || cmp.Diff(m, again) != "" {
				t.Errorf("a list changed when said again: %v", err)
			}
		}
		if _, err := OpenJobEnd(testKey, data); err == nil && !bytes.Equal(data, testEnd.Seal(testKey)) {
			t.Errorf("a record without a seal was accepted: %x", data)
		}
		_, _ = ReadJobEnd(data)
		_, _ = ParseDetach(data)
	})
}
