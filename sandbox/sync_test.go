package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/internal/transfer"
)

// Directories that lie at the same place in two others share a record with them.
func TestPairOfBelow(t *testing.T) {
	t.Parallel()
	s := &Session{info: Info{key: []byte("one")}}
	top := t.TempDir()
	want := s.pairOf(filepath.Join(top, "here"), "/there")
	if want.below != "." {
		t.Errorf("pairOf() is below %s; want .", want.below)
	}
	for _, below := range []string{"a", "a/b"} {
		got := s.pairOf(filepath.Join(top, "here", below), "/there/"+below)
		if got.id != want.id || got.record != want.record || got.below != below {
			t.Errorf("pairOf(%s) = %+v; want that of the directories above it", below, got)
		}
	}
	if other := s.pairOf(filepath.Join(top, "here", "a"), "/there/b"); other.id == want.id || other.below != "." {
		t.Errorf("pairOf() of two names = %+v", other)
	}
	if root := s.pairOf("/", "/"); root.below != "." {
		t.Errorf("pairOf(/, /) = %+v", root)
	}
}

// An index of another session or pair, or one that was altered, is not used.
func TestSealedIndex(t *testing.T) {
	t.Parallel()
	s, other := &Session{info: Info{key: []byte("one")}}, &Session{info: Info{key: []byte("two")}}
	index := transfer.Index{"f": {Length: 3}}
	id := s.pairID("/here", "/there")
	sealed := s.sealIndex(id, index)
	if diff := cmp.Diff(index, s.openIndex(id, sealed)); diff != "" {
		t.Errorf("openIndex() (-want +got):\n%s", diff)
	}
	bad := append([]byte{}, sealed...)
	bad[len(bad)-1] ^= 1
	for name, got := range map[string]transfer.Index{
		"another session's": other.openIndex(id, sealed), "another pair's": s.openIndex(s.pairID("/here", "/elsewhere"), sealed), "an altered one": s.openIndex(id, bad),
		"none": s.openIndex(id, nil), "a record": s.openIndex(id, s.sealCopied(id, transfer.State{})),
	} {
		if got != nil {
			t.Errorf("openIndex() of %s = %v; want nil", name, got)
		}
	}
	if _, err := s.openCopied(id, sealed); err == nil {
		if state, _ := s.openCopied(id, sealed); state != nil {
			t.Error("an index is taken for a record")
		}
	}
}

// A repository is brought whole or not at all, and an index that git has written on both sides is nothing
// to tell.
func TestLeftRepositories(t *testing.T) {
	t.Parallel()
	type verdicts map[string]transfer.Verdict
	for _, tt := range []struct {
		name string
		verdicts
		want map[string]bool // repository to whether it is told
	}{
		{"nothing", verdicts{"a": transfer.Clash}, map[string]bool{}},
		{"taken", verdicts{".git/index": transfer.Taken, ".git/refs/heads/x": transfer.Alike}, map[string]bool{}},
		{"the index alone", verdicts{".git/index": transfer.Clash}, map[string]bool{".git": false}},
		{"the index and more", verdicts{".git/index": transfer.Clash, ".git/refs/heads/x": transfer.Taken, "sub/.git/index": transfer.Clash}, map[string]bool{".git": true, "sub/.git": false}},
		{"a branch", verdicts{".git/refs/heads/x": transfer.Gone}, map[string]bool{".git": true}},
	} {
		var deltas []transfer.Delta
		var list []transfer.Verdict
		for name, v := range tt.verdicts {
			deltas, list = append(deltas, transfer.Delta{Name: name}), append(list, v)
		}
		got := map[string]bool{}
		for repository, why := range leftRepositories(deltas, list) {
			got[repository] = why != ""
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// What is recorded after a sync is what both sides have: changes of the session stay changes.
func TestSyncedState(t *testing.T) {
	t.Parallel()
	link := func(name, target string) transfer.Entry {
		return transfer.Entry{Name: name, Kind: transfer.Link, Target: target}
	}
	p := &syncing{base: transfer.State{link("a", "1"), link("b", "1"), link("c", "1")}}
	for _, d := range []struct {
		transfer.Delta
		v transfer.Verdict
	}{
		{transfer.Delta{Name: "a", Was: link("a", "1"), Now: link("a", "2")}, transfer.Taken},
		{transfer.Delta{Name: "b", Was: link("b", "1")}, transfer.Alike},
		{transfer.Delta{Name: "c", Was: link("c", "1"), Now: link("c", "2")}, transfer.Clash},
		{transfer.Delta{Name: "d", Now: link("d", "2")}, transfer.Taken},
		{transfer.Delta{Name: "e", Was: link("e", "1"), Now: link("e", "2")}, transfer.Gone},
		{transfer.Delta{Name: "f", Now: link("f", "2")}, transfer.Missed},
		{transfer.Delta{Name: "g", Now: link("g", "2")}, transfer.Clash},
		{transfer.Delta{Name: "g/h", Now: link("g/h", "2")}, transfer.Clash},
		{transfer.Delta{Name: "i", Was: link("i", "2")}, transfer.Clash},
	} {
		p.judged(d.Delta, d.v)
	}
	if diff := cmp.Diff(transfer.State{link("a", "2"), link("c", "1"), link("d", "2")}, p.state()); diff != "" {
		t.Errorf("state() (-want +got):\n%s", diff)
	}
	want := []SyncConflict{
		{"c", "changed on both sides"},
		{"e", "changed here, deleted in the session"},
		{"f", "changed here while it was read: sync again"},
		{"g", "made on both sides, and not alike"},
		{"i", "deleted here, changed in the session"},
	}
	if diff := cmp.Diff(want, p.done.Conflicts); diff != "" {
		t.Errorf("conflicts (-want +got):\n%s", diff)
	}
}

func TestSyncNeedsCopy(t *testing.T) {
	t.Parallel()
	s := &Session{info: Info{labels: labelSpec{Workspace: Workspace{Kind: WorkspaceVolume}}}}
	if _, err := s.Sync(t.Context(), SyncOptions{}); !errors.As(err, new(*InputError)) {
		t.Errorf("Sync() of a volume = %v; want an *InputError", err)
	}
}

// Sources land as cp has it.
func TestLand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "d", "f"), 0o755), os.WriteFile(filepath.Join(dir, "f"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		paths []string
		into  bool
		want  []string // nil: it is refused
	}{
		{[]string{"f"}, true, []string{"f"}},
		{[]string{"f"}, false, []string{""}},
		{[]string{"d"}, true, []string{"d"}},
		{[]string{"d/"}, true, []string{"d"}},
		{[]string{"d"}, false, []string{""}},
		{[]string{"d/."}, true, []string{""}},
		{[]string{"d/.", "f"}, true, []string{"", "f"}},
		{[]string{"d/f/.."}, true, []string{""}},
		{[]string{"d/f", "f"}, true, nil},
		{[]string{"none"}, true, nil},
	} {
		var from []Source
		for _, p := range tt.paths {
			from = append(from, Source{Path: dir + "/" + p})
		}
		list, err := land(from, tt.into)
		var got []string
		for _, l := range list {
			got = append(got, l.as)
		}
		if tt.want == nil && !errors.As(err, new(*InputError)) || tt.want != nil && (err != nil || !cmp.Equal(got, tt.want)) {
			t.Errorf("land(%q, %t) = %q, %v; want %q", tt.paths, tt.into, got, err, tt.want)
		}
	}
}

// A large copy says what is large in it.
func TestLargeText(t *testing.T) {
	t.Parallel()
	small := &transfer.Packer{Files: largeFiles, Size: largeSize, Parts: map[string]int64{"a": largeSize}}
	if text := largeText("/d", small); text != "" {
		t.Errorf("largeText() = %q; want nothing", text)
	}
	large := &transfer.Packer{Files: 7, Size: 3e9, Parts: map[string]int64{"a": 1, "node_modules": 2e9, ".git": 9e8, "b": 1, "c": 99}}
	want := "the copy of /d is large, 3GB in 7 files, most of it node_modules 2GB, .git 900MB, c 99B: "
	if text := largeText("/d", large); !strings.HasPrefix(text, want) {
		t.Errorf("largeText() = %q; want %q", text, want)
	}
	if text := largeText("/d", &transfer.Packer{Files: largeFiles + 1}); text == "" {
		t.Error("many files are not told")
	}
}
