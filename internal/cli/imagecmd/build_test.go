package imagecmd

import (
	"reflect"
	"testing"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
)

func TestBuildOptions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		c    config.Build
		want images.BuildOptions
		bad  bool
	}{
		{"the engine's network", config.Build{Network: "engine"}, images.BuildOptions{Ref: "r", Args: map[string]string{}}, false},
		{"no network", config.Build{Network: "none", Base: "host"}, images.BuildOptions{Ref: "r", Base: "host", Network: "none", Args: map[string]string{}}, false},
		{"arguments", config.Build{Network: "engine", Args: []string{"A=1", "B=", "A=x=y"}}, images.BuildOptions{Ref: "r", Args: map[string]string{"A": "x=y", "B": ""}}, false},
		{"no value", config.Build{Args: []string{"A"}}, images.BuildOptions{}, true},
		{"no name", config.Build{Args: []string{"=1"}}, images.BuildOptions{}, true},
	} {
		got, err := buildOptions(tt.c, "r")
		switch {
		case tt.bad && (err == nil || exit.Judge(err).Status != exit.Usage):
			t.Errorf("%s: buildOptions() = %v; want wrong use", tt.name, err)
		case !tt.bad && (err != nil || !reflect.DeepEqual(got, tt.want)):
			t.Errorf("%s: buildOptions() = %+v, %v; want %+v", tt.name, got, err, tt.want)
		}
	}
}

func TestShortID(t *testing.T) {
	t.Parallel()
	for id, want := range map[engine.ImageID]string{"sha256:0123456789abcdef": "0123456789ab", "sha256:01": "01", "0123456789abcdef": "0123456789ab", "": ""} {
		if got := shortID(id); got != want {
			t.Errorf("shortID(%s) = %s; want %s", id, got, want)
		}
	}
}
