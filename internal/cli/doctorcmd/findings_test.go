package doctorcmd

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/engine"
)

func TestRuncFinding(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"1.1.11": levelFail, "1.0.0-rc93": levelFail, "1.1.12": levelWarn, "1.1.5+ds1": levelWarn, "1.2.7": levelWarn,
		"1.2.8": levelWarn, "1.3.2": levelWarn, "1.3.3": levelWarn, "1.3.5": levelWarn, "1.3.6": levelOK, "1.4.0-rc.2": levelWarn,
		"1.4.0": levelWarn, "1.4.2": levelWarn, "1.4.3": levelOK, "1.5.0-rc.2": levelWarn, "1.5.0-rc.3": levelOK, "1.5.0": levelOK,
		"v1.6.1": levelOK, "2.0.0": levelOK, "": levelWarn, "v0.0.0-deadbeef": levelWarn, "9f9c9623": levelWarn,
	} {
		if got := runcFinding(version); got.Level != want || got.Level != levelOK && got.Todo == "" {
			t.Errorf("runcFinding(%q) = %+v; want %s, and what to do", version, got, want)
		}
	}
	for _, test := range []struct {
		version string
		cve     string
	}{{"1.2.7", "CVE-2025-31133"}, {"1.4.0-rc.2", "CVE-2025-31133"}, {"1.2.8", "CVE-2026-41579"}, {"1.4.0", "CVE-2026-41579"}} {
		if got := runcFinding(test.version); !strings.Contains(got.Text, test.cve) {
			t.Errorf("runcFinding(%q) = %+v; want %s", test.version, got, test.cve)
		}
	}
}

func TestEngineFindings(t *testing.T) {
	t.Parallel()
	good := engine.Info{
		OS: "linux", CgroupVersion: "2", DefaultRuntime: "runc", RuncVersion: "1.3.6", Runtimes: []string{"runc"},
		SecurityOpts: []string{"name=apparmor", "name=seccomp,profile=builtin"},
	}
	for _, test := range []struct {
		name  string
		spoil func(*engine.Info)
		want  []string // level and topic of what is not ok
	}{
		{"good", func(*engine.Info) {}, nil},
		{"windows", func(i *engine.Info) { i.OS = "windows" }, []string{"fail engine"}},
		{"old runc", func(i *engine.Info) { i.RuncVersion = "1.1.4" }, []string{"fail runc"}},
		{"old runc that is not used", func(i *engine.Info) { i.DefaultRuntime, i.RuncVersion = "crun", "1.1.4" }, nil},
		{"no swap limit", func(i *engine.Info) { i.Unenforced = []string{"swap"} }, []string{"warn limits"}},
		{"rootless on cgroup 1", func(i *engine.Info) {
			i.Rootless, i.Unenforced = true, []string{"memory", "swap", "pids", "cpus"}
		}, []string{"fail limits", "warn limits", "fail limits", "fail limits"}},
		{"no seccomp", func(i *engine.Info) { i.SecurityOpts = []string{"name=apparmor"} }, []string{"fail seccomp"}},
		{"seccomp as Podman says it", func(i *engine.Info) { i.SecurityOpts = []string{"seccomp"} }, nil},
		{"warnings", func(i *engine.Info) { i.Warnings = []string{"WARNING: x"} }, []string{"warn engine"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			info := good
			test.spoil(&info)
			var got []string
			for _, f := range engineFindings(info) {
				if f.Level == levelOK {
					continue
				}
				got = append(got, f.Level+" "+f.Topic)
				if f.Todo == "" {
					t.Errorf("finding %+v does not say what to do", f)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("engineFindings() = %q; want %q", got, test.want)
			}
		})
	}
}
