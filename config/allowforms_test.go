package config_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/sandboxbash/sandboxbash/config"
)

// added adds a rule to a file of that text, and checks what must hold whatever the text is: either it is an
// error and the file is as it was, or the rule is the last of network.allow and nothing else has changed.
func added(t *testing.T, old []byte, rule string) (text []byte, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, old, 0o600); err != nil {
		t.Fatal(err)
	}
	err = config.AddAllow(path, rule)
	text, readErr := os.ReadFile(path)
	if readErr != nil {
		t.Fatal(readErr)
	}
	if err != nil {
		if !bytes.Equal(text, old) || !strings.Contains(err.Error(), path) {
			t.Errorf("AddAllow() to %q = %v, and leaves %q; want it to name the file, unchanged", old, err, text)
		}
		return text, err
	}
	var was, now map[string]any
	if err := yamlv3.Unmarshal(old, &was); err != nil {
		t.Fatalf("AddAllow() to %q = nil, although it is not YAML: %v", old, err)
	}
	if err := yamlv3.Unmarshal(text, &now); err != nil {
		t.Fatalf("AddAllow() to %q leaves %q: %v", old, text, err)
	}
	table, _ := now["network"].(map[string]any)
	list, _ := table["allow"].([]any)
	found := false
	for _, one := range list {
		found = found || one == rule
	}
	if !found {
		t.Errorf("AddAllow(%q) to %q leaves %q, without the rule", rule, old, text)
	}
	delete(was, "network")
	delete(now, "network")
	if len(was)+len(now) > 0 && !reflect.DeepEqual(was, now) {
		t.Errorf("AddAllow() to %q leaves %q: other keys have changed", old, text)
	}
	if err := config.AddAllow(path, rule); err != nil {
		t.Errorf("AddAllow() once more: %v", err)
	}
	if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, text) {
		t.Errorf("AddAllow() once more leaves %q, %v; want %q", again, err, text)
	}
	return text, nil
}

// Forms that a person may have given the file, and whether a rule can be added to them.
func TestAddAllowForms(t *testing.T) {
	t.Parallel()
	for old, ok := range map[string]bool{
		"network: {allow: [a.example,]}\n":                            true,
		"network: {allow: [a.example], deny: [b.example]}\n":          true,
		"network: {deny: ['}]'], mode: none}\n":                       true,
		"network:\n  allow: [\n    a.example, # ] not the end\n  ]\n": false,
		"network:\n  allow: [\"a\\\"]\", 'b'']']\n":                   true,
		"network:\n  allow: # why\n  - a.example # one\n":             true,
		"network:\n  mode: none\n  allow:\n    - a.example":           true,
		"network: {}\n":                           true,
		"network: ~\n":                            false, // there is no table to see
		"network: 'none'\n":                       false,
		"network:\n  none\n":                      false,
		"network: [a]\n":                          false,
		"network: 7\n":                            false,
		"network: {allow: a.example}\n":           false,
		"network:\n  allow: {a: b}\n":             false,
		"network:\n  allow: &x\n  - a\nb: *x\n":   false,
		"{network: {allow: []}}\n":                false,
		"- network\n":                             false,
		"network: none\n---\nimage: host\n":       true,
		"network: {allow: [a.example]\n":          false,
		"a: 1\rnetwork:\r  mode: none\r":          false,
		"a: 1 # \u2028\nnetwork:\n  mode: none\n": false,
		"a: \"\u0085\"\nnetwork: none\n":          false,
		"\u2029\u2029network: {allow: []}":        false,
	} {
		text, err := added(t, []byte(old), "example.com:443")
		if _, told := added(t, text, "two.example"); (err == nil) != ok && old != "network: ~\n" || ok && told != nil {
			t.Errorf("AddAllow() to %q = %v, and again %v; want it to work: %t; it leaves\n%s", old, err, told, ok, text)
		}
	}
}

// No file makes AddAllow panic, or lose what is in it.
func FuzzAddAllow(f *testing.F) {
	for _, old := range []string{
		"", "network: none\n", "network: {allow: [a, 'b']} # c\n", "network:\n  allow:\n    - a\n  deny: [b]\n", "image: host\r\nnetwork:\r\n  mode: none\r\n",
		"é: ü\nnetwork: {mode: \"é\", allow: [\"ü\"]}\n", "\ufeffnetwork: none\n", "a: |\n  network:\nnetwork:\n", "? network\n: allow\n", "a: 1\rnetwork:\r", "%YAML 1.1\n---\nnetwork: none\n...\n",
	} {
		f.Add([]byte(old), "example.com:443")
	}
	f.Fuzz(func(t *testing.T, old []byte, rule string) {
		if len(old) > 4<<10 || len(rule) > 100 || rule != strings.ToValidUTF8(rule, "") || strings.ContainsFunc(rule, func(r rune) bool { return r < ' ' || r > '~' }) {
			return // as rules are
		}
		_, _ = added(t, old, rule)
	})
}

// Calls at the same time lose no rule.
func TestAddAllowAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.yaml")
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			if err := config.AddAllow(path, fmt.Sprintf("host-%d.example", n)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	c, err := config.Load(config.Source{File: path})
	if err != nil || len(c.NetworkRules.Allow) != 20 {
		t.Errorf("Load() = %v with %d rules; want 20", err, len(c.NetworkRules.Allow))
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".sandboxbash-*")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %q, %v", left, err)
	}
}

// What is in the way of the file is said, and stays.
func TestAddAllowInTheWay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	link, readOnly, large := filepath.Join(dir, "link"), filepath.Join(dir, "read-only"), filepath.Join(dir, "large")
	for path, text := range map[string]string{file: "image: host\n", readOnly: "image: host\n", large: "#" + strings.Repeat("x", 2<<20)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(readOnly, 0o400); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Skip("no links here: " + err.Error())
	}
	for path, want := range map[string]string{
		dir: "not a regular file", readOnly: "not for writing", large: "longer than", filepath.Join(file, "config.yaml"): "not a directory",
	} {
		if err := config.AddAllow(path, "a.example"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("AddAllow(%s) = %v; want %q", path, err, want)
		}
	}
	if err := config.AddAllow(link, "a.example"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link became %v, %v", info, err)
	}
	if got, err := os.ReadFile(file); err != nil || !strings.Contains(string(got), "a.example") {
		t.Errorf("the link's file holds %q, %v; want the rule", got, err)
	}
}

// What a forward cannot be is refused with how it is written, and where it came from.
func TestForwardErrors(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"80:0", "x", "::1:80:80"} {
		_, err := config.Load(config.Source{Flags: flags(t, "--forward="+text)})
		if err == nil || !strings.Contains(err.Error(), config.ForwardHint()) || !strings.Contains(err.Error(), "--forward") {
			t.Errorf("--forward=%s: %v; want the flag and %q", text, err, config.ForwardHint())
		}
	}
	c, err := config.Load(config.Source{Flags: flags(t, "--forward=0:80", "--forward=127.0.0.1:8080:90", "--forward=70")})
	want := []config.Forward{{Port: 80}, {Host: "127.0.0.1", Local: 8080, Port: 90}, {Local: 70, Port: 70}}
	if err != nil {
		t.Fatal(err)
	}
	if got := c.NetworkRules.Forward; !reflect.DeepEqual(got, want) {
		t.Errorf("--forward: %+v; want %+v", got, want)
	}
}

// A limit that cannot be kept is refused with its key, and so is a proxy, without its password.
func TestNetworkBounds(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"connections: 0": "network.limits.connections", "burst: 0": "network.limits.burst", "rate: 0": "network.limits.rate",
		"header: 100": "network.limits.header", "header: 2m": "network.limits.header", "idle: 1ms": "network.limits.idle",
		"connections: -1": "network.limits.connections", "rate: 0.0": "network.limits.rate",
	} {
		_, err := config.Load(config.Source{File: write(t, "network: {limits: {"+file+"}}\n")})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s refused", file, err, want)
		}
	}
	if _, err := config.Load(config.Source{File: write(t, "network: {limits: {idle: 100ms, header: 1k, connections: 1, burst: 1}}\n")}); err != nil {
		t.Errorf("the smallest limits: %v; want them taken", err)
	}
	_, err := config.Load(config.Source{File: write(t, "network: {proxy: 'ftp://me:pa55word@proxy.example'}\n")})
	if err == nil || !strings.Contains(err.Error(), "network.proxy") || strings.Contains(err.Error(), "pa55word") {
		t.Errorf("a proxy of another kind: %v; want it refused without its password", err)
	}
}
