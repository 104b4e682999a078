package sandbox

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/engine"
)

func TestUserName(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		spec Spec
		want string // in the error; "": none
	}{
		{Spec{}, ""},
		{Spec{UserName: "me-too_2"}, ""},
		{Spec{UserName: "_x"}, ""},
		{Spec{UserName: "root"}, "is not root"},
		{Spec{UserName: "2me"}, "begins with a letter or _"},
		{Spec{UserName: "Me"}, "a name has up to 32 of"},
		{Spec{UserName: "a:b"}, "a name has up to 32 of"},
		{Spec{UserName: "a\nb"}, "a name has up to 32 of"},
		{Spec{UserName: strings.Repeat("x", 33)}, "a name has up to 32 of"},
		{Spec{UserName: "me", Profile: Dev}, "commands of profile dev run as root"},
	} {
		spec, err := tt.spec.Normalize()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Normalize(%q) = %v; want %q", tt.spec.UserName, err, tt.want)
		}
		if err != nil {
			continue
		}
		want := tt.spec.UserName
		if want == "" {
			want = userName
		}
		l := labelsOf(spec, engine.Image{}, engine.Overlays{Accounts: true})
		if spec.account().Name != want || l.userName() != want || !slices.Contains(l.environment(), "LOGNAME="+want) || len(spec.accountNotes(l)) > 0 {
			t.Errorf("the account is %+v, the variables are %q; want the name %s", spec.account(), l.environment(), want)
		}
		l.Accounts = false
		if notes := spec.accountNotes(l); (len(notes) == 1) != (tt.spec.UserName != "") {
			t.Errorf("accountNotes(%q) = %q; want a note if a name was asked for", tt.spec.UserName, notes)
		}
	}
	if got := (labelSpec{User: User{}}).userName(); got != "root" {
		t.Errorf("userName() of uid 0 = %q; want root", got)
	}
}
