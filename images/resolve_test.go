package images

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/enginetest"
)

func resolver(t *testing.T, eng Engine) *Resolver {
	t.Helper()
	r, err := New(eng, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestParseRef(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("ab", 32)
	tests := []struct {
		ref  string
		want target
		ok   bool
	}{
		{"debian", target{name: "debian:latest"}, true},
		{"debian:stable-slim", target{name: "debian:stable-slim"}, true},
		{"docker.io/library/debian:1", target{name: "debian:1"}, true},
		{"localhost:5000/a/b", target{name: "localhost:5000/a/b:latest"}, true},
		{"debian:1@" + digest, target{name: "debian@" + digest}, true},
		{digest, target{name: digest, byID: true}, true},
		{"abcdef012345", target{name: "abcdef012345", byID: true}, true},
		{"abcdef01234", target{name: "abcdef01234:latest"}, true},
		{"host", target{name: "host"}, true},
		{"", target{}, false},
		{"Debian", target{}, false},
		{"a b", target{}, false},
		{"-v", target{}, false},
		{"a:b:c", target{}, false},
		{"../etc", target{}, false},
		{"a@sha256:12", target{}, false},
	}
	for _, tt := range tests {
		got, err := parseRef(tt.ref)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("parseRef(%q) = %+v, %v; want %+v, ok %v", tt.ref, got, err, tt.want, tt.ok)
		}
		if _, is := errors.AsType[*InvalidRefError](err); err != nil && !is {
			t.Errorf("parseRef(%q) = %T; want *InvalidRefError", tt.ref, err)
		}
	}
}

func TestReservedNames(t *testing.T) {
	t.Parallel()
	for _, ref := range []string{"sandboxbash/runner:x", "docker.io/sandboxbash/workspace:1-1", "sandboxbash/runner", "host", "abcdef012345"} {
		if got, err := makeRef(ref); err == nil {
			t.Errorf("makeRef(%q) = %q, nil; want an error", ref, got)
		}
	}
	eng := &fakeEngine{}
	if _, err := resolver(t, eng).Resolve(t.Context(), "sandboxbash/runner:x", nil); err == nil || eng.pulls.Load() != 0 {
		t.Errorf("Resolve(a reserved name) = %v after %d pulls; want an error and none", err, eng.pulls.Load())
	}
}

func TestResolveOrder(t *testing.T) {
	t.Parallel()
	id := "sha256:" + strings.Repeat("0", 64)
	tests := []struct {
		name, ref string
		eng       *fakeEngine
		pulls     int32
		wantErr   string // parts, joined by "|"; "" is success
	}{
		{"present", "a:1", new(fakeEngine).with("a:1", engine.Image{ID: "sha256:1", OS: "linux"}), 0, ""},
		{"pulled", "a:1", &fakeEngine{}, 1, ""},
		{"neither", "a:1", &fakeEngine{pullErr: errors.New("manifest\nunknown")}, 1, `image "a:1" is not on the engine|manifest unknown|put it there, or use the image host`},
		{"engine gone", "a:1", &fakeEngine{ImageStore: enginetest.ImageStore{Err: engine.ErrUnreachable}}, 0, "unreachable"},
		{"unknown ID", id, &fakeEngine{}, 0, "cannot be pulled|put it there"},
		{"known ID", id, new(fakeEngine).with(id, engine.Image{ID: engine.ImageID(id)}), 0, ""},
		{"name like an ID", "abcdef012345", new(fakeEngine).with("abcdef012345", engine.Image{ID: "sha256:1"}), 0, "cannot be pulled"},
		{"windows", "a:1", new(fakeEngine).with("a:1", engine.Image{ID: "sha256:1", OS: "windows"}), 0, "for windows"},
		{"invalid", "A", &fakeEngine{}, 0, "not a valid reference"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := resolver(t, tt.eng).Resolve(t.Context(), tt.ref, nil)
			if (err == nil) != (tt.wantErr == "") {
				t.Fatalf("Resolve(%q) = %v; want %q", tt.ref, err, tt.wantErr)
			}
			for part := range strings.SplitSeq(tt.wantErr, "|") {
				if err != nil && !strings.Contains(err.Error(), part) {
					t.Errorf("Resolve(%q) = %q; want it to say %q", tt.ref, err, part)
				}
			}
			if tt.eng.pulls.Load() != tt.pulls {
				t.Errorf("Resolve(%q) pulled %d times; want %d", tt.ref, tt.eng.pulls.Load(), tt.pulls)
			}
		})
	}
}

func TestPullIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		eng := &fakeEngine{pullTime: time.Minute}
		r := resolver(t, eng)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				var seen int
				_, err := r.Resolve(t.Context(), "a:1", func(engine.Progress) { seen++ })
				if err != nil || seen != 1 {
					t.Errorf("Resolve() = %v after %d progress calls; want nil after 1", err, seen)
				}
			})
		}
		leaver, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Resolve(leaver, "a:1", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Resolve() of one who leaves = %v; want its deadline", err)
		}
		wg.Wait()
		if eng.pulls.Load() != 1 {
			t.Errorf("%d pulls; want 1", eng.pulls.Load())
		}
	})
}

func TestPullEndsWithItsLastWaiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		eng := &fakeEngine{pullTime: time.Hour}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := resolver(t, eng).Resolve(ctx, "a:1", nil)
		if elapsed := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || elapsed != time.Second {
			t.Errorf("Resolve() = %v after %v; want its deadline after 1s", err, elapsed)
		}
	})
}

// Scenario 71: a pull that says nothing any more ends; one that takes long does not.
func TestPullSilence(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		eng  *fakeEngine
		took time.Duration
		ok   bool
	}{
		{"silent at once", &fakeEngine{pullTime: time.Hour, silent: true}, pullSilence, false},
		{"silent after a word", &fakeEngine{pullTime: time.Hour}, pullSilence, false},
		{"slow", &fakeEngine{pullTime: pullSilence - time.Second}, pullSilence - time.Second, true},
		{"slow and alive", &fakeEngine{pullTime: time.Hour, tells: pullSilence - time.Second}, time.Hour, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				_, err := resolver(t, tt.eng).Resolve(t.Context(), "a:1", nil)
				unresolved, _ := errors.AsType[*UnresolvedError](err)
				if tt.ok && err != nil || !tt.ok && (unresolved == nil || !errors.Is(err, errPullSilent)) {
					t.Errorf("Resolve() = %v; want it pulled: %t", err, tt.ok)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("Resolve() took %v; want %v", took, tt.took)
				}
			})
		})
	}
}

// What an engine refuses as a name is the user's to correct, and what it has not
// pulled although it says so is missing.
func TestResolveRefused(t *testing.T) {
	t.Parallel()
	refusal := &engine.Error{Op: "inspect image", Kind: engine.ErrInvalid, Err: errors.New("must be lowercase")}
	_, err := resolver(t, &fakeEngine{ImageStore: enginetest.ImageStore{Err: refusal}}).Resolve(t.Context(), "UPPER/case", nil)
	if bad, ok := errors.AsType[*InvalidRefError](err); !ok || !strings.Contains(bad.Reason, "must be lowercase") {
		t.Errorf("Resolve(UPPER/case) = %v; want it refused as a name", err)
	}
	_, err = resolver(t, &fakeEngine{forgets: true}).Resolve(t.Context(), "a:1", nil)
	if _, ok := errors.AsType[*UnresolvedError](err); !ok {
		t.Errorf("Resolve() of what was not pulled = %v; want it unresolved", err)
	}
}

func TestResolveDefault(t *testing.T) {
	t.Parallel()
	host := &snapshot{tree: newTree(), hash: strings.Repeat("ab", 32)}
	tests := []struct {
		name string
		eng  *fakeEngine
		host bool // the snapshot stands in
		took time.Duration
	}{
		{"pulled", &fakeEngine{}, false, 0},
		{"slow but alive", &fakeEngine{pullTime: time.Minute}, false, time.Minute},
		{"refused", &fakeEngine{pullErr: errors.New("no such host")}, true, 0},
		{"no answer", &fakeEngine{pullTime: time.Hour, silent: true}, true, registryPatience},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tt.eng.Facts.Arch = runtime.GOARCH
				r := resolver(t, tt.eng)
				r.snapshot = func(context.Context, []string) (*snapshot, error) { return host, nil }
				start := time.Now()
				img, note, err := r.ResolveDefault(t.Context(), nil)
				if runtime.GOOS != "linux" && tt.host {
					if err == nil {
						t.Errorf("ResolveDefault() = %v; want a refusal off linux", img)
					}
					return
				}
				want := DefaultRef
				if tt.host {
					want = host.ref()
				}
				if err != nil || img.Refs[0] != want || (note != "") != tt.host || strings.Contains(note, "\n") {
					t.Errorf("ResolveDefault() = %v, %q, %v; want %s", img.Refs, note, err, want)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("ResolveDefault() took %v; want %v", took, tt.took)
				}
			})
		})
	}
}

func TestHostIsRefusedElsewhere(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ goos, goarch, arch, want string }{
		{"linux", "amd64", "amd64", ""},
		{"linux", "arm64", "amd64", "this machine is arm64 and the engine's is amd64"},
		{"darwin", "arm64", "arm64", "runs darwin"},
	} {
		err := canSnapshot(tt.goos, tt.goarch, engine.Info{Arch: tt.arch})
		if (err == nil) != (tt.want == "") {
			t.Errorf("canSnapshot(%s, %s, %s) = %v; want %q", tt.goos, tt.goarch, tt.arch, err, tt.want)
		}
		if err != nil && (!strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "put one on the engine")) {
			t.Errorf("canSnapshot(%s, %s, %s) = %q; want %q and the alternatives", tt.goos, tt.goarch, tt.arch, err, tt.want)
		}
	}
}

func TestRunnerArchitectures(t *testing.T) {
	t.Parallel()
	for arch, ok := range map[string]bool{"amd64": true, "arm64": true, "riscv64": false, "": false, "../x": false} {
		if _, err := embeddedRunner(arch); (err == nil) != ok {
			t.Errorf("embeddedRunner(%q) = %v; want ok %v", arch, err, ok)
		}
	}
}
