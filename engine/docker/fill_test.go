package docker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

var testContent = content{volume: "v", dir: "/d", role: roleRunner}

func filled(t *testing.T, eng *filling) (string, error) {
	t.Helper()
	return over(eng).filledVolume(t.Context(), testContent, func(context.Context) (engine.ImageID, error) {
		eng.say("image")
		return "sha256:1", nil
	})
}

// whole is how a volume is filled: the mark goes first and comes last, so that no process
// takes a volume for filled that is not.
var whole = []string{"image", "remove v-filled", "remove v", "create v", "container v-filler", "create v-filled", "remove container v-filler"}

func TestFilledVolume(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		set  func(*filling)
		want []string
	}{
		{"missing", func(*filling) {}, whole},
		{"there", func(f *filling) { f.filled("v", roleRunner, 0) }, nil},
		{"without its mark", func(f *filling) { f.volumes["v"] = Volume{Name: "v"} }, whole},
		{"a mark alone", func(f *filling) { f.volumes["v-filled"] = Volume{Name: "v-filled"} }, whole},
		{"used and without its mark", func(f *filling) {
			f.volumes["v"] = Volume{Name: "v"}
			f.Used = []string{"v"}
		}, whole},
		{"another process has just filled it", func(f *filling) { f.taken = 1 }, whole},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			eng := newFilling()
			tt.set(eng)
			volume, err := filled(t, eng)
			if volume != "v" || err != nil || !slices.Equal(eng.calls, tt.want) {
				t.Errorf("filledVolume() = %q, %v by %q; want v by %q", volume, err, eng.calls, tt.want)
			}
			if ready, err := over(eng).filled(t.Context(), testContent); !ready || err != nil || len(eng.containers) > 0 {
				t.Errorf("filled() = %v, %v with the containers %v; want true, and none", ready, err, eng.containers)
			}
		})
	}
}

// A process that finds the lock taken waits until the volume is filled, and does not wait
// for ever.
func TestFilledVolumeWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		eng := newFilling()
		eng.taken, eng.hidden = 3, true
		began := time.Now()
		if _, err := filled(t, eng); err != nil {
			t.Errorf("filledVolume() = %v; want nil", err)
		}
		if took := time.Since(began); took != 3*fillPoll {
			t.Errorf("filledVolume() took %v; want %v", took, 3*fillPoll)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		eng := newFilling()
		eng.taken, eng.hidden = 1, true
		eng.onTaken = func() { eng.filled("v", roleRunner, 0) } // the other process is done
		if _, err := filled(t, eng); err != nil || !slices.Equal(eng.calls, whole[:5]) {
			t.Errorf("filledVolume() = %v by %q; want %q, and the other's volume", err, eng.calls, whole[:5])
		}
	})
	synctest.Test(t, func(t *testing.T) {
		eng := newFilling()
		eng.taken, eng.hidden = 1<<30, true
		began := time.Now()
		_, err := filled(t, eng)
		if err == nil || err.Error() != "volume v was not filled within 2m0s" {
			t.Errorf("filledVolume() = %v; want what was not done in time", err)
		}
		if took := time.Since(began); took < fillPatience || took > fillPatience+fillPoll {
			t.Errorf("filledVolume() took %v; want %v", took, fillPatience)
		}
	})
}

func TestFilledVolumeFails(t *testing.T) {
	t.Parallel()
	eng := newFilling()
	eng.makeErr = errors.New("disk full")
	_, err := filled(t, eng)
	if err == nil || err.Error() != "runner volume: disk full" {
		t.Errorf("filledVolume() = %v; want runner volume: disk full", err)
	}
	if _, marked := eng.volumes["v-filled"]; marked {
		t.Error("a volume that was not filled has a mark")
	}
	// A container that has the lock's name and another volume is not ours.
	eng = newFilling()
	eng.taken, eng.hidden = 1, true
	eng.containers["v-filler"] = ContainerState{Name: "v-filler", Labels: roleLabels(roleFiller), Mounts: []Mount{{Type: "volume", Source: "other"}}}
	if err := over(eng).fillOnce(t.Context(), testContent, "sha256:1"); !errors.Is(err, engine.ErrConflict) {
		t.Errorf("fillOnce() = %v; want a conflict", err)
	}
}

func TestFills(t *testing.T) {
	t.Parallel()
	ours := roleLabels(roleFiller)
	for _, tt := range []struct {
		name string
		c    ContainerState
		want bool
	}{
		{"a filler", ContainerState{Labels: ours, Mounts: []Mount{{Type: "bind", Source: "v"}, {Type: "volume", Source: "v"}}}, true},
		{"of another volume", ContainerState{Labels: ours, Mounts: []Mount{{Type: "volume", Source: "w"}}}, false},
		{"a directory of that name", ContainerState{Labels: ours, Mounts: []Mount{{Type: "bind", Source: "v"}}}, false},
		{"without the label", ContainerState{Mounts: []Mount{{Type: "volume", Source: "v"}}}, false},
		{"with another", ContainerState{Labels: roleLabels("image"), Mounts: []Mount{{Type: "volume", Source: "v"}}}, false},
	} {
		if got := fills(tt.c, "v"); got != tt.want {
			t.Errorf("%s: fills() = %v; want %v", tt.name, got, tt.want)
		}
	}
}

var (
	testUser  = engine.Account{UID: 1000, GID: 1001, Name: "agent", Home: "/home/agent"}
	testImage = engine.Image{ID: engine.ImageID("sha256:" + strings.Repeat("ab", 32)), Arch: "amd64"}
)

const testAccounts = "sandboxbash-accounts-abababababab-1000-1001-e2673cd0" // and the hash of agent:/home/agent

// accounts is an engine with an image and the runner's volume.
func accounts() (*filling, *copier) {
	eng := newFilling()
	eng.Put("app:1", testImage)
	eng.filled(runnerPrefix+"0a", roleRunner, 0)
	return eng, over(eng)
}

// The runner's exit code says what has come of the copy, and the mark remembers it.
func TestAccounts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, volume, note string
		code               int
		err                string
	}{
		{"copied", testAccounts, "", 0, ""},
		{"not needed", "", "", wire.ExitAccountsThere, ""},
		{"links", "", "is a link or not a plain file", wire.ExitAccountsOdd, ""},
		{"too large", "", "is larger than what is copied", wire.ExitAccountsLarge, ""},
		{"the runner fails", "", "", 1, "accounts volume: copying the image's /etc ended with 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			eng, r := accounts()
			eng.exitCode = tt.code
			for _, round := range []string{"first", "again"} {
				eng.calls = nil
				volume, note, err := r.Accounts(t.Context(), testImage, testUser)
				if (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
					t.Fatalf("%s: Accounts() = %v; want %q", round, err, tt.err)
				}
				if volume != tt.volume || (note == "") != (tt.note == "") || !strings.Contains(note, tt.note) {
					t.Errorf("%s: Accounts() = %q, %q; want %q, %q", round, volume, note, tt.volume, tt.note)
				}
				if round == "again" && err == nil && len(eng.calls) > 0 {
					t.Errorf("Accounts() of what the mark knows calls %q; want nothing", eng.calls)
				}
			}
			if _, there := eng.volumes[testAccounts]; there != (tt.volume != "") || len(eng.containers) > 0 {
				t.Errorf("the volume is there: %v; containers %v; want %v, and none", there, eng.containers, tt.volume != "")
			}
		})
	}
}

// A mark and its volume belong together: where one of the two was removed, the copy is
// made again.
func TestAccountsState(t *testing.T) {
	t.Parallel()
	mark := func(state string) Volume {
		return Volume{Name: testAccounts + markSuffix, Labels: map[string]string{labelAccounts: state}}
	}
	for _, tt := range []struct {
		name   string
		volume bool
		mark   string // "" is none
		want   string
	}{
		{"nothing", false, "", ""},
		{"made", true, accountsMade, accountsMade},
		{"its volume is gone", false, accountsMade, ""},
		{"its mark is gone", true, "", ""},
		{"not needed", false, accountsNeeded, accountsNeeded},
		{"not needed, and yet there", true, accountsNeeded, ""},
	} {
		eng, r := accounts()
		if tt.volume {
			eng.volumes[testAccounts] = Volume{Name: testAccounts}
		}
		if tt.mark != "" {
			eng.volumes[testAccounts+markSuffix] = mark(tt.mark)
		}
		if got, err := r.accountsState(t.Context(), accountsContent(testImage.ID, testUser)); got != tt.want || err != nil {
			t.Errorf("%s: accountsState() = %q, %v; want %q", tt.name, got, err, tt.want)
		}
	}
}

// Volumes of images that are gone go, and no others.
func TestCollectAccounts(t *testing.T) {
	t.Parallel()
	eng, r := accounts()
	gone := accountsPrefix + strings.Repeat("c", 12) + "-1-1"
	used := accountsPrefix + strings.Repeat("d", 12) + "-1-1"
	for _, name := range []string{gone, gone + markSuffix, used, testAccounts, "mine"} {
		eng.volumes[name] = Volume{Name: name}
	}
	eng.Used = []string{used}
	if err := r.collectAccounts(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{gone: false, gone + markSuffix: false, used: true, testAccounts: true, "mine": true} {
		if _, there := eng.volumes[name]; there != want {
			t.Errorf("%s is there: %v; want %v", name, there, want)
		}
	}
}

// The programs of images that are gone go. A volume in use is an error.
func TestCollectPrograms(t *testing.T) {
	t.Parallel()
	eng := newFilling()
	eng.Put("there", engine.Image{ID: engine.ImageID("sha256:" + strings.Repeat("a", 64))})
	there, gone, used := programsPrefix+strings.Repeat("a", 12), programsPrefix+strings.Repeat("c", 12), programsPrefix+strings.Repeat("d", 12)
	for _, name := range []string{there, gone, used} {
		eng.filled(name, rolePrograms, 0)
	}
	eng.Used = []string{used}
	if err := over(eng).collect(t.Context(), programsPrefix); !errors.Is(err, engine.ErrConflict) {
		t.Errorf("collect() = %v; want a conflict", err)
	}
	for name, want := range map[string]bool{there: true, there + markSuffix: true, gone: false, gone + markSuffix: false, used: true} {
		if _, ok := eng.volumes[name]; ok != want {
			t.Errorf("%s is there: %v; want %v", name, ok, want)
		}
	}
}

// The container that copies accounts can do no more than that.
func TestAccountsShape(t *testing.T) {
	t.Parallel()
	shape := accountsShape(accountsContent(testImage.ID, testUser), testImage.ID, "runner-volume", testUser)
	want := []string{engine.RunnerPath, "accounts", "/etc", accountsMount, "1000", "1001", "agent", "/home/agent"}
	p := shape.Spec.Process
	if !slices.Equal(p.Args, want) || !p.NoNewPrivileges || !shape.Spec.Root.Readonly || shape.Network != "none" || p.Capabilities.Effective != nil {
		t.Errorf("the container runs %q, %+v; want %q, read-only, without network and privileges", p.Args, shape.Spec, want)
	}
	for _, m := range shape.Spec.Mounts {
		if !slices.Contains(m.Options, "nocopy") || (m.Source == "runner-volume") != slices.Contains(m.Options, "ro") {
			t.Errorf("mount %+v; want nocopy, and the runner's read-only", m)
		}
	}
}

func TestReleaseWorkspace(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		c    ContainerState
		gone bool
	}{
		{"one that has ended", ContainerState{Status: "exited", Labels: roleLabels(roleFiller), Mounts: []Mount{{Type: "volume", Source: "w"}}}, true},
		{"one that still works", ContainerState{Status: "running", Labels: roleLabels(roleFiller), Mounts: []Mount{{Type: "volume", Source: "w"}}}, true},
		{"another's", ContainerState{Status: "exited", Mounts: []Mount{{Type: "volume", Source: "w"}}}, false},
	} {
		for _, suffix := range []string{fillerSuffix, clearerSuffix} {
			eng := newFilling()
			tt.c.Name, tt.c.ID = "w"+suffix, ContainerID("w"+suffix)
			eng.containers["w"+suffix] = tt.c
			err := over(eng).ReleaseWorkspace(t.Context(), "w")
			if _, there := eng.containers["w"+suffix]; err != nil || there == tt.gone {
				t.Errorf("%s, %s: ReleaseWorkspace() = %v, and the container is there: %v; want %v", tt.name, suffix, err, there, !tt.gone)
			}
		}
	}
}
