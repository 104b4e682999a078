//go:build linux

package proc

import (
	"reflect"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// The fields before the hyphen vary in number, a path may hold any byte, and a source may be
// empty. A line that is not understood is an error, not a mount less.
func TestParseMounts(t *testing.T) {
	t.Parallel()
	mount := func(m wire.Mount, super ...string) []Mount { return []Mount{{Mount: m, Super: super}} }
	for _, row := range []struct {
		name, line string
		want       []Mount
	}{
		{
			"plain", "25 1 0:22 / /proc rw,nosuid - proc proc rw",
			mount(wire.Mount{Target: "/proc", Type: "proc", Options: []string{"rw", "nosuid"}, Device: "0:22", Root: "/"}, "rw"),
		},
		{
			"with optional fields", "25 1 254:1 /v /workspace ro shared:7 master:1 - ext4 /dev/vda rw,discard",
			mount(wire.Mount{Target: "/workspace", Type: "ext4", Options: []string{"ro"}, Device: "254:1", Root: "/v"}, "rw", "discard"),
		},
		{
			"escapes", `25 1 0:3 /a\134b /c\040d\011e\012f rw - tmpfs tmp\040fs rw`,
			mount(wire.Mount{Target: "/c d\te\nf", Type: "tmpfs", Options: []string{"rw"}, Device: "0:3", Root: `/a\b`}, "rw"),
		},
		{
			"a hyphen in a path", "25 1 0:3 / /-/ - rw - tmpfs tmpfs rw", nil, // as no kernel writes it
		},
		{
			"no source", "25 1 0:3 / /t rw - tmpfs  rw,size=1k",
			mount(wire.Mount{Target: "/t", Type: "tmpfs", Options: []string{"rw"}, Device: "0:3", Root: "/"}, "rw", "size=1k"),
		},
		{
			"spaces that the kernel does not escape", "25 1 0:3 /a\u00a0b /c\u3000d\re rw - tmpfs tmpfs rw",
			mount(wire.Mount{Target: "/c\u3000d\re", Type: "tmpfs", Options: []string{"rw"}, Device: "0:3", Root: "/a\u00a0b"}, "rw"),
		},
		{"an empty root", "25 1 0:3  /t rw - tmpfs tmpfs rw", nil},
		{"an empty type", "25 1 0:3 / /t rw -  tmpfs rw", nil},
		{"no hyphen", "25 1 0:3 / /t rw tmpfs tmpfs rw", nil},
		{"nothing behind the hyphen", "25 1 0:3 / /t rw - ", nil},
		{"too few fields", "25 1 0:3 / - tmpfs tmpfs rw", nil},
		{"an empty line", "", nil},
	} {
		got, err := parseMounts([]byte(row.line + "\n"))
		if !reflect.DeepEqual(got, row.want) || (err == nil) != (row.want != nil) {
			t.Errorf("%s: parseMounts(%q) = %+v, %v; want %+v", row.name, row.line, got, err, row.want)
		}
	}
	two := "25 1 0:3 / /a rw - tmpfs tmpfs rw\n26 1 0:3 / /b rw - tmpfs tmpfs rw"
	if got, err := parseMounts([]byte(two)); err != nil || len(got) != 2 || got[0].Target != "/a" || got[1].Target != "/b" {
		t.Errorf("parseMounts() of two lines = %+v, %v; want both, in order", got, err)
	}
	if got, err := parseMounts([]byte(two + "\nbroken\n")); err == nil {
		t.Errorf("parseMounts() with a broken line = %+v; want an error", got)
	}
}

// What this machine's kernel writes is understood.
func TestMounts(t *testing.T) {
	t.Parallel()
	all, err := Mounts()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.Target == "/proc" && m.Type == "proc" && len(m.Options) > 0 && len(m.Super) > 0 {
			return
		}
	}
	t.Errorf("Mounts() = %+v; want /proc among them", all)
}

func FuzzParseMounts(f *testing.F) {
	f.Add([]byte("25 1 0:22 / /proc rw,nosuid - proc proc rw\n"))
	f.Add([]byte(" - \n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := parseMounts(b)
		if err != nil && all != nil {
			t.Errorf("parseMounts(%q) = %+v and %v; want one of them", b, all, err)
		}
		for _, m := range all {
			if m.Type == "" || len(m.Options) == 0 || len(m.Super) == 0 || m.Device == "" {
				t.Errorf("parseMounts(%q) has %+v; want no empty field", b, m)
			}
		}
	})
}
