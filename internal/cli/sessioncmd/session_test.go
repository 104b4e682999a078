package sessioncmd

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// What a session is made from is not its own text: names are shown as they are, and none
// begins a line.
func TestDescribe(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := core.New("", nil, nil, &out, io.Discard)
	p.Cfg.Config = &config.Config{}
	a := &commands{streams: p.Streams, env: p.Env, cfg: p.Cfg, notes: p.Notes, connection: p.Connection}
	size := int64(2048)
	info := sandbox.Info{
		ID: "0199", Status: "running", Image: "evil\nid  forged", ImageID: "sha256:1", Profile: sandbox.Strict, User: sandbox.User{UID: 7, GID: 8},
		Network: sandbox.NetworkNone, Limits: sandbox.Limits{Memory: 1 << 30, CPUs: 1.5, Pids: 64, Tmp: 1 << 20}, LeaseText: "8h0m0s",
		Workspace: sandbox.Workspace{Kind: sandbox.WorkspaceCopy, Dir: "/src", Target: "/workspace"}, Created: time.Now(),
		Kept: &sandbox.Kept{Until: time.Unix(0, 0), Cause: "lease", Bytes: &size},
	}
	if err := a.describe(t.Context(), info); err != nil {
		t.Fatal(err)
	}
	_ = p.Streams.EndMasked()
	rows := map[string]string{}
	for line := range strings.Lines(out.String()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if _, twice := rows[name]; twice {
			t.Errorf("there are two rows %q: %q", name, out.String())
		}
		rows[name] = strings.TrimSpace(value)
	}
	for name, want := range map[string]string{
		"id": "0199", "image": `evil\nid  forged (sha256:1)`, "user": "7:8", "workspace": "copy:/src at /workspace", "memory": "1GiB", "cpus": "1.5",
		"disk": "no limit", "tmp": "1MiB, in memory", "idle": "8h0m0s",
	} {
		if rows[name] != want {
			t.Errorf("%s is %q; want %q", name, rows[name], want)
		}
	}
	if !strings.HasPrefix(rows["kept"], "2KiB, until ") || !strings.HasSuffix(rows["kept"], "the session has ended: lease") {
		t.Errorf("kept is %q", rows["kept"])
	}
	for _, none := range []string{"owner", "container"} {
		if value, is := rows[none]; is {
			t.Errorf("%s is %q; want no row", none, value)
		}
	}
}

// Flags that do something irreversible are the command line's alone.
func TestPullForce(t *testing.T) {
	t.Parallel()
	f := (&files{connection: &core.Connection{}}).pullCommand().Flags().Lookup("force")
	if f == nil || f.DefValue != "false" || f.Shorthand != "f" {
		t.Fatalf("pull has the flag %+v", f)
	}
	for s := range config.Settings() {
		if s.Flag == "force" {
			t.Errorf("--force is the setting %s", s.Key)
		}
	}
}

// With --exit-code a difference is a finding.
func TestExitCode(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ ask, differs, finding bool }{{true, true, true}, {true, false, false}, {false, true, false}} {
		p := core.New("", nil, nil, io.Discard, io.Discard)
		p.Cfg.Config = &config.Config{ExitCode: tt.ask}
		err := (&differ{files: &files{streams: p.Streams, cfg: p.Cfg}}).status(tt.differs)
		if (err != nil) != tt.finding {
			t.Errorf("status(%t), asked %t = %v; want a finding: %t", tt.differs, tt.ask, err, tt.finding)
		}
	}
}
