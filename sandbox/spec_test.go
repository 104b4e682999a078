package sandbox

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/engine"
)

func TestParseWorkspace(t *testing.T) {
	t.Parallel()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		text string
		want Workspace
		err  string // part of it; "" is none
	}{
		{"volume", Workspace{Kind: WorkspaceVolume, Target: "/workspace"}, ""},
		{"volume:x", Workspace{}, "takes no options"},
		{"copy:/a", Workspace{Kind: WorkspaceCopy, Dir: "/a", Target: "/workspace"}, ""},
		{"copy:.", Workspace{Kind: WorkspaceCopy, Dir: here, Target: "/workspace"}, ""},
		{"copy:/a:ro", Workspace{Kind: WorkspaceCopy, Dir: "/a:ro", Target: "/workspace"}, ""},
		{"copy:", Workspace{}, "directory is missing"},
		{"copy", Workspace{}, "directory is missing"},
		{"bind:/a", Workspace{Kind: WorkspaceBind, Dir: "/a", Target: "/a"}, ""},
		{"bind:/a/../b", Workspace{Kind: WorkspaceBind, Dir: "/b", Target: "/b"}, ""},
		{"bind:sub", Workspace{Kind: WorkspaceBind, Dir: filepath.Join(here, "sub"), Target: filepath.Join(here, "sub")}, ""},
		{"bind:/a:ro", Workspace{Kind: WorkspaceBind, Dir: "/a", Target: "/a", ReadOnly: true}, ""},
		{"bind:/a:at=/w", Workspace{Kind: WorkspaceBind, Dir: "/a", Target: "/w"}, ""},
		{"bind:/a:ro:at=/w/x/", Workspace{Kind: WorkspaceBind, Dir: "/a", Target: "/w/x", ReadOnly: true}, ""},
		{"bind:/a:at=/w:ro", Workspace{Kind: WorkspaceBind, Dir: "/a", Target: "/w", ReadOnly: true}, ""},
		{"bind:/with:colon", Workspace{Kind: WorkspaceBind, Dir: "/with:colon", Target: "/with:colon"}, ""},
		{"bind:/a:at=w", Workspace{}, "absolute path below /"},
		{"bind:/a:at=/", Workspace{}, "absolute path below /"},
		{"bind:/a:at=/..", Workspace{}, "absolute path below /"},
		{"bind::ro", Workspace{}, "directory is missing"},
		{"bind:", Workspace{}, "directory is missing"},
		{"", Workspace{}, "it can be"},
		{"Copy:/a", Workspace{}, "it can be"},
		{"/a", Workspace{}, "it can be"},
	} {
		got, err := ParseWorkspace(tt.text)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("ParseWorkspace(%q) = %+v, %v; want an error with %q", tt.text, got, err, tt.err)
			}
			continue
		}
		if err != nil || got != tt.want {
			t.Errorf("ParseWorkspace(%q) = %+v, %v; want %+v", tt.text, got, err, tt.want)
		}
	}
}

func TestParseUser(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		want User
		ok   bool
	}{
		{"1000", User{1000, 1000}, true},
		{"1000:50", User{1000, 50}, true},
		{"0:0", User{}, true},
		{"2147483647", User{math.MaxInt32, math.MaxInt32}, true},
		{"2147483648", User{}, false}, // beyond what engines and kernels agree on
		{"4294967295", User{}, false}, // (uid_t)-1 means "leave as it is"
		{"", User{}, false},
		{"1000:", User{}, false},
		{":1000", User{}, false},
		{"-1", User{}, false},
		{"+1", User{}, false},
		{"1 ", User{}, false},
		{"0x10", User{}, false},
		{"1:2:3", User{}, false},
		{"root", User{}, false},
	} {
		got, err := ParseUser(tt.text)
		if (err == nil) != tt.ok || err == nil && *got != tt.want {
			t.Errorf("ParseUser(%q) = %v, %v; want %v, ok %t", tt.text, got, err, tt.want, tt.ok)
		}
	}
}

func TestNormalize(t *testing.T) {
	t.Parallel()
	mine := t.TempDir()
	owner, err := directoryOwner(mine)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(mine, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	volume := Workspace{Kind: WorkspaceVolume, Target: "/workspace"}
	for _, tt := range []struct {
		name string
		spec Spec
		want Spec
		err  string
	}{
		{"zero", Spec{}, Spec{
			Profile: Strict, Workspace: volume, User: &User{1000, 1000}, Network: NetworkNone, Lease: 15 * time.Second,
			Limits: Limits{Memory: 2 << 30, Pids: 512},
		}, ""},
		{"dev", Spec{Profile: Dev, Network: NetworkBridge, Lease: time.Hour}, Spec{
			Profile: Dev, Workspace: volume, User: &User{}, Network: NetworkBridge, Lease: time.Hour,
			Limits: Limits{Memory: 2 << 30, Pids: 4096},
		}, ""},
		{"memory in pages", Spec{Limits: Limits{Memory: 10<<20 + 1, Pids: 64, CPUs: 0.5, Disk: 7}}, Spec{
			Profile: Strict, Workspace: volume, User: &User{1000, 1000}, Network: NetworkNone, Lease: 15 * time.Second,
			Limits: Limits{Memory: 10 << 20, Pids: 64, CPUs: 0.5, Disk: 7},
		}, ""},
		{"copy keeps the profile's user", Spec{Workspace: Workspace{Kind: WorkspaceCopy, Dir: mine}}, Spec{
			Profile: Strict, Workspace: Workspace{Kind: WorkspaceCopy, Dir: mine, Target: "/workspace"}, User: &User{1000, 1000},
			Network: NetworkNone, Lease: 15 * time.Second, Limits: Limits{Memory: 2 << 30, Pids: 512},
		}, ""},
		{"profile", Spec{Profile: "lax"}, Spec{}, "strict or dev"},
		{"network", Spec{Network: "host"}, Spec{}, "none or bridge"},
		{"lease", Spec{Lease: time.Millisecond}, Spec{}, "at least 1s"},
		{"negative lease", Spec{Lease: -time.Hour}, Spec{}, "at least 1s"},
		{"memory", Spec{Limits: Limits{Memory: 1 << 20}}, Spec{}, "at least 6291456"},
		{"negative memory", Spec{Limits: Limits{Memory: -1}}, Spec{}, "at least"},
		{"pids", Spec{Limits: Limits{Pids: 63}}, Spec{}, "at least 64"},
		{"negative pids", Spec{Limits: Limits{Pids: -1}}, Spec{}, "at least 64"},
		{"cpus", Spec{Limits: Limits{CPUs: -1}}, Spec{}, "positive"},
		{"no number of cpus", Spec{Limits: Limits{CPUs: math.NaN()}}, Spec{}, "positive"},
		{"endless cpus", Spec{Limits: Limits{CPUs: math.Inf(1)}}, Spec{}, "positive"},
		{"disk", Spec{Limits: Limits{Disk: -1}}, Spec{}, "negative"},
		{"tiny home", Spec{Limits: Limits{Home: 1<<20 - 1}}, Spec{}, "home 1048575 bytes: it must be at least 1048576"},
		{"negative tmp", Spec{Limits: Limits{Tmp: -1}}, Spec{}, "tmp -1 bytes: it must be at least"},
		{"tmp above the memory", Spec{Limits: Limits{Memory: 1 << 30, Tmp: 1<<30 + 1}}, Spec{}, "count as memory"},
		{"root in strict", Spec{User: &User{0, 0}}, Spec{}, "does not run commands as uid or gid 0"},
		{"root's group in strict", Spec{User: &User{1000, 0}}, Spec{}, "uid or gid 0"},
		{"another user in dev", Spec{Profile: Dev, User: &User{1000, 1000}}, Spec{}, "profile dev runs commands as uid 0"},
		{"no such directory", Spec{Workspace: Workspace{Kind: WorkspaceCopy, Dir: mine + "/none"}}, Spec{}, "no such file"},
		{"a file", Spec{Workspace: Workspace{Kind: WorkspaceBind, Dir: file}}, Spec{}, "not a directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := tt.spec.Normalize()
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("Normalize(%+v) = %v; want an error with %q", tt.spec, err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatalf("Normalize(%+v) = %v", tt.spec, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Normalize(%+v) (-want +got):\n%s", tt.spec, diff)
			}
		})
	}
	t.Run("bind follows the owner", func(t *testing.T) {
		t.Parallel()
		bind := Workspace{Kind: WorkspaceBind, Dir: mine, Target: mine}
		got, err := Spec{Workspace: bind}.Normalize()
		if owner.UID == 0 {
			hint, about := HintOf(err)
			if err == nil || !strings.Contains(err.Error(), "belongs to root") || hint != HintOwner || about != mine {
				t.Errorf("Normalize(bind of root's) = %v, hint %q of %q; want a refusal that says what would help with %s", err, hint, about, mine)
			}
		} else if err != nil || *got.User != *owner {
			t.Errorf("Normalize(bind) = %+v, %v; want user %v", got.User, err, owner)
		}
		if got, err := (Spec{Workspace: bind, User: &User{77, 78}}).Normalize(); err != nil || *got.User != (User{77, 78}) {
			t.Errorf("Normalize(bind, another user) = %+v, %v; want 77:78", got.User, err)
		}
	})
}

func TestFit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		profile    Profile
		cpus       float64
		info       engine.Info
		wantCPUs   float64
		wantRefuse bool
	}{
		{"default", Strict, 0, engine.Info{CPUs: 8}, 2, false},
		{"a small machine", Strict, 0, engine.Info{CPUs: 1}, 1, false},
		{"an unknown machine", Strict, 0, engine.Info{}, 1, false},
		{"as asked for", Strict, 1.5, engine.Info{CPUs: 8}, 1.5, false},
		{"memory is not enforced", Strict, 1, engine.Info{Unenforced: []string{"memory"}}, 1, true},
		{"pids are not enforced", Strict, 1, engine.Info{Unenforced: []string{"swap", "pids"}}, 1, true},
		{"cpus are not enforced", Strict, 1, engine.Info{Unenforced: []string{"cpus"}}, 1, true},
		{"swap is not enforced", Strict, 1, engine.Info{Unenforced: []string{"swap"}}, 1, false},
		{"nothing is, in dev", Dev, 1, engine.Info{Unenforced: []string{"memory", "pids", "cpus"}}, 1, false},
	} {
		spec := Spec{Profile: tt.profile, Limits: Limits{CPUs: tt.cpus}}
		err := spec.fit(tt.info)
		if (err != nil) != tt.wantRefuse || spec.Limits.CPUs != tt.wantCPUs {
			t.Errorf("%s: fit() = %v, %v CPUs; want refusal %t, %v CPUs", tt.name, err, spec.Limits.CPUs, tt.wantRefuse, tt.wantCPUs)
		}
	}
}

func TestCommandPath(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		env  []string
		want string // behind the standard directories
	}{
		{"none", nil, ""},
		{"other variables", []string{"XPATH=/x", "path=/y", "PATH"}, ""},
		{"adds", []string{"PATH=/opt/tools/bin:/usr/bin:/go/bin"}, ":/opt/tools/bin:/go/bin"},
		{"never comes before", []string{"PATH=/evil:/bin"}, ":/evil"},
		{"relative and empty", []string{"PATH=:.:bin:/a:"}, ":/a"},
		{"not clean", []string{"PATH=/a/../b:/c/:/d//e:/"}, ":/"},
		{"twice", []string{"PATH=/a:/a", "PATH=/a:/b"}, ":/a:/b"},
		{"huge", []string{"PATH=" + strings.Repeat("/x", 4096)}, ""},
	} {
		if got, want := commandPath(tt.env), standardPath+tt.want; got != want {
			t.Errorf("%s: commandPath(…) = %q; want %q", tt.name, got, want)
		}
	}
}

func TestOverlay(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name             string
		base, more, want []string
	}{
		{"nothing", nil, nil, nil},
		{"added", []string{"A=1"}, []string{"B=2"}, []string{"A=1", "B=2"}},
		{"replaced in place", []string{"A=1", "B=2"}, []string{"A=3"}, []string{"A=3", "B=2"}},
		{"the last counts", []string{"A=1"}, []string{"A=2", "A=3"}, []string{"A=3"}},
		{"empty value", []string{"A=1"}, []string{"A="}, []string{"A="}},
		{"equals sign in the value", nil, []string{"A=b=c", "A=d"}, []string{"A=d"}},
		{"prefix is another name", []string{"AB=1"}, []string{"A=2"}, []string{"AB=1", "A=2"}},
	} {
		base := slices.Clone(tt.base)
		if got := overlay(tt.base, tt.more); !slices.Equal(got, tt.want) {
			t.Errorf("%s: overlay(%q, %q) = %q; want %q", tt.name, tt.base, tt.more, got, tt.want)
		}
		if !slices.Equal(base, tt.base) {
			t.Errorf("%s: overlay changed its argument to %q", tt.name, tt.base)
		}
	}
}
