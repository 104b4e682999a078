package sandbox

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

func TestReceipt(t *testing.T) {
	t.Parallel()
	used := exec.Status{
		Reason: exec.TimedOut, Elapsed: 1500 * time.Microsecond, CPU: 250 * time.Microsecond, MaxRSS: 7, Processes: 3,
		Stdout: 4, Stderr: 5, Left: 2,
	}
	tests := []struct {
		name string
		res  Result
		want string
	}{
		{"leftovers are counted, not proved", Result{Status: used, Killed: "kill"}, `{"wallMs":1.5,"cpuMs":0.25,"peakRssBytes":7,"processes":3,"stdoutBytes":4,"stderrBytes":5,"killed":"kill","survivors":2,"proved":false}`},
		{"a kernel that counts no processes", Result{Status: exec.Status{Reason: exec.Exited}}, `{"wallMs":0,"cpuMs":0,"peakRssBytes":0,"processes":null,"stdoutBytes":0,"stderrBytes":0,"killed":"","survivors":0,"proved":true}`},
		{"a reset", Result{Status: exec.Status{Reason: exec.TimedOut, Elapsed: time.Second}, Killed: killedReset}, `{"wallMs":1000,"cpuMs":null,"peakRssBytes":null,"processes":null,"stdoutBytes":0,"stderrBytes":0,"killed":"reset","survivors":0,"proved":true}`},
		{"a job that goes on", Result{Status: exec.Status{Reason: exec.HandedOver}}, `null`},
		{"no end", Result{}, `null`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := json.Marshal(tt.res.Receipt())
			if err != nil || string(got) != tt.want {
				t.Errorf("Receipt() = %s, %v; want %s", got, err, tt.want)
			}
		})
	}
}

func TestJobReceipt(t *testing.T) {
	t.Parallel()
	if r := (JobInfo{State: JobRunning}).Receipt(); r != nil {
		t.Errorf("Receipt() of a job that runs = %+v; want nil", r)
	}
	r := JobInfo{Status: &exec.Status{Reason: exec.Cancelled, Rung: wire.RungKill, CPU: time.Second}}.Receipt()
	if r == nil || r.Killed != "kill" || *r.CPUMs != 1000 || !r.Proved {
		t.Errorf("Receipt() of a job = %+v; want one that was killed after a second of cpu", r)
	}
}
