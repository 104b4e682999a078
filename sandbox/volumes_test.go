package sandbox

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

// Where an engine's tmpfs can have neither owner nor number of files, volumes in
// memory take its place, with the same options, and end with the session.
func TestStartInVolumes(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := newFakeDocker(t)
			d.info.PlainTmpfs = plain
			e := New(d, &fakeImages{}, Options{})
			s, err := e.Start(t.Context(), Spec{})
			if err != nil {
				t.Fatal(err)
			}
			mounts := map[string]string{}
			for _, c := range d.containers {
				for _, m := range c.Mounts {
					mounts[m.Target] = m.Type + " " + m.Source
				}
			}
			name := namePrefix + s.ID()
			want := map[string]string{"/tmp": "tmpfs ", "/home/agent": "tmpfs ", "/run": "tmpfs "}
			if plain {
				want["/tmp"], want["/home/agent"] = "volume "+name+tmpSuffix, "volume "+name+homeSuffix
				for _, suffix := range []string{tmpSuffix, homeSuffix} {
					v := d.volumes[name+suffix]
					if v.Options["type"] != "tmpfs" || v.Labels[LabelSession] != s.ID() || v.Options["o"] == "" {
						t.Errorf("volume %s: %+v; want one in memory, of the session", suffix, v)
					}
				}
			}
			for at := range want {
				if mounts[at] != want[at] {
					t.Errorf("plain tmpfs %t: %s is %q; want %q", plain, at, mounts[at], want[at])
				}
			}
			if err := errors.Join(s.Stop(t.Context()), e.Close(t.Context())); err != nil {
				t.Error(err)
			}
			if left := d.left(); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// Nothing is left where the second volume cannot be made.
func TestStartInVolumesFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDocker(t)
		d.info.PlainTmpfs = true
		e := New(d, &fakeImages{}, Options{})
		made := 0
		d.fail = func(call string) error {
			if call == "volume" {
				if made++; made > 3 { // workspace, jobs, and one of the two
					return errTest
				}
			}
			return nil
		}
		if _, err := e.Start(t.Context(), Spec{}); !errors.Is(err, errTest) {
			t.Errorf("Start() = %v; want %v", err, errTest)
		}
		if left := d.left(); len(left) > 0 || slices.Contains(d.took(), "create") {
			t.Errorf("left: %q", left)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestJobsVolumeIsRoots(t *testing.T) {
	t.Parallel()
	d := newFakeDocker(t)
	e := New(d, &fakeImages{}, Options{})
	if err := e.makeJobsVolume(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if v := d.volumes[namePrefix+"s"+jobsSuffix]; !v.Root || len(v.Options) > 0 {
		t.Errorf("the volume of jobs: %+v; want it uid 0's, and on disk", v)
	}
}
