package core

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/config"
)

func TestScript(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "script.sh")
	if err := os.WriteFile(file, []byte("from $1 file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		file   string
		args   []string
		script string
		rest   []string
	}{
		{"word", "", []string{"echo hi"}, "echo hi", nil},
		{"arguments", "", []string{"echo $1", "a", "-b", "--", "c"}, "echo $1", []string{"a", "-b", "--", "c"}},
		{"standard input", "", []string{"-", "a"}, "from $1 stdin\r\n", []string{"a"}},
		{"file", file, []string{"a", "b"}, "from $1 file\n", []string{"a", "b"}},
		{"file without arguments", file, nil, "from $1 file\n", nil},
		{"file is standard input", "-", []string{"a"}, "from $1 stdin\r\n", []string{"a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := New("", nil, strings.NewReader("from $1 stdin\r\n"), nil, nil)
			a.Cfg = &config.Config{Run: config.Run{File: test.file}}
			script, rest, err := a.Script(t.Context(), test.args)
			if err != nil || script != test.script || !slices.Equal(rest, test.rest) {
				t.Errorf("script(%q) = %q, %q, %v; want %q, %q", test.args, script, rest, err, test.script, test.rest)
			}
		})
	}
}

// What commands get of this process's environment: what is named, and no more.
func TestCommandEnv(t *testing.T) {
	t.Parallel()
	a := New("", []string{"HOME=/root", "LANG=de_DE", "LANGUAGE=de", "GH_TOKEN=canary-canary", "NOT_SO=secret-value", "PATH=/bin"}, nil, nil, io.Discard)
	a.Cfg = &config.Config{
		Env:     config.Env{Pass: []string{"LANG", "MISSING"}, Set: []string{"A=1", "LANG=C"}},
		Secrets: []config.Secret{{Name: "GH_TOKEN", From: config.FromEnv, Source: "GH_TOKEN", Inject: true}, {Name: "NOT_SO", From: config.FromEnv, Source: "NOT_SO"}},
	}
	if err := a.Secrets(); err != nil {
		t.Fatal(err)
	}
	want := []string{"LANG=de_DE", "GH_TOKEN=canary-canary", "A=1", "LANG=C"}
	if diff := cmp.Diff(want, a.CommandEnv()); diff != "" {
		t.Errorf("commandEnv() differs (-want +got):\n%s", diff)
	}
	if got, want := a.Scrub("canary-canary secret-value"), "[REDACTED:GH_TOKEN] [REDACTED:NOT_SO]"; got != want {
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
	a := New("", []string{"X=value-of-env", "PATH=" + os.Getenv("PATH")}, nil, nil, io.Discard)
	a.Cfg = &config.Config{File: "/c.yaml"}
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
		got, err := a.secretValue(t.Context(), config.Secret{Name: "s", From: test.from, Source: test.source}, a.Cfg.File)
		if got != test.want || (err == nil) != (test.err == "") {
			t.Errorf("secretValue(%s %s) = %q, %v; want %q, error %q", test.from, test.source, got, err, test.want, test.err)
		}
		if err != nil && (!strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "canary")) {
			t.Errorf("secretValue(%s %s) = %v; want %q and no value", test.from, test.source, err, test.err)
		}
	}
}
