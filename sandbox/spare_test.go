package sandbox

import (
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
)

// A question to a full session is asked again with a higher limit, and the limit is
// as before then, whatever the answer.
func TestWithSpare(t *testing.T) {
	t.Parallel()
	full := &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseResources, Err: errTest}
	for _, tt := range []struct {
		name    string
		answers []error // of each call
		pids    int64   // in use
		fail    error   // of Limit
		raised  []int64 // the limits that it had meanwhile
		want    error
	}{
		{"there is room", []error{nil}, 20, nil, nil, nil},
		{"another error", []error{errTest}, 20, nil, nil, errTest},
		{"full", []error{full, nil}, 96, nil, []int64{160}, nil},
		{"beyond the limit", []error{full, nil}, 120, nil, []int64{184}, nil},
		{"the spare room is taken", []error{full, full, full, nil}, 96, nil, []int64{160, 224, 288}, nil},
		{"another error then", []error{full, full, errTest}, 96, nil, []int64{160, 224}, errTest},
		{"far beyond it", []error{full, full}, 5000, nil, []int64{96 + maxSpare}, full},
		{"still full", []error{full, full, full, full, full}, 96, nil, []int64{160, 224, 288, 352}, full},
		{"the engine refuses", []error{full}, 96, errTest, nil, errTest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newFakeEngine(t)
			_, s := start(t, d, Spec{Limits: Limits{Pids: 96}})
			defer s.Release()
			d.Load = func() (engine.Usage, error) { return engine.Usage{Pids: tt.pids, PidsLimit: 96}, nil }
			d.Fail = onCall("limit", tt.fail)
			answers := tt.answers
			err := s.withSpare(t.Context(), func() error {
				answer := answers[0]
				answers = answers[1:]
				return answer
			})
			if !errors.Is(err, tt.want) || tt.want == nil && err != nil || len(answers) > 0 {
				t.Errorf("withSpare() = %v with %d calls missing; want %v", err, len(answers), tt.want)
			}
			var want []engine.Usage
			for _, limit := range tt.raised {
				want = append(want, engine.Usage{PidsLimit: limit})
			}
			if want != nil {
				want = append(want, engine.Usage{PidsLimit: 96})
			}
			if got := d.Limits(); !slices.Equal(got, want) {
				t.Errorf("the limits were set to %+v; want %+v", got, want)
			}
		})
	}
}

// What has been written is not written twice.
func TestWithSpareOnce(t *testing.T) {
	t.Parallel()
	full := &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseResources, Err: errTest}
	d := newFakeEngine(t)
	_, s := start(t, d, Spec{})
	defer s.Release()
	calls := 0
	err := s.withSpareOnce(t.Context(), io.Discard, func(w io.Writer) error {
		calls++
		_, _ = io.WriteString(w, "half")
		return full
	})
	if !errors.Is(err, full) || calls != 1 {
		t.Errorf("withSpareOnce() = %v after %d calls; want the error of the first", err, calls)
	}
}
