package sandbox_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// What a process calls itself neither hides it nor keeps the others from being listed.
func TestProcesses(t *testing.T) {
	t.Parallel()
	for _, profile := range []sandbox.Profile{sandbox.Strict, sandbox.Dev} {
		t.Run(string(profile), func(t *testing.T) {
			t.Parallel()
			s := start(t, sandbox.Spec{Profile: profile})
			ctx, cancel := context.WithCancel(t.Context())
			const hide = `exec -a /.sandboxbash/runner sleep 1001 & (exec -a '/.sandboxbash/runner serve' sleep 1002) &
perl -e '$0 = "/.sandboxbash/runner\0serve\0"; sleep 1003' & perl -e '$0 = "two\nlines \"1 2 3 S 4\xff"; sleep 1004' &
perl -e '$0 = ""; sleep 1005' &
for i in $(seq 60); do bash -c 'sleep 1000; :' "$(head -c 120000 /dev/zero | tr '\0' '\001')" & done
sleep 1; echo ready; wait`
			done := begin(ctx, t, s, sandbox.Command{Script: hide, Timeout: time.Minute}, "ready")
			list, err := s.Processes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			long := 0
			for _, p := range list {
				all = append(all, p.Command)
				if strings.HasPrefix(p.Command, "bash -c sleep 1000; : \x01") {
					long++
				}
				if len(p.Command) > 1024 {
					t.Errorf("a command line of %d bytes; want it cut", len(p.Command))
				}
				if p.PID == 1 {
					t.Error("PID 1 is listed")
				}
			}
			for _, want := range []string{"/.sandboxbash/runner 1001", "/.sandboxbash/runner serve 1002", "two\nlines \"1 2 3 S 4\xff"} {
				if !slices.Contains(all, want) {
					t.Errorf("%.80q has not %q", all, want)
				}
			}
			if long != 60 {
				t.Errorf("%d processes with long arguments; want 60", long)
			}
			cancel()
			<-done
			list, err = s.Processes(t.Context())
			if err != nil || len(list) != 0 {
				t.Errorf("Processes() of an idle session = %+v, %v; want none", list, err)
			}
		})
	}
}
