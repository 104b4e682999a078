package sandbox_test

import (
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// A command that was killed from outside is not reported as out of memory because another
// command was.
func TestOOMOfAnother(t *testing.T) {
	t.Parallel()
	const hog = `perl -e '$x = "a" x (256 << 20)'`
	for name, tt := range map[string]struct {
		other string
		want  exec.Reason
		pause string // of the one that is killed
	}{
		"the other was killed":          {"exec " + hog, exec.OOMKilled, "sleep 4"},
		"the other was killed just now": {"exec " + hog, exec.OOMKilled, "while [ ! -e over ]; do sleep 0.05; done"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, sandbox.Spec{Limits: sandbox.Limits{Memory: 96 << 20}})
			done := begin(t.Context(), t, s, sandbox.Command{Script: "echo ready; " + tt.pause + "; kill -KILL $$", Timeout: time.Minute}, "ready")
			res, err := s.Run(t.Context(), sandbox.Command{Script: tt.other, Timeout: time.Minute})
			if err != nil || res.Reason != tt.want {
				t.Errorf("Run(%q) = %+v, %v; want %s", tt.other, res.Status, err, tt.want)
			}
			script(t, s, "touch over")
			if e := <-done; e.err != nil || e.res.Reason != exec.Signalled || e.res.Signal != 9 {
				t.Errorf("the one that was killed: %+v, %v; want it signalled", e.res.Status, e.err)
			}
		})
	}
}
