package wire

import (
	"crypto/sha256"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestSum(t *testing.T) {
	t.Parallel()
	want := Sum(sha256.Sum256([]byte("a")))
	text := "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb\n"
	if got := string(want.Append(nil)); got != text {
		t.Errorf("Append() = %q; want %q", got, text)
	}
	if got, err := ParseSum([]byte(text)); got != want || err != nil {
		t.Errorf("ParseSum() = %x, %v; want %x", got, err, want)
	}
	for _, bad := range []string{"", "\n", text[2:], "00" + text, text + "00", "zz" + text[2:], text + "\n", strings.Repeat("0", 1000)} {
		if _, err := ParseSum([]byte(bad)); err == nil {
			t.Errorf("ParseSum(%.80q) = nil; want an error", bad)
		}
	}
}

func TestSurveys(t *testing.T) {
	t.Parallel()
	want := []Survey{{"ab12", 3, 4096}, {"", 0, 0}, {"ff", 1 << 40, 1 << 50}}
	var b []byte
	for _, s := range want {
		b = AppendSurvey(b, s)
	}
	if text := "ab12 3 4096\n- 0 0\nff 1099511627776 1125899906842624\n"; string(b) != text {
		t.Errorf("AppendSurvey() = %q; want %q", b, text)
	}
	if got, err := ParseSurveys(b); err != nil || !slices.Equal(got, want) {
		t.Errorf("ParseSurveys(%q) = %+v, %v; want %+v", b, got, err, want)
	}
	for _, bad := range []string{"\n", "ab\n", "ab 1\n", "ab x 1\n", "ab 1 99999999999999999999\n"} {
		if got, err := ParseSurveys([]byte(bad)); err == nil {
			t.Errorf("ParseSurveys(%q) = %+v; want an error", bad, got)
		}
	}
}

func TestTerms(t *testing.T) {
	t.Parallel()
	names := []string{"xterm-256color", "vt100"}
	b := AppendTerms(nil, names)
	if string(b) != "xterm-256color\nvt100\n" {
		t.Errorf("AppendTerms() = %q", b)
	}
	if got := ParseTerms(b); !slices.Equal(got, names) {
		t.Errorf("ParseTerms(%q) = %q; want %q", b, got, names)
	}
	if got := ParseTerms([]byte("a\nb")); !slices.Equal(got, []string{"a", "b"}) { // as hosts used to ask
		t.Errorf("ParseTerms(without a last line end) = %q", got)
	}
}

func TestProcesses(t *testing.T) {
	t.Parallel()
	want := []Process{
		{PID: 12, Parent: 1, Group: 12, State: 'R', CPUTicks: 5, StartTicks: 1 << 40, Pages: 77, Command: "sleep 1"},
		{PID: 13, Parent: 12, Group: -1, State: 'Z', Command: "two\nlines \"1 2 3 S 4\xff"},
		{PID: 4 << 20, State: 'S', Command: ""},
	}
	b := AppendProcesses(nil, want)
	if n := strings.Count(string(b), "\n"); n != len(want) {
		t.Errorf("AppendProcesses() has %d lines; want %d", n, len(want))
	}
	if got, err := ParseProcesses(b); err != nil || !slices.Equal(got, want) {
		t.Errorf("ParseProcesses(%q) = %+v, %v; want %+v", b, got, err, want)
	}
	for _, bad := range []string{"\n", "1 2 3 S 4 5 6\n", "1 2 3 SS 4 5 6 \"a\"\n", "1 2 3 S 4 5 -6 \"a\"\n", "1 2 3 S 4 5 6 a\n", "1 2 3 S 4 5 6 \"a\n"} {
		if got, err := ParseProcesses([]byte(bad)); err == nil {
			t.Errorf("ParseProcesses(%q) = %+v; want an error", bad, got)
		}
	}
}

func TestProcessesAreBounded(t *testing.T) {
	t.Parallel()
	list := make([]Process, 3_500)
	for i := range list {
		list[i] = Process{PID: 4 << 20, Parent: 4 << 20, Group: 4 << 20, State: 'S', Command: strings.Repeat("\x01", 300)}
	}
	b := AppendProcesses(nil, list)
	const most = 8 << 20
	if len(b) > most {
		t.Errorf("AppendProcesses(%d) has %d bytes; want at most %d", len(list), len(b), most)
	}
	if got, err := ParseProcesses(b); err != nil || len(got) != len(list) {
		t.Errorf("ParseProcesses() = %d processes, %v; want %d", len(got), err, len(list))
	}
}

func TestPosture(t *testing.T) {
	t.Parallel()
	var p Posture
	p.Add("Uid", "1000 1000 1000 1000")
	p.Add(FactMasked.Of("/proc/a"), MaskedClosed)
	p.Add(FactInterfaces, "")
	p.AddMount(Mount{Target: "/with space\\\t\n", Type: "ext4", Options: []string{"rw", "nosuid"}, Device: "254:77", Root: "/a b"})
	text := `Uid=1000 1000 1000 1000
masked./proc/a=closed
interfaces=
mount=/with\040space\134\011\012 ext4 rw,nosuid
place=/with\040space\134\011\012 254:77 /a\040b
`
	b := p.Append(nil)
	if string(b) != text {
		t.Errorf("Append() = %q; want %q", b, text)
	}
	got, err := ParsePosture(b)
	if err != nil {
		t.Fatal(err)
	}
	if got.Has(FactInterfaces, "lo") || !got.Has(FactInterfaces, "") {
		t.Errorf("Has(interfaces) does not tell %q from none", "lo")
	}
	mount, ok1 := got[3].Mount()
	where, ok2 := got[4].Mount()
	mount.Device, mount.Root = where.Device, where.Root
	want := Mount{Target: "/with space\\\t\n", Type: "ext4", Options: []string{"rw", "nosuid"}, Device: "254:77", Root: "/a b"}
	if !ok1 || !ok2 || where.Target != want.Target || !reflect.DeepEqual(mount, want) {
		t.Errorf("Mount() = %+v, %t and %+v, %t; want %+v", mount, ok1, where, ok2, want)
	}
	for _, f := range []Fact{{"Uid", "1 2 3"}, {FactMount, "a b"}, {FactMount, "a b c d"}, {FactMount, "a  c"}, {FactPlace, ""}} {
		if m, ok := f.Mount(); ok {
			t.Errorf("%+v.Mount() = %+v; want none", f, m)
		}
	}
	if _, err := ParsePosture([]byte("Uid=1\nno fact\n")); err == nil {
		t.Error("ParsePosture(a line that is not a fact) = nil; want an error")
	}
}
