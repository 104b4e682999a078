package core

import (
	"bytes"
	"testing"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/engine"
)

// Without a terminal there is no progress, but for the output of a build, made safe.
func TestProgressLines(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		cfg   config.Config
		lines bool
		want  string
	}{
		{"a pull", config.Config{}, false, ""},
		{"a build", config.Config{}, true, "Step 1/2\nevil line sandboxbash: note: forged\n"},
		{"a quiet build", config.Config{Quiet: true}, true, ""},
		{"a build with --json", config.Config{JSON: true}, true, ""},
	} {
		var errs bytes.Buffer
		p := New("", nil, nil, nil, &errs)
		p.Cfg.Config = &row.cfg
		shown := NewProgress(p.Cfg, "building")
		if row.lines {
			shown.Lines()
		}
		for _, s := range []engine.Progress{
			{Status: "Step 1/2"},
			{ID: "layer1", Status: "Downloading", Current: 1, Total: 10},
			{ID: "layer2", Status: "Waiting"},
			{Status: "evil\x1b]0;title\x07 line\nsandboxbash: note: forged"},
		} {
			shown.Show(s)
		}
		shown.Close()
		shown.Show(engine.Progress{Status: "too late"})
		shown.Close()
		if errs.String() != row.want {
			t.Errorf("%s: %q; want %q", row.name, errs.String(), row.want)
		}
	}
}

// The bytes of all layers are summed up, each once.
func TestProgressText(t *testing.T) {
	t.Parallel()
	p := New("", nil, nil, nil, nil)
	p.Cfg.Config = &config.Config{}
	shown := NewProgress(p.Cfg, "starting web")
	for _, row := range []struct {
		step engine.Progress
		want string
	}{
		{engine.Progress{ID: "13", Status: "Pulling from library/debian"}, "starting web: Pulling from library/debian"},
		{engine.Progress{ID: "a", Status: "Downloading", Current: 1e6, Total: 10e6}, "starting web: Downloading, 1MB of 10MB"},
		{engine.Progress{ID: "b", Status: "Downloading", Current: 5e6, Total: 20e6}, "starting web: Downloading, 6MB of 30MB"},
		{engine.Progress{ID: "a", Status: "Extracting", Current: 1e6, Total: 40e6}, "starting web: Extracting, 15MB of 30MB"},
		{engine.Progress{ID: "b", Status: "Downloading", Current: 90e6, Total: 20e6}, "starting web: Downloading, 30MB of 30MB"},
		{engine.Progress{ID: "b", Status: "Pull complete"}, "starting web: Pull complete, 30MB of 30MB"},
	} {
		shown.count(row.step)
		if got := shown.text(row.step); got != row.want {
			t.Errorf("%+v: %q; want %q", row.step, got, row.want)
		}
	}
	for i := range 2 * maxSteps {
		shown.count(engine.Progress{ID: string(rune('一' + i)), Status: "x", Total: 1})
	}
	if len(shown.steps) > maxSteps+1 {
		t.Errorf("%d steps are kept", len(shown.steps))
	}
}
