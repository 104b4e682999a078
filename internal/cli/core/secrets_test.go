package core

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/config"
)

// What commands get of this process's environment: what is named, and no more.
func TestCommandEnv(t *testing.T) {
	t.Parallel()
	p := New("", []string{"HOME=/root", "LANG=de_DE", "LANGUAGE=de", "GH_TOKEN=canary-canary", "NOT_SO=secret-value", "PATH=/bin"}, nil, nil, io.Discard)
	p.Cfg.Config = &config.Config{
		Env:     config.Env{Pass: []string{"LANG", "MISSING"}, Set: []string{"A=1", "LANG=C"}},
		Secrets: []config.Secret{{Name: "GH_TOKEN", From: config.FromEnv, Source: "GH_TOKEN", Inject: true}, {Name: "NOT_SO", From: config.FromEnv, Source: "NOT_SO"}},
	}
	if err := p.Secrets.Ready(); err != nil {
		t.Fatal(err)
	}
	want := []string{"LANG=de_DE", "GH_TOKEN=canary-canary", "A=1", "LANG=C"}
	if diff := cmp.Diff(want, p.Secrets.CommandEnv()); diff != "" {
		t.Errorf("CommandEnv() differs (-want +got):\n%s", diff)
	}
	if got, want := p.Streams.Scrub("canary-canary secret-value"), "[REDACTED:GH_TOKEN] [REDACTED:NOT_SO]"; got != want {
		t.Errorf("scrub() = %q; want %q", got, want)
	}
}

func TestSecretSources(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	if err := os.WriteFile(path, []byte("value-of-file\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	big := filepath.Join(dir, "big")
	if err := os.WriteFile(big, bytes.Repeat([]byte("canary"), maxSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	p := New("", []string{"X=value-of-env", "PATH=" + os.Getenv("PATH")}, nil, nil, io.Discard)
	for _, test := range []struct {
		from         config.From
		source, want string
		err          string
	}{
		{config.FromEnv, "X", "value-of-env", ""},
		{config.FromEnv, "MISSING", "", ""},
		{config.FromFile, path, "value-of-file", ""},
		{config.FromFile, dir + "/none", "", "secret s: "},
		{config.FromFile, big, "", "longer than"},
		{config.FromCommand, "echo value-of-command; echo canary >&2", "value-of-command", ""},
		{config.FromCommand, "echo canary; exit 3", "", "exit status 3"},
	} {
		got, err := p.Secrets.valueOf(config.Secret{Name: "s", From: test.from, Source: test.source}, "/c.yaml")
		if got != test.want || (err == nil) != (test.err == "") {
			t.Errorf("valueOf(%s %s) = %q, %v; want %q, error %q", test.from, test.source, got, err, test.want, test.err)
		}
		if err != nil && (!strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "canary")) {
			t.Errorf("valueOf(%s %s) = %v; want %q and no value", test.from, test.source, err, test.err)
		}
	}
}

// What another process has found is used, and no source is asked again.
func TestSecretsHandedOver(t *testing.T) {
	t.Parallel()
	list := []config.Secret{
		{Name: "ONE", From: config.FromCommand, Source: "echo value-of-one"},
		{Name: "TWO", From: config.FromEnv, Source: "TWO"},
	}
	starter := New("", []string{"TWO=value-of-two", "PATH=" + os.Getenv("PATH")}, nil, nil, io.Discard)
	starter.Cfg.Config = &config.Config{Secrets: list}
	values := starter.Secrets.values()
	if want := map[string]string{"ONE": "value-of-one", "TWO": "value-of-two"}; !cmp.Equal(values, want) {
		t.Fatalf("values() = %q; want %q", values, want)
	}
	list[0].Source = "echo asked >&2; echo another-value; exit 1"
	p := New("", nil, nil, nil, io.Discard)
	p.Cfg.Config = &config.Config{Secrets: list}
	p.Secrets.Use(values)
	if err := p.Secrets.Ready(); err != nil {
		t.Errorf("Ready() = %v: a source was asked", err)
	}
	if got, want := p.Streams.Scrub("value-of-one value-of-two"), "[REDACTED:ONE] [REDACTED:TWO]"; got != want {
		t.Errorf("scrub() = %q; want %q", got, want)
	}
	p.Secrets.Use(nil)
	if err := p.Secrets.Ready(); err != nil || len(p.Secrets.values()["ONE"]) > 0 {
		t.Errorf("without values: %q, %v", p.Secrets.values(), err)
	}
}
