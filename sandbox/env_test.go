package sandbox

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/sink"
)

// A session's variables are given to each of its commands, by every process that opens it. Those of a
// command win.
func TestSessionEnv(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		var got []string
		d.on = func(f *fakeRunner, req wire.Request) {
			got = req.Env
			f.answer(nil)
		}
		e := New(d, &fakeImages{env: []string{"PATH=/opt/bin", "HOME=/", "GOPATH=/go", "A=image"}}, Options{})
		s, err := e.Start(t.Context(), Spec{Env: []string{"A=1", "B=2"}, ImageEnv: true})
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"A", "B", "GOPATH"}; !slices.Equal(s.Info().Env, want) {
			t.Errorf("Info().Env = %q; want %q", s.Info().Env, want)
		}
		other := New(d, &fakeImages{}, Options{})
		adopted, err := other.Open(t.Context(), s.ID())
		if err != nil || !slices.Equal(adopted.Info().Env, s.Info().Env) {
			t.Fatalf("Open() = %v, with the variables %q; want those of the session", err, adopted.Info().Env)
		}
		for _, in := range []*Session{s, adopted} {
			if _, err := in.Run(t.Context(), Command{Script: "env", Env: []string{"B=3"}}); err != nil {
				t.Fatal(err)
			}
			for _, kv := range []string{"A=1", "B=3", "GOPATH=/go", "HOME=" + strictHome} {
				if !slices.Contains(got, kv) {
					t.Errorf("the command's variables are %q; want %s", got, kv)
				}
			}
			if slices.Contains(got, "B=2") || slices.Contains(got, "HOME=/") {
				t.Errorf("the command's variables are %q; want the command's own B, and the session's HOME", got)
			}
		}
		other.Close(t.Context()) //nolint:errcheck // it only lets go
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Without ImageEnv nothing of the image's ENV but its PATH counts.
func TestSessionEnvWithoutImage(t *testing.T) {
	t.Parallel()
	l := labelsOf(Spec{User: &User{}}, engine.Image{Env: []string{"PATH=/opt/bin", "A=image"}}, engine.Overlays{})
	if len(l.Env) > 0 || !slices.Contains(l.environment(), "PATH="+standardPath+":/opt/bin") {
		t.Errorf("labelsOf() has the variables %q, and %q", l.Env, l.environment())
	}
}

// What cannot be a variable of a session is refused before anything is made, and no error has a value.
func TestSessionEnvRefused(t *testing.T) {
	t.Parallel()
	const value = "s3cret-value-0123456789"
	known, _, err := sink.NewSecrets([]sink.Secret{{Name: "KNOWN", Value: value}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		env  string
		text string
		hint Hint
	}{
		{"no value", "A", "Invalid bash env name", ""},
		{"bad name", "1A=" + value, "Invalid bash env name: 1A", ""},
		{"NUL", "A=\x00", "NUL byte", ""},
		{"long", "A=" + strings.Repeat("x", maxSessionEnv), "the limit is 65536", ""},
		{"a secret's name", "API_TOKEN=x", "API_TOKEN is a secret", HintSecretEnv},
		{"a secret's value", "PLAIN=x" + value, "PLAIN is a secret", HintSecretEnv},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFakeEngine(t)
				_, err := New(d, &fakeImages{}, Options{Secrets: known}).Start(t.Context(), Spec{Env: []string{tt.env}})
				if err == nil || !strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), value) {
					t.Errorf("Start() = %v; want %q, and no value", err, tt.text)
				}
				if hint, _ := HintOf(err); hint != tt.hint {
					t.Errorf("HintOf() = %q; want %q", hint, tt.hint)
				}
				if v := Judge(err); v.Fault != FaultInput {
					t.Errorf("Judge() = %+v; want bad input", v)
				}
				if took := d.Took(); len(took) > 0 {
					t.Errorf("the engine was asked for %q", took)
				}
			})
		})
	}
}

func TestImageEnv(t *testing.T) {
	t.Parallel()
	scrub := func(text string) string { return strings.ReplaceAll(text, "hunter2", "***") }
	for _, tt := range []struct {
		name       string
		image, own []string
		want       []string
		note       string
	}{
		{"none", nil, []string{"A=1"}, []string{"A=1"}, ""},
		{"ours win", []string{"A=image", "B=image"}, []string{"A=1"}, []string{"A=1", "B=image"}, ""},
		{"the session's own", []string{"PATH=/x", "HOME=/x", "USER=x", "SHELL=/x", "TMPDIR=/x"}, nil, nil, ""},
		{"loads code", []string{"LD_PRELOAD=/x.so", "A=1"}, nil, []string{"A=1"}, "LD_PRELOAD of the image's environment was left out: it makes programs load"},
		{"bad name", []string{"a.b=1"}, nil, nil, "a.b of the image's environment was left out"},
		{"secret", []string{"P=hunter2"}, nil, nil, "P of the image's environment was left out: it holds a secret"},
		{"long", []string{"A=" + strings.Repeat("x", maxSessionEnv)}, []string{"B=1"}, []string{"B=1"}, "the image's environment was left out: the variables"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			env, notes := withImageEnv(tt.image, tt.own, scrub)
			if diff := cmp.Diff(tt.want, env); diff != "" {
				t.Errorf("withImageEnv() (-want +got):\n%s", diff)
			}
			if got := strings.Join(notes, "\n"); tt.note == "" && got != "" || !strings.Contains(got, tt.note) || strings.Contains(got, "hunter2") {
				t.Errorf("withImageEnv() notes %q; want %q", got, tt.note)
			}
		})
	}
}
