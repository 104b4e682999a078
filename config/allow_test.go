package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/config"
)

// What is not the rule stays as it was, to the byte.
func TestAddAllow(t *testing.T) {
	t.Parallel()
	const rule = "example.com:443"
	tests := []struct{ name, old, want string }{
		{"no file", "", "network:\n  allow:\n    - \"example.com:443\"\n"},
		{"comments alone", "# mine\n", "# mine\nnetwork:\n  allow:\n    - \"example.com:443\"\n"},
		{"no network", "image: host # here\n\n# end\n", "image: host # here\n\n# end\nnetwork:\n  allow:\n    - \"example.com:443\"\n"},
		{"no line end", "image: host", "image: host\nnetwork:\n  allow:\n    - \"example.com:443\"\n"},
		{"a list", "network:\n  allow:\n    - \"@npm\"   # all\n  # denied\n  deny: []\n", "network:\n  allow:\n    - \"@npm\"   # all\n    - \"example.com:443\"\n  # denied\n  deny: []\n"},
		{"a list at the key's column", "network:\n  allow:\n  - a.example\nimage: host\n", "network:\n  allow:\n  - a.example\n  - \"example.com:443\"\nimage: host\n"},
		{"no list", "network:\n  # why\n  mode: none\n", "network:\n  allow:\n    - \"example.com:443\"\n  # why\n  mode: none\n"},
		{"an empty list", "network:\n  allow:\n  mode: none\n", "network:\n  allow:\n    - \"example.com:443\"\n  mode: none\n"},
		{"a name", "network: none # by default\nimage: host\n", "network: # by default\n  mode: none\n  allow:\n    - \"example.com:443\"\nimage: host\n"},
		{"an empty table", "network:\nimage: host\n", "network:\n  allow:\n    - \"example.com:443\"\nimage: host\n"},
		{"a list in brackets", "network:\n  allow: [\"@npm\", 'a]b.example'] # two\n", ""},
		{"brackets", "network:\n  allow: [\"@npm\"] # one\n", "network:\n  allow: [\"@npm\", \"example.com:443\"] # one\n"},
		{"empty brackets", "network: {allow: []}\n", "network: {allow: [\"example.com:443\"]}\n"},
		{"a table in brackets", "network: {mode: none}\n", "network: {mode: none, allow: [\"example.com:443\"]}\n"},
		{"carriage returns", "network:\r\n  allow:\r\n    - \"@npm\"\r\n", "network:\r\n  allow:\r\n    - \"@npm\"\r\n    - \"example.com:443\"\r\n"},
		{"there already", "network: {allow: [example.com:443]}\n", "network: {allow: [example.com:443]}\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.want == "" {
				tt.want = strings.Replace(tt.old, "'] #", "', \"example.com:443\"] #", 1)
			}
			path := filepath.Join(t.TempDir(), "dir", "config.yaml")
			if tt.old != "" {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(tt.old), 0o640); err != nil {
					t.Fatal(err)
				}
			}
			if err := config.AddAllow(path, rule); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil || string(got) != tt.want {
				t.Errorf("AddAllow() leaves %q, %v; want %q", got, err, tt.want)
			}
			mode := os.FileMode(0o640)
			if tt.old == "" {
				mode = 0o600
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
				t.Errorf("the file's mode is %v, %v; want %v", info.Mode(), err, mode)
			}
		})
	}
}

// A file of a form that cannot be added to is left as it is.
func TestAddAllowRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"{\"image\": \"host\"}\n", "network:\n  allow: \"@npm\"\n", "network: &n {mode: none}\nx: [\n", "network: [a]\n",
		"base: &b\n  allow: [a.example]\nnetwork: *b\n", "---\nimage: host\n...\n", "[network]\nallow = []\n",
	} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := config.AddAllow(path, "example.com:443")
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("AddAllow() to %q = %v; want an error that names the file", text, err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("AddAllow() to %q leaves %q, %v", text, got, err)
		}
	}
}
