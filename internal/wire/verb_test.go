package wire

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCommand(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		verb Verb
		args arguments // nil: none
		want string
	}{
		{VerbServe, nil, "serve"},
		{VerbNet, nil, "net"},
		{VerbInit, &InitArgs{Lease: 15 * time.Second, User: 1000}, "init --lease 15s --user 1000"},
		{VerbPush, &TransferArgs{UID: 1000, GID: 50, Path: "/workspace"}, "push 1000:50 /workspace"},
		{VerbPull, &TransferArgs{Path: "/a"}, "pull 0:0 /a"},
		{VerbManifest, &TransferArgs{UID: 1, GID: 2, Path: "/a"}, "manifest 1:2 /a"},
		{VerbPick, &TransferArgs{UID: 1, GID: 2, Path: "/a"}, "pick 1:2 /a"},
		{VerbUpdate, &TransferArgs{UID: 1, GID: 2, Path: "/a"}, "update 1:2 /a"},
		{VerbAccounts, &AccountsArgs{From: "/etc", To: "/x", UID: 1, GID: 4294967294, Name: "agent", Home: "/home/agent"}, "accounts /etc /x 1 4294967294 agent /home/agent"},
		{VerbClear, &ClearArgs{Dir: "/w"}, "clear /w"},
		{VerbPosture, &PostureArgs{Masked: []string{"/proc/a", "/b"}}, "posture /proc/a /b"},
		{VerbLease, &LeaseArgs{Do: LeaseKeep, For: 2 * time.Hour}, "lease keep 2h0m0s"},
		{VerbLease, &LeaseArgs{Do: LeasePause}, "lease pause 0s"},
		{VerbSurvey, &SurveyArgs{Limit: time.Minute, Dirs: []string{"/w0", "/j0"}}, "survey 1m0s /w0 /j0"},
	} {
		var list []string
		if row.args == nil {
			list = row.verb.Command()
		} else {
			list = row.verb.Command(row.args)
		}
		if got := strings.Join(list, " "); got != row.want {
			t.Errorf("%s.Command(%+v) = %q; want %q", row.verb, row.args, got, row.want)
		}
		if row.args == nil {
			continue
		}
		got, _ := reflect.TypeAssert[arguments](reflect.New(reflect.TypeOf(row.args).Elem()))
		if err := ParseArgs(list[1:], got); err != nil || !reflect.DeepEqual(got, row.args) {
			t.Errorf("ParseArgs(%q) = %+v, %v; want %+v", list[1:], got, err, row.args)
		}
	}
}

func TestParseArgsRefuses(t *testing.T) {
	t.Parallel()
	unchanged := idText(math.MaxUint32)
	for _, row := range []struct {
		args arguments
		list string
	}{
		{&InitArgs{}, ""},
		{&InitArgs{}, "--lease 15s"},
		{&InitArgs{}, "--user 15s --lease 0"},
		{&InitArgs{}, "--lease soon --user 0"},
		{&InitArgs{}, "--lease 15s --user -1"},
		{&InitArgs{}, "--lease 15s --user 0 more"},
		{&TransferArgs{}, "1000 /a"},
		{&TransferArgs{}, "1000:1000"},
		{&TransferArgs{}, ":1 /a"},
		{&TransferArgs{}, unchanged + ":1 /a"},
		{&TransferArgs{}, "1:" + unchanged + " /a"},
		{&TransferArgs{}, "1:1:1 /a"},
		{&TransferArgs{}, "1:1 /a /b"},
		{&AccountsArgs{}, "/a /b 1 2 name"},
		{&AccountsArgs{}, "/a /b 1 4294967296 name /home"},
		{&ClearArgs{}, ""},
		{&ClearArgs{}, "/a /b"},
		{&SurveyArgs{}, "/a"},
		{&LeaseArgs{}, "keep"},
		{&LeaseArgs{}, "keep soon"},
		{&LeaseArgs{}, "keep 1s more"},
	} {
		if err := ParseArgs(strings.Fields(row.list), row.args); err == nil {
			t.Errorf("ParseArgs(%q, %T) = nil; want an error", row.list, row.args)
		}
	}
}

func TestTrusted(t *testing.T) {
	t.Parallel()
	for _, v := range []Verb{VerbAttend, VerbJobs, VerbServe, VerbPush, VerbPosture, ""} {
		if got, want := v.Trusted(), slices.Contains([]Verb{"attend"}, v); got != want {
			t.Errorf("%q.Trusted() = %t; want %t", v, got, want)
		}
	}
}
