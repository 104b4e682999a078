package expect

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A line whose refusal is also what the weak container answers controls nothing.
func TestControlsTellTheDifference(t *testing.T) {
	t.Parallel()
	for _, l := range Lines {
		if l.Weak.kind == unchecked || l.Strict.kind != oneOf {
			continue
		}
		for _, outcome := range l.Strict.outcomes {
			both := l.Weak.Contains(outcome)
			ordinary := l.Weak.kind == oneOf && slices.Equal(l.Weak.outcomes, l.Strict.outcomes) // what must work everywhere
			// A kernel without the call says ENOSYS to everybody.
			if both && !ordinary && outcome != "ENOSYS" && outcome != "ENOENT" {
				t.Errorf("%s %s: %s is expected in strict and passes as success in weak", l.Row, l.Name, outcome)
			}
		}
	}
}

func TestEachLineIsCheckedInASession(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, l := range Lines {
		if seen[l.Name] {
			t.Errorf("%s %s is listed twice", l.Row, l.Name)
		}
		seen[l.Name] = true
		if l.Strict.kind == unchecked {
			t.Errorf("%s %s is not checked in strict", l.Row, l.Name)
		}
	}
}

func TestSet(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		set     Set
		outcome string
		want    bool
		text    string
	}{
		{Set{}, "EPERM", true, "anything"},
		{In("EPERM", "ENOSYS"), "ENOSYS", true, "EPERM or ENOSYS"},
		{In("EPERM", "ENOSYS"), "allowed", false, "EPERM or ENOSYS"},
		{In("EPERM"), "EPERM,allowed", false, "EPERM"},
		{NotIn("EPERM"), "EINVAL", true, "anything but EPERM"},
		{NotIn("EPERM"), "EPERM", false, "anything but EPERM"},
		{Having("eth0"), "eth0,lo", true, "something with eth0"},
		{Having("eth0"), "lo", false, "something with eth0"},
	} {
		if got := tt.set.Contains(tt.outcome); got != tt.want {
			t.Errorf("(%s).Contains(%s) = %t; want %t", tt.set, tt.outcome, got, tt.want)
		}
		if got := tt.set.String(); got != tt.text {
			t.Errorf("String() = %q; want %q", got, tt.text)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	var good []string // a perfect strict session
	for _, l := range Lines {
		outcome := "12345"
		if l.Strict.kind == oneOf {
			outcome = l.Strict.outcomes[0]
		}
		good = append(good, l.Row+" "+l.Name+" "+outcome+"\n")
	}
	all := strings.Join(good, "")
	replace := func(name, outcome string) string {
		i := slices.IndexFunc(good, func(s string) bool { return strings.Contains(s, " "+name+" ") })
		changed := slices.Clone(good)
		changed[i] = strings.Join(append(strings.Fields(good[i])[:2], outcome), " ") + "\n"
		return strings.Join(changed, "")
	}
	for _, tt := range []struct {
		name   string
		output string
		want   []string
	}{
		{"as it must be", all, nil},
		{"reached", replace("bpf", "E2BIG"), []string{"E6 bpf = E2BIG; want EPERM or ENOSYS"}},
		{"no limit", replace("pids-limit", "max"), []string{"R1 pids-limit = max; want anything but max or absent or ENOENT"}},
		{"twice", all + "E7 io_uring_setup EPERM\n", []string{"E7 io_uring_setup stands there twice"}},
		{"unknown", all + "E99 magic EPERM\n", []string{"E99 magic is not expected at all"}},
		{"no line", all + "panic: oh no, more words\n", []string{`"panic: oh no, more words\n" is not a line of the probe`}},
		{"missing", strings.Replace(all, "E17 reboot EPERM\n", "", 1), []string{"E17 reboot is missing"}},
		{"under another row", strings.Replace(all, "E17 reboot EPERM", "E18 reboot EPERM", 1), []string{"E18 reboot is not expected at all", "E17 reboot is missing"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, Check(Strict, tt.output)); diff != "" {
				t.Errorf("Check(strict, …) (-want +got):\n%s", diff)
			}
		})
	}
	if got := Check(Weak, all); len(got) < 50 {
		t.Errorf("Check(weak, a perfect strict session) finds %d differences; want one for each control", len(got))
	}
	if got := Check(Strict, ""); len(got) != len(Lines) {
		t.Errorf("Check(strict, nothing) finds %d differences; want %d", len(got), len(Lines))
	}
}
