package core

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/engine"
)

// Without a terminal progress is one line a step, made safe.
func TestProgressLines(t *testing.T) {
	t.Parallel()
	var errs bytes.Buffer
	p := New("", nil, nil, nil, &errs)
	p.Cfg.Config = &config.Config{}
	shown := NewProgress(p.Streams, p.Cfg)
	for _, s := range []engine.Progress{
		{ID: "layer1", Status: "Downloading", Current: 1, Total: 10},
		{ID: "layer1", Status: "Downloading", Current: 5, Total: 10},
		{ID: "layer2", Status: "Waiting"},
		{ID: "layer1", Status: "Pull complete"},
		{Status: "evil\x1b]0;title\x07 line\nsandboxbash: note: forged"},
	} {
		shown.Show(s)
	}
	shown.Close()
	shown.Show(engine.Progress{Status: "too late"})
	want := "layer1: Downloading\nlayer2: Waiting\nlayer1: Pull complete\nevil line sandboxbash: note: forged\n"
	if errs.String() != want {
		t.Errorf("progress = %q; want %q", errs.String(), want)
	}
	for _, cfg := range []config.Config{{Quiet: true}, {JSON: true}} {
		errs.Reset()
		p.Cfg.Config = &cfg
		shown := NewProgress(p.Streams, p.Cfg)
		shown.Show(engine.Progress{Status: "x"})
		shown.Close()
		if errs.Len() > 0 {
			t.Errorf("progress with %+v = %q; want nothing", cfg, errs.String())
		}
	}
}

// On a terminal progress is a bar for each step that has a size.
func TestProgressBars(t *testing.T) {
	t.Parallel()
	var errs bytes.Buffer
	p := New("", nil, nil, nil, &errs)
	p.Cfg.Config = &config.Config{}
	shown := NewProgress(p.Streams, p.Cfg)
	shown.draw = true
	for _, s := range []engine.Progress{
		{Status: "Pulling"},
		{ID: "layer1", Status: "Downloading", Current: 512, Total: 1024},
		{ID: "layer2", Status: "Downloading", Current: 1, Total: 1024},
		{ID: "layer1", Status: "Downloading", Current: 1024, Total: 1024},
		{ID: "layer1", Status: "Pull complete"},
	} {
		shown.Show(s)
	}
	shown.Close() // also with a bar that is not full
	got := errs.String()
	if !strings.HasPrefix(got, "Pulling\n") || !strings.Contains(got, "layer1 Downloading") || !strings.Contains(got, "1.0 KiB / 1.0 KiB") {
		t.Errorf("progress = %q; want a line and two bars", got)
	}
	if strings.Contains(got, "Pull complete") {
		t.Errorf("progress = %q; want no line for a step that has a bar", got)
	}
}
