package docker

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/engine"
)

// owned are copies that note which volumes were given an owner.
type owned struct {
	*fakeCopies
	filled   []string
	busy     int // how many times another process works at it
	released int
}

func (o *owned) FillWorkspace(_ context.Context, volume string, _, _ uint32) error {
	if o.busy > 0 {
		o.busy--
		return &engine.Error{Op: "create container", Kind: engine.ErrConflict, Err: errors.New("the name is taken")}
	}
	if strings.HasPrefix(volume, cachePrefix) {
		o.filled = append(o.filled, volume)
	}
	return nil
}

func (o *owned) ReleaseWorkspace(context.Context, string) error {
	o.released++
	return nil
}

func withCaches() (*Engine, *fakeDocker, *owned) {
	e, d, c := fakeSessions()
	o := &owned{fakeCopies: c}
	e.copies = o
	return e, d, o
}

func hasMounts(mounts ...engine.Mount) func(*engine.Shape) {
	return func(s *engine.Shape) { s.Mounts = mounts }
}

// The first session makes a cache and gives it an owner; the next one finds it.
func TestCacheIsMadeOnce(t *testing.T) {
	t.Parallel()
	e, d, o := withCaches()
	npm := engine.Mount{Cache: "npm", Target: "/npm"}
	h := provisioned(t, e, hasMounts(npm, engine.Mount{Dir: "/data", Target: "/data", ReadOnly: true}))
	var got []string
	for _, m := range d.containers[ContainerID(h.Ref)].Mounts {
		if m.Target == "/npm" || m.Target == "/data" {
			got = append(got, m.Type+" "+m.Source+" "+m.Target)
		}
	}
	slices.Sort(got)
	if want := []string{"bind /data /data", "volume sandboxbash-cache-npm /npm"}; !slices.Equal(got, want) {
		t.Errorf("the container's mounts are %q; want %q", got, want)
	}
	want := map[string]string{labelRole: roleCache, labelCache: "npm", labelCacheUID: "1000"}
	if got := d.volumes["sandboxbash-cache-npm"].Labels; !maps.Equal(got, want) {
		t.Errorf("the cache's labels are %q; want %q", got, want)
	}
	if err := e.Remove(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	h = provisioned(t, e, hasMounts(engine.Mount{Cache: "npm", Target: "/npm", ReadOnly: true}))
	if !slices.Equal(o.filled, []string{"sandboxbash-cache-npm"}) {
		t.Errorf("%q were given an owner; want the cache once", o.filled)
	}
	if err := e.RemoveCache(t.Context(), "npm"); !errors.Is(err, engine.ErrConflict) {
		t.Errorf("RemoveCache() of a cache in use = %v; want a conflict", err)
	}
	if err := e.Remove(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if err := e.RemoveCache(t.Context(), "npm"); err != nil {
		t.Errorf("RemoveCache() = %v", err)
	}
	for name := range d.volumes {
		if strings.Contains(name, "npm") {
			t.Errorf("RemoveCache() left %s", name)
		}
	}
	if err := e.RemoveCache(t.Context(), "npm"); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("RemoveCache() of nothing = %v; want that it is not found", err)
	}
}

func TestCacheRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		mount  engine.Mount
		volume Volume // that is there
		want   string
	}{
		{"another uid", engine.Mount{Cache: "c", Target: "/c"}, Volume{Labels: map[string]string{labelRole: roleCache, labelCache: "c", labelCacheUID: "7"}}, "it belongs to uid 7, and the commands of this session run as uid 1000"},
		{"another program's", engine.Mount{Cache: "c", Target: "/c"}, Volume{Labels: map[string]string{"a": "b"}}, "was not made by this program"},
		{"labels of another cache", engine.Mount{Cache: "c", Target: "/c"}, Volume{Labels: map[string]string{labelRole: roleCache, labelCache: "d", labelCacheUID: "1000"}}, "was not made by this program"},
		{"read-only, and not there", engine.Mount{Cache: "other", Target: "/c", ReadOnly: true}, Volume{}, "it does not exist, and a session that only reads it would find nothing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e, d, o := withCaches()
			tt.volume.Name = cachePrefix + "c"
			d.volumes[tt.volume.Name] = tt.volume
			_, _, err := e.Provision(t.Context(), session(hasMounts(tt.mount)))
			if _, ok := errors.AsType[*engine.CacheError](err); !ok || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Provision() = %v; want %q", err, tt.want)
			}
			if left := d.left(); !slices.Equal(left, []string{"volume " + tt.volume.Name}) || len(o.filled) > 0 {
				t.Errorf("Provision() left %q, and gave %q an owner; want what was there", left, o.filled)
			}
		})
	}
}

// A cache that is removed between its making and the container's is not replaced by an empty volume of root's.
func TestCacheRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	e, d, _ := withCaches()
	d.fail = func(call string) error {
		if call == "create" {
			d.mu.Lock()
			d.volumes["sandboxbash-cache-c"] = Volume{Name: "sandboxbash-cache-c"} // what an engine makes
			d.mu.Unlock()
		}
		return nil
	}
	_, _, err := e.Provision(t.Context(), session(hasMounts(engine.Mount{Cache: "c", Target: "/c"})))
	if _, ok := errors.AsType[*engine.CacheError](err); !ok || !strings.Contains(err.Error(), "it was removed while the session was being started") {
		t.Errorf("Provision() = %v; want that the cache was removed", err)
	}
	for _, name := range d.left() {
		if name == "volume sandboxbash-cache-c" {
			t.Errorf("Provision() left %q", d.left())
		}
	}
}

// A caller waits for the process that gives the cache its owner, and finishes the work of one that has died.
func TestCacheOwnedByAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, d, o := withCaches()
		o.busy = 3
		if err := e.makeCache(t.Context(), engine.Mount{Cache: "c", Target: "/c"}, engine.Account{UID: 5, GID: 5}); err != nil || o.released > 0 {
			t.Errorf("makeCache() = %v, after %d releases; want none", err, o.released)
		}
		if c, err := e.cache(t.Context(), "c"); err != nil || c.UID != 5 {
			t.Errorf("cache() = %+v, %v; want that of uid 5", c, err)
		}
		if err := e.RemoveCache(t.Context(), "c"); err != nil || len(d.left()) > 0 {
			t.Fatalf("RemoveCache() = %v, left %q", err, d.left())
		}
		o.busy, o.released = 100, 0
		if err := e.makeCache(t.Context(), engine.Mount{Cache: "c", Target: "/c"}, engine.Account{UID: 5, GID: 5}); err != nil || o.released == 0 {
			t.Errorf("makeCache() = %v, after %d releases; want some", err, o.released)
		}
		o.busy = 1 << 30
		_ = e.RemoveCache(t.Context(), "c")
		if err := e.makeCache(t.Context(), engine.Mount{Cache: "c", Target: "/c"}, engine.Account{UID: 5, GID: 5}); err == nil || !strings.Contains(err.Error(), "was not made within") {
			t.Errorf("makeCache() = %v; want that it took too long", err)
		}
	})
}

// A mark is made again when it is old: its age is the time since the last use.
func TestCacheUse(t *testing.T) {
	t.Parallel()
	e, d, o := withCaches()
	old := time.Now().Add(-48 * time.Hour)
	put := func(name string, used time.Time) {
		d.volumes[cachePrefix+name] = Volume{Name: cachePrefix + name, Created: old, Labels: map[string]string{labelRole: roleCache, labelCache: name, labelCacheUID: "1000"}}
		d.volumes[cacheUsePrefix+name] = Volume{Name: cacheUsePrefix + name, Created: used, Labels: map[string]string{labelRole: roleCacheUse, labelCache: name}}
	}
	recent := time.Now().Add(-time.Minute)
	put("old", old.Add(time.Hour))
	put("recent", recent)
	d.volumes["sandboxbash-cache-foreign"] = Volume{Name: "sandboxbash-cache-foreign", Labels: map[string]string{labelRole: roleCache}}
	list, err := e.Caches(t.Context())
	want := []engine.Cache{{Name: "old", UID: 1000, Created: old, Used: old.Add(time.Hour)}, {Name: "recent", UID: 1000, Created: old, Used: recent}}
	if diff := cmp.Diff(want, list); diff != "" || err != nil {
		t.Errorf("Caches() = %v (-want +got):\n%s", err, diff)
	}
	for _, name := range []string{"old", "recent"} {
		if err := e.makeCache(t.Context(), engine.Mount{Cache: name}, engine.Account{UID: 1000}); err != nil {
			t.Errorf("makeCache(%s) = %v", name, err)
		}
	}
	if d.volumes[cacheUsePrefix+"old"].Created.Equal(old.Add(time.Hour)) || !d.volumes[cacheUsePrefix+"recent"].Created.Equal(recent) || len(o.filled) > 0 {
		t.Errorf("the marks are %v and %v; want the old one made again, and no owner given", d.volumes[cacheUsePrefix+"old"].Created, d.volumes[cacheUsePrefix+"recent"].Created)
	}
}

func TestStored(t *testing.T) {
	t.Parallel()
	volume := func(name string, bytes, users int64, labels ...string) MeasuredVolume {
		v := MeasuredVolume{Volume: Volume{Name: name, Labels: map[string]string{}}, Bytes: bytes, Users: users}
		for i := 0; i < len(labels); i += 2 {
			v.Labels[labels[i]] = labels[i+1]
		}
		return v
	}
	got := storedOf(Measured{
		Volumes: []MeasuredVolume{
			volume(namePrefix+testID, 10, 1, labelSession, testID, labelRole, roleWorkspace),
			volume(namePrefix+testID+recordsSuffix, 5, 1, labelSession, testID, labelRole, roleWorkspace),
			volume(namePrefix+otherID, -1, 0, labelSession, otherID, labelRole, roleWorkspace),
			volume(namePrefix+otherID+keptSuffix, 0, 0, labelSession, otherID, labelRole, roleKept),
			volume("foreign", 99, 0, labelSession, testID, labelRole, roleWorkspace),
			volume(cachePrefix+"npm", 7, 1, labelRole, roleCache, labelCache, "npm", labelCacheUID, "1000"),
			volume(runnerPrefix+"0a", 3, 1, labelRole, roleRunner),
			volume(runnerPrefix+"0a"+markSuffix, 0, 0, labelRole, roleRunner),
			volume("users-own", 99, 0),
		},
		Containers: []MeasuredContainer{
			{Name: namePrefix + testID, Bytes: 100, Labels: map[string]string{labelSession: testID, labelRole: roleSession}},
			{Name: "other", Bytes: 99, Labels: map[string]string{labelSession: otherID, labelRole: roleSession}},
		},
		Images: []MeasuredImage{
			{Refs: []string{"sandboxbash/host:0a"}, Bytes: 50, Users: 1},
			{Refs: []string{"debian:stable-slim"}, Bytes: 99, Labels: map[string]string{labelRole: engine.RoleSnapshot}},
		},
	})
	slices.SortFunc(got, func(a, b engine.Stored) int { return strings.Compare(string(a.Kind)+a.Name, string(b.Kind)+b.Name) })
	want := []engine.Stored{
		{Kind: engine.StoredCache, Name: "npm", Bytes: 7, InUse: true},
		{Kind: engine.StoredImage, Name: "sandboxbash/host:0a", Bytes: 50, InUse: true},
		{Kind: engine.StoredKept, Name: otherID, Bytes: -1},
		{Kind: engine.StoredSession, Name: testID, Bytes: 115, InUse: true},
		{Kind: engine.StoredShared, Name: runnerPrefix + "0a", Bytes: 3, InUse: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("storedOf() (-want +got):\n%s", diff)
	}
}

// Sizes that an engine does not tell are not known, rather than 0.
func TestMeasure(t *testing.T) {
	t.Parallel()
	const body = `{"Volumes":[{"Name":"v","Labels":{"a":"b"},"UsageData":{"Size":12,"RefCount":2}},{"Name":"w"},null],
		"Containers":[{"Names":["/c"],"Labels":{"x":"y"},"SizeRw":5},{"Names":[]}],
		"Images":[{"RepoTags":["i:1"],"Size":9,"Containers":1}]}`
	m, err := fakeClient(t, map[string]http.HandlerFunc{"/v1.41/system/df": answer(http.StatusOK, body)}).Measure(t.Context())
	want := Measured{
		Volumes:    []MeasuredVolume{{Volume: Volume{Name: "v", Labels: map[string]string{"a": "b"}}, Bytes: 12, Users: 2}, {Volume: Volume{Name: "w"}, Bytes: -1, Users: -1}},
		Containers: []MeasuredContainer{{Name: "c", Labels: map[string]string{"x": "y"}, Bytes: 5}},
		Images:     []MeasuredImage{{Refs: []string{"i:1"}, Bytes: 9, Users: 1}},
	}
	if diff := cmp.Diff(want, m); diff != "" || err != nil {
		t.Errorf("Measure() = %v (-want +got):\n%s", err, diff)
	}
	_, err = fakeClient(t, map[string]http.HandlerFunc{"/v1.41/system/df": answer(http.StatusInternalServerError, `{"message":"busy"}`)}).Measure(t.Context())
	if err == nil || !strings.Contains(err.Error(), "measure what is on the engine") {
		t.Errorf("Measure() = %v; want what was asked", err)
	}
}
