package core

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/enginetest"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// A list is a table or one JSON document, which is never null.
func TestList(t *testing.T) {
	t.Parallel()
	type row struct {
		Name string `json:"name"`
		N    int    `json:"n"`
	}
	for _, test := range []struct {
		name string
		json bool
		list []row
		want string
	}{
		{"a table", false, []row{{"a", 1}, {"long name", 22}}, "NAME       N\na          1\nlong name  22\n"},
		{"an empty table", false, nil, "NAME  N\n"},
		{"JSON", true, []row{{"a", 1}}, `[{"name":"a","n":1}]` + "\n"},
		{"no JSON elements", true, nil, "[]\n"},
		{"a secret", true, []row{{"c4nary-0123456789", 1}}, `[{"name":"[REDACTED:X_TOKEN]","n":1}]` + "\n"},
	} {
		var out bytes.Buffer
		p := New("", []string{"X_TOKEN=c4nary-0123456789"}, nil, &out, io.Discard)
		p.Cfg.Config = &config.Config{JSON: test.json}
		err := List(p.Cfg, test.list, "NAME\tN", func(r row) string {
			b, _ := json.Marshal(r.N)
			return r.Name + "\t" + string(b)
		})
		_ = p.Streams.EndMasked()
		if err != nil || out.String() != test.want {
			t.Errorf("%s: List() = %v, %q; want %q", test.name, err, out.String(), test.want)
		}
	}
}

// One object is printed with --json, whether a command has a result or an error; without --json, and
// for an error that was said, the error is left to the program.
func TestOneObject(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		args   []string
		err    error
		status int // 0: the error itself is returned
		want   string
	}{
		{"no error", []string{"--json"}, nil, 0, ""},
		{"without --json", nil, errors.New("x"), 0, ""},
		{"said", []string{"--json"}, exit.StatusError(7), 0, ""},
		{
			"wrong use",
			[]string{"--json"},
			exit.Misuse("do better", "bad %s", "c4nary-0123456789"), exit.Usage,
			`{"error":{"outcome":"not-started","cause":"usage","message":"bad [REDACTED:X_TOKEN]","hint":"do better"},"notes":["a note"]}` + "\n",
		},
	} {
		var out bytes.Buffer
		p, _, err := loaded(t, []string{"X_TOKEN=c4nary-0123456789"}, test.args...)
		if err != nil {
			t.Fatal(err)
		}
		p.Streams.Stdout = p.Streams.Masked(&out)
		p.Notes.Add("a note")
		err = p.Notes.OneObject(func(*cobra.Command, []string) error { return test.err })(nil, nil)
		_ = p.Streams.EndMasked()
		if status, ok := errors.AsType[exit.StatusError](err); test.status != 0 && (!ok || int(status) != test.status) || test.status == 0 && !errors.Is(err, test.err) {
			t.Errorf("%s: the error is %v; want status %d", test.name, err, test.status)
		}
		if out.String() != test.want {
			t.Errorf("%s: it prints %q; want %q", test.name, out.String(), test.want)
		}
	}
}

// noImages has none.
type noImages struct{}

func (noImages) Resolve(context.Context, string, func(engine.Progress)) (engine.Image, error) {
	return engine.Image{}, errors.New("there are no images")
}

func (noImages) ResolveDefault(context.Context, func(engine.Progress)) (engine.Image, string, error) {
	return engine.Image{}, "", errors.New("there are no images")
}

func (noImages) Prune(context.Context) ([]string, error) { return nil, nil }

// An engine is found when it is first needed, and what asks it fails as finding it does.
func TestBackend(t *testing.T) {
	t.Parallel()
	p, _, err := loaded(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	memory := enginetest.New()
	memory.Facts.Address = "memory:1"
	gone := errors.New("the engine is gone")
	found := 0
	p.Connection.Backend = func(context.Context) (engine.Engine, sandbox.Images, error) {
		found++
		if found > 2 {
			return nil, nil, gone
		}
		return memory, noImages{}, nil
	}
	if address, err := p.Connection.Address(t.Context()); address != "memory:1" || err != nil {
		t.Errorf("Address() = %q, %v", address, err)
	}
	sessions, err := p.Connection.Sessions(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := sessions.List(t.Context()); len(list) != 0 || err != nil {
		t.Errorf("List() = %v, %v", list, err)
	}
	if _, err := sessions.Start(t.Context(), sandbox.Spec{}); err == nil || !strings.Contains(err.Error(), "there are no images") {
		t.Errorf("Start() = %v; want what the images say", err)
	}
	if err := sessions.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := p.Connection.Address(t.Context()); !errors.Is(err, gone) {
		t.Errorf("Address() = %v; want %v", err, gone)
	}
	if _, err := p.Connection.Sessions(t.Context(), nil, nil); !errors.Is(err, gone) {
		t.Errorf("Sessions() = %v; want %v", err, gone)
	}
}

// Asks gives a command the sessions, and lets go of them whatever it returns.
func TestAsks(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")
	for _, want := range []error{nil, bad} {
		p := New("", []string{"HOME=" + t.TempDir()}, nil, io.Discard, io.Discard)
		p.Connection.Backend = func(context.Context) (engine.Engine, sandbox.Images, error) { return enginetest.New(), noImages{}, nil }
		cmd := &cobra.Command{Use: "x"}
		cmd.SetContext(t.Context())
		var got []string
		err := p.Connection.Asks(func(_ context.Context, sessions *sandbox.Engine, args []string) error {
			if sessions == nil {
				t.Error("there are no sessions")
			}
			got = args
			return want
		})(cmd, []string{"a", "b"})
		if !errors.Is(err, want) || !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("Asks() = %v, with %q; want %v", err, got, want)
		}
		p.Close()
	}
}

// The note about a kept workspace that was dropped names the setting that bounds it.
func TestDropped(t *testing.T) {
	t.Parallel()
	size := int64(2048)
	for why, want := range map[sandbox.Dropped]string{sandbox.DroppedAge: "(keep.for)", sandbox.DroppedCount: "(keep.count)", sandbox.DroppedDisk: "(keep.disk)"} {
		var errs bytes.Buffer
		p := New("", nil, nil, io.Discard, &errs)
		p.Cfg.Config = &config.Config{}
		p.Notes.dropped(sandbox.Info{
			ID: "0199", Workspace: sandbox.Workspace{Kind: sandbox.WorkspaceCopy, Dir: "/src"}, Kept: &sandbox.Kept{Bytes: &size},
		}, why)
		_ = p.Streams.EndMasked()
		if got := errs.String(); !strings.HasPrefix(got, "sandboxbash: note: removed the kept workspace of session 0199 (copy:/src, 2KiB): ") || !strings.Contains(got, want) {
			t.Errorf("dropped(%v) says %q; want %s in it", why, got, want)
		}
	}
}
