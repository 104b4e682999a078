package sessioncmd

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

func listOf(t *testing.T) (*lister, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	p := core.New("", []string{"HOME=" + t.TempDir()}, nil, &out, io.Discard)
	p.Cfg.Config = &config.Config{}
	return &lister{commands: &commands{streams: p.Streams, env: p.Env, cfg: p.Cfg, notes: p.Notes, connection: p.Connection}}, &out
}

const listedID = "0199aaaa-bbbb-7ccc-8ddd-eeeeffff0000"

// Rows fit 80 columns, whatever the session is called and wherever its workspace lies.
func TestListFits(t *testing.T) {
	t.Parallel()
	l, out := listOf(t)
	dir := "/home/them/" + strings.Repeat("projects/", 9) + "the-end"
	list := []sandbox.Info{
		{ID: listedID, Name: strings.Repeat("n", 63), Status: "running", Created: time.Now().Add(-47 * time.Hour), Lease: 90 * time.Hour, Workspace: sandbox.Workspace{Kind: sandbox.WorkspaceCopy, Dir: dir}},
		{ID: listedID, Name: "short", Status: sandbox.StatusKept, Workspace: sandbox.Workspace{Kind: sandbox.WorkspaceVolume}, Kept: &sandbox.Kept{Until: time.Now().Add(20*time.Hour + 30*time.Second)}},
	}
	l.env.NoteUse(listedID)
	if err := l.print(list, nil); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for _, line := range lines {
		if utf8.RuneCountInString(line) > 80 {
			t.Errorf("a row has %d columns: %q", utf8.RuneCountInString(line), line)
		}
	}
	for i, wants := range [][]string{{"NAME", "ID", "STATUS", "USED", "LEFT"}, {"nnn…", "eeeeffff", "47h", "90h00m", "copy:…", "the-end"}, {"short", "kept", "20h0", "volume"}} {
		for _, want := range wants {
			if !strings.Contains(lines[i], want) {
				t.Errorf("row %d is %q; want %q in it", i, lines[i], want)
			}
		}
	}
}

func TestListForms(t *testing.T) {
	t.Parallel()
	list := []sandbox.Info{{ID: listedID, Name: "web", Status: "running", Image: "x\x1b[31m"}}
	l, out := listOf(t)
	l.ids = true
	if err := l.print(list, nil); err != nil || out.String() != listedID+"\n" {
		t.Errorf("ids alone = %q, %v", out.String(), err)
	}
	for format, want := range map[string]string{
		"{{.name}} {{.status}}": "web running\n", "{{json .name}}": "\"web\"\n", "": "", "{{.image}}": "x\n",
	} {
		row, err := parseFormat(format)
		if err != nil || format == "" {
			if err != nil || row != nil {
				t.Errorf("parseFormat(%q) = %v, %v", format, row, err)
			}
			continue
		}
		l, out := listOf(t)
		if err := l.print(list, row); err != nil || out.String() != want {
			t.Errorf("--format %q prints %q, %v; want %q", format, out.String(), err, want)
		}
	}
	l, _ = listOf(t)
	row, err := parseFormat("{{.nosuch}}")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.print(list, row); err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("--format of a field that there is not = %v; want an error", err)
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	s := sandbox.Info{ID: listedID, Name: "web-1", Status: "running", Image: "host", Profile: sandbox.Strict, Directory: "/a"}
	for text, want := range map[string]bool{
		"name=web": true, "name=web-1": true, "name=other": false, "id=eeeeffff": true, "status=running": true, "status=run": false,
		"status=kept,status=running": true, "name=web,status=kept": false, "directory=/a": true, "image=host": true, "profile=dev": false,
	} {
		f, err := parseFilters([]string{text})
		if err != nil || f.match(s) != want {
			t.Errorf("filter %q matches: %v, %v; want %v", text, f.match(s), err, want)
		}
	}
	for _, text := range []string{"x=y", "name", "name=", "", "name=a,"} {
		if _, err := parseFilters([]string{text}); err == nil {
			t.Errorf("parseFilters(%q) = nil; want an error", text)
		}
	}
}

func TestLeftText(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, test := range []struct {
		used, kept time.Time
		lease      time.Duration
		status     engine.Status
		want       string
	}{
		{time.Time{}, time.Time{}, 2 * time.Hour, "running", "-"},
		{now, time.Time{}, 2 * time.Hour, "running", "2h00m"},
		{now.Add(-30 * time.Minute), time.Time{}, 2 * time.Hour, "running", "1h30m"},
		{now.Add(-90 * time.Minute), time.Time{}, 2 * time.Hour, "running", "30m"},
		{now.Add(-2*time.Hour + 10*time.Second), time.Time{}, 2 * time.Hour, "running", "10s"},
		{now.Add(-3 * time.Hour), time.Time{}, 2 * time.Hour, "running", "-"}, // something else keeps it
		{now, time.Time{}, 2 * time.Hour, "paused", "-"},
		{time.Time{}, time.Time{}, sandbox.Forever, "running", "never"},
		{now, now.Add(sandbox.Forever - time.Hour), 2 * time.Hour, "running", "never"},
		{now, now.Add(sandbox.Forever - time.Hour), 2 * time.Hour, "paused", "never"},
		{now.Add(-3 * time.Hour), now.Add(5 * time.Hour), 2 * time.Hour, "running", "5h00m"},
		{now, now.Add(time.Hour), 2 * time.Hour, "running", "2h00m"},
		{now, now.Add(-time.Hour), 2 * time.Hour, "running", "2h00m"},
	} {
		if got := leftText(sandbox.Info{Lease: test.lease, Status: test.status}, test.used, test.kept, now); got != test.want {
			t.Errorf("leftText() of %+v = %q; want %q", test, got, test.want)
		}
	}
}
