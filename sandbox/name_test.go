package sandbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/sink"
)

func TestCheckName(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{
		"": true, "web": true, "0": true, "a-b-": true, strings.Repeat("a", 63): true, "laster": true,
		"-": false, "-a": false, "Web": false, "a b": false, "a_b": false, "a.b": false, "a:b": false, "a\n": false, "é": false,
		strings.Repeat("a", 64): false, LastStarted: false, testID: false,
	} {
		if err := checkName(name); (err == nil) != ok {
			t.Errorf("checkName(%q) = %v; want accepted: %v", name, err, ok)
		}
		if _, err := (Spec{Name: name}).Normalize(); (err == nil) != ok {
			t.Errorf("Normalize() with name %q = %v; want accepted: %v", name, err, ok)
		}
	}
}

// Every word can be a part of a name, and none is in a list twice.
func TestWords(t *testing.T) {
	t.Parallel()
	for _, list := range [][]string{adjectives, nouns} {
		if len(list) < 90 {
			t.Errorf("%d words; want at least 90", len(list))
		}
		if len(slices.Compact(slices.Sorted(slices.Values(list)))) != len(list) {
			t.Errorf("a word is in %q twice", list)
		}
		for _, w := range list {
			if checkName(w) != nil || strings.Contains(w, "-") || len(w) > 8 {
				t.Errorf("the word %q is not fit for a name", w)
			}
		}
	}
}

func TestMadeUpName(t *testing.T) {
	t.Parallel()
	if got := MadeUpName(testID); got != MadeUpName(testID) || checkName(got) != nil || strings.Count(got, "-") != 1 {
		t.Errorf("MadeUpName(%q) = %q; want two words, always the same", testID, got)
	}
	if got := MadeUpName("x"); got != "" {
		t.Errorf(`MadeUpName("x") = %q; want ""`, got)
	}
	if got := ShortID(testID); got != "eeeeffff" || ShortID("x") != "x" {
		t.Errorf("ShortID(%q) = %q; want the start of the random digits", testID, got)
	}
	names, shorts := map[string]bool{}, map[string]bool{}
	const ids = 2000
	for range ids {
		id, err := newID()
		if err != nil {
			t.Fatal(err)
		}
		names[MadeUpName(id)], shorts[ShortID(id)] = true, true
	}
	if len(names) < ids/2 || len(shorts) != ids {
		t.Errorf("%d ids have %d names and %d short forms", ids, len(names), len(shorts))
	}
}

// of makes a session for match.
type of struct {
	id, name, by string
	status       engine.Status
	at           int // seconds
}

func (o of) session() engine.Session {
	l := labelSpec{Name: o.name, By: o.by}
	return engine.Session{
		Handle: engine.Handle{ID: o.id}, Status: o.status,
		Labels: map[string]string{
			labelShape: l.encode(), labelLease: "1m", labelOwner: "elsewhere/1/2",
			labelCreated: time.Unix(int64(o.at), 0).Format(time.RFC3339Nano),
		},
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	const up, kept, other = engine.StatusRunning, engine.StatusKept, "elsewhere/7"
	id := func(tail string) string { return "0199aaaa-bbbb-7ccc-8ddd-" + tail }
	me := userKey()
	var all []engine.Session
	for _, o := range []of{
		{id("aaaaaaaa0001"), "web", me, up, 1},
		{id("aaaaaaaa0002"), "web", me, kept, 2},
		{id("aaaaaaaa0003"), "web", other, up, 3},
		{id("bbbbbbbb0001"), "web-two", me, up, 4},
		{id("cccccccc0001"), "", me, up, 0},
		{id("dddddddd0001"), "theirs", other, up, 9},
		{id("eeeeeeee0001"), "gone", me, kept, 8},
		{id("eeeeeeee0002"), "gone", me, kept, 7},
		{id("ffffffff0001"), "new", me, engine.StatusExited, 6},
	} {
		all = append(all, o.session())
	}
	all = append(all, engine.Session{Handle: engine.Handle{ID: id("999999990001")}, Status: up, Labels: map[string]string{labelShape: "{"}})
	for _, test := range []struct {
		ref, want string // the end of the id, or of the error
	}{
		{"web", "aaaaaaaa0001"},                          // mine, and it lives
		{"web-two", "bbbbbbbb0001"},                      // a whole name
		{"two", "bbbbbbbb0001"},                          // a part
		{"we", "unknown session"},                        // too short
		{"bbbbbbbb", "bbbbbbbb0001"},                     // the short form
		{"bbb", "unknown session"},                       // too short for an id
		{"8ddd-bbbb", "bbbbbbbb0001"},                    // a part in the middle
		{MadeUpName(id("cccccccc0001")), "cccccccc0001"}, // made up
		{"theirs", "dddddddd0001"},                       // another user's, if none of mine
		{"99999999", "999999990001"},                     // of another version
		{"gone", "2 match: gone (eeeeeeee), gone (eeeeeeee)"},
		{"0199", "7 match"}, // of mine
		{LastStarted, "bbbbbbbb0001"},
		{"none", "unknown session"},
		{"we*", "unknown session"},
	} {
		got, err := match(all, test.ref)
		switch {
		case err == nil && !strings.HasSuffix(got.ID, test.want):
			t.Errorf("match(%q) = %s; want %s", test.ref, got.ID, test.want)
		case err != nil && (!errors.Is(err, ErrUnknownSession) || !strings.Contains(err.Error(), test.want)):
			t.Errorf("match(%q) = %v; want %s", test.ref, err, test.want)
		}
	}
	if _, err := match(nil, LastStarted); !errors.Is(err, ErrUnknownSession) {
		t.Errorf("match(last) of none = %v; want %v", err, ErrUnknownSession)
	}
}

func TestDescribed(t *testing.T) {
	t.Parallel()
	var list []Info
	for range mostDescribed + 2 {
		list = append(list, Info{ID: testID, Name: "web"})
	}
	if got := Described(list); strings.Count(got, "web (eeeeffff)") != mostDescribed || !strings.HasSuffix(got, ", 2 more") {
		t.Errorf("Described() of %d = %q", len(list), got)
	}
}

// A session of a version that did not say whose it is belongs to this machine or to another.
func TestMine(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		by, owner string
		want      bool
	}{
		{userKey(), "elsewhere/1/2", true},
		{"elsewhere/0", self().String(), false},
		{"", self().String(), true},
		{"", "elsewhere/1/2", false},
		{"", "", false},
	} {
		if got := (Info{Owner: test.owner, labels: labelSpec{By: test.by}}).Mine(); got != test.want {
			t.Errorf("Mine() by %q, of %q = %v; want %v", test.by, test.owner, got, test.want)
		}
	}
}

func TestStartNamed(t *testing.T) {
	t.Parallel()
	d := newFakeEngine(t)
	e, s := start(t, d, Spec{Name: "web", Directory: "/home/me/project"})
	t.Cleanup(func() { _ = e.Close(context.WithoutCancel(t.Context())) })
	if i := s.Info(); i.Name != "web" || i.Directory != "/home/me/project" || !i.Mine() || !i.Lives() {
		t.Errorf("Info() = %+v; want its name and directory", i)
	}
	if i, err := e.Show(t.Context(), "web"); err != nil || i.ID != s.ID() || i.Name != "web" || i.Directory != "/home/me/project" {
		t.Errorf("Show(web) = %+v, %v", i, err)
	}
	_, err := e.Start(t.Context(), Spec{Name: "web"})
	bad, ok := errors.AsType[*InputError](err)
	if !ok || bad.Field != "name" || !strings.Contains(bad.Text, s.ID()) {
		t.Errorf("Start() with a name that is taken = %v; want the id of the one that has it", err)
	}
	if got := d.left(); len(got) != 1 {
		t.Errorf("after a refused start there is %q; want the first alone", got)
	}
	unnamed, err := e.Start(t.Context(), Spec{})
	if err != nil || unnamed.Info().Name != MadeUpName(unnamed.ID()) {
		t.Errorf("Start() without a name = %v, %v; want a name that is made up", unnamed.Info(), err)
	}
	if _, err := e.Stop(t.Context(), "web"); err != nil {
		t.Errorf("Stop(web) = %v", err)
	}
	if _, err := e.Start(t.Context(), Spec{Name: "web"}); err != nil {
		t.Errorf("Start() after the first has ended = %v; want the name to be free", err)
	}
}

// Of many that start at the same time under one name, at most one lives.
func TestStartNamedAtOnce(t *testing.T) {
	t.Parallel()
	d := newFakeEngine(t)
	e := New(d, &fakeImages{}, Options{})
	t.Cleanup(func() { _ = e.Close(context.WithoutCancel(t.Context())) })
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := e.Start(t.Context(), Spec{Name: "web"}); err != nil {
				if bad, ok := errors.AsType[*InputError](err); !ok || bad.Field != "name" {
					t.Errorf("Start() = %v; want a session, or that the name is taken", err)
				}
			}
		})
	}
	all.Wait()
	if got := d.left(); len(got) > 1 {
		t.Errorf("%d sessions have one name: %q", len(got), got)
	}
}

// A directory that holds a secret does not become a label; a name that does is refused.
func TestStartNamedWithSecret(t *testing.T) {
	t.Parallel()
	secrets, _, err := sink.NewSecrets([]sink.Secret{{Name: "TOKEN", Value: "hunter2-secret"}})
	if err != nil {
		t.Fatal(err)
	}
	e := New(newFakeEngine(t), &fakeImages{}, Options{Secrets: secrets})
	t.Cleanup(func() { _ = e.Close(context.WithoutCancel(t.Context())) })
	s, err := e.Start(t.Context(), Spec{Directory: "/home/hunter2-secret"})
	if err != nil || s.Info().Directory != "" {
		t.Errorf("Start() in a directory with a secret = %v, %v; want it not said", s, err)
	}
	if _, err := e.Start(t.Context(), Spec{Name: "x-hunter2-secret"}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("Start() with a secret as name = %v; want it refused, and masked", err)
	}
}
