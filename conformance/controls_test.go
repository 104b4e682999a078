package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNotOffered checks that what a target has no template for has not failed.
func TestNotOffered(t *testing.T) {
	t.Parallel()
	target := &Target{Name: "one command", Run: "bash -c {script}"}
	if err := target.check(); err != nil {
		t.Fatal(err)
	}
	want := map[string]Outcome{
		"1": Pass, "33": NotOffered, "40": CannotAsk, "47b": NotOffered, "49": NotOffered, "15": NotOffered, "15b": NotOffered,
		"56b": NotOffered, "61": NotOffered, "64": NotOffered, "65": NotOffered, "70": NotOffered, "73": NotOffered, "80": NotOffered, "27": NotOffered,
	}
	if got := outcomes(t, target, sortedKeys(want)...); !maps.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
}

// TestLeftBehind checks that a tool fails that leaves things of its own.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target := &Target{
		Name: "leaves its sessions", Vars: map[string]string{"all": dir},
		Start: "mktemp -d -p {all}", Run: "env -C {session} bash -c {script}", Stop: "true {session}", List: "ls {all}",
	}
	if got := outcomes(t, target, "80"); got["80"] != Fail {
		t.Errorf("got %v; want it to fail", got)
	}
	target.Stop = "rm -r {session}"
	if got := outcomes(t, target, "80"); got["80"] != Pass {
		t.Errorf("got %v; want it to pass: what was there before is not of these sessions", got)
	}
}

// TestUnclaimed checks that what a target does not claim is asked, and is not a failure.
func TestUnclaimed(t *testing.T) {
	t.Parallel()
	target := &Target{Name: "says 0", Run: "true {script}", Unclaimed: map[string]string{"8": "it has no codes"}}
	want := map[string]Outcome{"4": Fail, "8": NotOffered}
	if got := outcomes(t, target, "4", "8"); !maps.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
	target = &Target{Name: "good", Run: "bash -c {script}", Unclaimed: map[string]string{"8": "it has no codes"}}
	if got := outcomes(t, target, "8"); got["8"] != Pass {
		t.Errorf("got %v; want a pass to count", got)
	}
}

// TestFetching is the control of what is about files.
func TestFetching(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, get string
		want      map[string]Outcome
	}{
		{"good", "cp -R {path} {to}", map[string]Outcome{"70": Pass, "70b": Pass, "70c": Pass}},
		{"never fails", `sh -c 'cp -R "$1" "$2"; exit 0' sh {path} {to}`, map[string]Outcome{"70": Pass, "70b": Fail}},
		{"always fails", "false {path} {to}", map[string]Outcome{"70": Fail, "70b": Fail}},
		{"makes an empty file", `sh -c 'touch "$2/${1##*/}"' sh {path} {to}`, map[string]Outcome{"70": Fail, "70b": Fail}},
		{"follows links that it has made", `sh -c 'cd "${1%/*}" && tar -c "${1##*/}" | tar -x --keep-directory-symlink -C "$2"' sh {path} {to}`, map[string]Outcome{"70": Pass, "70c": Fail}},
	}
	for _, tt := range tests {
		target := local(t, "")
		target.Get = tt.get
		if got := outcomes(t, target, sortedKeys(tt.want)...); !maps.Equal(got, tt.want) {
			t.Errorf("%s: got %v; want %v", tt.name, got, tt.want)
		}
	}
}

// pausing is a tool whose sessions are directories, and which stops none that is paused.
func pausing(t *testing.T) *Target {
	t.Helper()
	target := local(t, "")
	target.Vars = map[string]string{"all": t.TempDir()}
	target.Start = "mktemp -d -p {all}"
	target.Pause = "touch {session}/.paused"
	target.Thaw = "rm {session}/.paused"
	target.Stop = `sh -c '[ ! -e "$1/.paused" ] && rm -r "$1"' sh {session}`
	return target
}

// TestPausedIsStopped checks that a session which has been paused is thawed and stopped, however a step ends.
func TestPausedIsStopped(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		edit func(*Target)
		want Outcome
	}{
		{"all is well", func(*Target) {}, Pass},
		{"the command does not end as it should", func(t *Target) { t.Run = `sh -c 'sleep 3; exit 9' sh {timeout} {script}` }, Fail},
		{"the pause says that it has failed", func(t *Target) { t.Pause = `sh -c 'touch "$1/.paused"; exit 1' sh {session}` }, Fail},
	}
	for _, tt := range tests {
		target := pausing(t)
		tt.edit(target)
		if got := outcomes(t, target, "73"); got["73"] != tt.want {
			t.Errorf("%s: got %v; want %s", tt.name, got, tt.want)
		}
		if left, err := os.ReadDir(target.Vars["all"]); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v; want no session", tt.name, left, err)
		}
	}
}

// TestPrepare checks that a target that cannot run here is not asked, with the reason, and is tidied up.
func TestPrepare(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	target := &Target{
		Name: "cannot run", Vars: map[string]string{"store": dir}, Run: "bash -c {script}",
		Prepare: `sh -c 'mkdir "$1"; echo no such thing here >&2; exit 3' sh {store}`, Tidy: "rm -r {store}",
	}
	groups, err := loadGroups()
	if err != nil {
		t.Fatal(err)
	}
	column := Column{Target: target, Results: askTarget(t.Context(), target, groups, options{jobs: 1}, func(Result) {})}
	for id, r := range column.Results {
		if r.Outcome != NotRun || !strings.Contains(r.Detail, "no such thing here") {
			t.Fatalf("%s is %q: %s; want it not run, and why", id, r.Outcome, r.Detail)
		}
	}
	if column.asked() {
		t.Error("asked() = true; want false")
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("what prepare has made is still there")
	}
}

// TestWrong checks which outcomes a target of ours may have.
func TestWrong(t *testing.T) {
	t.Parallel()
	column := Column{
		Target: &Target{Known: map[string]string{"8": "why"}, Unclaimed: map[string]string{"4": "why"}},
		Results: map[string]Result{
			"1": {Outcome: Pass}, "2": {Outcome: Fail}, "4": {Outcome: NotOffered}, "5": {Outcome: CannotAsk},
			"6": {Outcome: NotRun, Detail: "interrupted"}, "8": {Outcome: Fail}, "19": {Outcome: NotRun, Detail: leftOut},
		},
	}
	if got, want := column.wrong(true), []string{"2", "4", "5", "6"}; !slices.Equal(got, want) {
		t.Errorf("wrong(true) = %q; want %q", got, want)
	}
	if got, want := column.wrong(false), []string{"2"}; !slices.Equal(got, want) {
		t.Errorf("wrong(false) = %q; want %q", got, want)
	}
}
