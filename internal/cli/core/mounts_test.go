package core

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// A mount shows a session neither the user's whole home nor what this program keeps.
func TestCheckMounts(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(root, "users", "me")
	state, settings := filepath.Join(home, ".local", "state"), filepath.Join(home, ".config")
	data := filepath.Join(home, "data")
	for _, dir := range []string{filepath.Join(state, "sandboxbash", "net"), settings, data} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	env := &Environment{}
	env.Use([]string{"HOME=" + home, "USERPROFILE=" + home, "XDG_STATE_HOME=" + state, "XDG_CONFIG_HOME=" + settings})
	for _, tt := range []struct{ dir, want string }{
		{data, ""},
		{filepath.Join(home, "data", ".."), "holds your home directory"},
		{filepath.Join(root, "users"), "holds your home directory"},
		{state, "holds what programs keep for you"},
		{filepath.Join(state, "sandboxbash", "net"), "is a part of what this program keeps"},
		{settings, "holds configurations of all kinds"},
	} {
		c := &Configuration{Config: &config.Config{Profile: "strict", Workspace: "volume", Mounts: []string{tt.dir + ":/data"}, Caches: []string{"npm:/npm:ro"}}, env: env, notes: &Notes{}}
		spec, err := c.Spec()
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("Spec() with %s = %v", tt.dir, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("Spec() with %s = %v; want %q", tt.dir, err, tt.want)
		}
		if want := (sandbox.Mount{Cache: "npm", Target: "/npm", ReadOnly: true}); err == nil && (len(spec.Mounts) != 2 || spec.Mounts[1] != want) {
			t.Errorf("Spec() has the mounts %+v; want the directory, and %+v", spec.Mounts, want)
		}
	}
	for _, bad := range []config.Config{{Mounts: []string{"x"}}, {Caches: []string{"x"}}, {Mounts: []string{"/nosuch-dir:/d"}}} {
		bad.Profile, bad.Workspace = "strict", "volume"
		c := &Configuration{Config: &bad, env: env, notes: &Notes{}}
		if _, err := c.Spec(); err == nil || !strings.Contains(err.Error(), "x") && !strings.Contains(err.Error(), "/nosuch-dir") {
			t.Errorf("Spec() of %q, %q = %v; want what is wrong", bad.Mounts, bad.Caches, err)
		}
	}
}
