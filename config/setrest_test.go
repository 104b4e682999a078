package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/sandboxbash/sandboxbash/config"
)

// settable are values that settings of every kind can be set to.
var settable = map[string][]string{
	"timeout": {"7m"}, "grace": {"1s"}, "image": {"tools:1"}, "quiet": {"true"}, "profile": {"dev"}, "network": {"bridge"},
	"limits.memory": {"3g"}, "limits.cpus": {"1.5"}, "limits.pids": {"99"}, "env.pass": {"LANG", "TZ"}, "env.set": {"A=1, 2", "B=#x"},
	"network.allow": {"example.com", "@npm"}, "network.limits.rate": {"7"}, "session.idle": {"9m"}, "artifacts.retention": {"3d"},
}

// documents are files in the forms that people write.
var documents = []string{
	"",
	"# only a comment\n",
	"timeout: 1m",
	"---\ntimeout: 1m # why\n\n# about images\nimage: \"a:1\"\n",
	"limits:\n  # not much\n  memory: 1g\n\n  cpus: 2\nenv:\n  pass: [A, B] # two\n",
	"limits:\n    memory: 1g\nenv:\n    pass:\n    - A\n    - B\nquiet: false\n",
	"network:\n  mode: none\n  allow:\n    - a.example # the first\n    - b.example\n",
	"network: none\nsecrets:\n  - {name: TOKEN_ONE, from: env, source: X}\n",
	"limits:\nenv:\nnetwork:\n",
	"timeout: 1m\r\nlimits:\r\n  memory: 1g\r\n",
	"policy:\n  rules:\n    - {pattern: 'a#b', tool: t, message: m}\n",
}

// comments are the comments of a text.
func comments(text string) (list []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if at := strings.Index(line, "# "); at == 0 || at > 0 && line[at-1] == ' ' {
			list = append(list, line[at:])
		}
	}
	return list
}

// without is a document without one key, and without the tables that are empty then.
func without(doc map[string]any, keys []string) map[string]any {
	out := map[string]any{}
	for name, value := range doc {
		table, isTable := value.(map[string]any)
		switch {
		case name != keys[0]:
		case len(keys) == 1:
			continue
		case isTable:
			value = without(table, keys[1:])
		}
		if table, isTable := value.(map[string]any); value == nil || isTable && len(table) == 0 {
			continue
		}
		out[name] = value
	}
	return out
}

func parsed(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var doc map[string]any
	if err := yamlv3.Unmarshal(text, &doc); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if mode, ok := doc["network"].(string); ok { // what the name is short for
		doc["network"] = map[string]any{"mode": mode}
	}
	return doc
}

// Set changes one setting: the others, and all comments, are what they were.
func TestSetKeepsTheRest(t *testing.T) {
	t.Parallel()
	edited := 0
	for _, was := range documents {
		for key, texts := range settable {
			src, path := fileSource(t, was)
			src.Environ = []string{"X=a-secret-value"}
			err := config.Set(src, key, texts...)
			now, readErr := os.ReadFile(path)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if err != nil {
				if string(now) != was || !strings.Contains(err.Error(), "by hand") {
					t.Errorf("Set(%s) in %q = %v; the file is %q", key, was, err, now)
				}
				continue
			}
			edited++
			keys := strings.Split(key, ".")
			if key == "network" {
				keys = []string{"network", "mode"}
			}
			if before, after := without(parsed(t, []byte(was)), keys), without(parsed(t, now), keys); !reflect.DeepEqual(before, after) {
				t.Errorf("Set(%s) in %q changes others: %v to %v", key, was, before, after)
			}
			if a, b := comments(was), comments(string(now)); !slices.Equal(a, b) {
				t.Errorf("Set(%s) in %q: the comments were %q and are %q", key, was, a, b)
			}
			values, err := config.Values(src)
			if err != nil {
				t.Errorf("Set(%s) in %q makes a file that cannot be loaded: %v:\n%s", key, was, err, now)
				continue
			}
			i := slices.IndexFunc(values, func(v config.Value) bool { return v.Key == key })
			if want := strings.Join(texts, ", "); values[i].Text != want || values[i].Origin != path {
				t.Errorf("Set(%s) in %q: the value is %+v; want %q", key, was, values[i], want)
			}
		}
	}
	if all := len(documents) * len(settable); edited < all*9/10 {
		t.Errorf("%d of %d were edited; want nearly all", edited, all)
	}
}

// To set what is set already changes nothing, and to set it again gives the last value.
func TestSetTwice(t *testing.T) {
	t.Parallel()
	for _, was := range documents {
		src, path := fileSource(t, was)
		var texts []string
		for _, value := range []string{"7m", "7m", "8m"} {
			if err := config.Set(src, "timeout", value); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(b))
		}
		if texts[0] != texts[1] || strings.Replace(texts[1], "7m", "8m", 1) != texts[2] {
			t.Errorf("in %q: %q", was, texts)
		}
	}
}

// Calls at once wait for each other: no setting is lost.
func TestSetAtOnce(t *testing.T) {
	t.Parallel()
	src := config.Source{File: filepath.Join(t.TempDir(), "new", "config.yaml")}
	var all sync.WaitGroup
	for key, texts := range settable {
		if key == "network" { // it may be there as a table first
			continue
		}
		all.Go(func() {
			if err := config.Set(src, key, texts...); err != nil {
				t.Errorf("Set(%s) = %v", key, err)
			}
		})
	}
	all.Wait()
	values, err := config.Values(src)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		if texts := settable[v.Key]; texts != nil && v.Key != "network" && v.Text != strings.Join(texts, ", ") {
			t.Errorf("%s is %q; want %q", v.Key, v.Text, texts)
		}
	}
	if info, err := os.Stat(src.File); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the new file has the mode %v, %v; want it private", info.Mode(), err)
	}
}

// A link to the file stays one, and a file that is not this user's to write is left alone.
func TestSetFile(t *testing.T) {
	t.Parallel()
	src, path := fileSource(t, "timeout: 1m\n")
	link := filepath.Join(t.TempDir(), "link.yaml")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	src.File = link
	if err := config.Set(src, "timeout", "2m"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v; want a link", info.Mode(), err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "timeout: 2m\n" {
		t.Errorf("the file is %q, %v", b, err)
	}
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	if err := config.Set(src, "timeout", "3m"); err == nil || !strings.Contains(err.Error(), "it is not for writing") {
		t.Errorf("Set() of a file that is read-only = %v", err)
	}
	if err := config.Set(config.Source{File: t.TempDir()}, "timeout", "3m"); err == nil || !strings.Contains(err.Error(), "it is not a regular file") {
		t.Errorf("Set() of a directory = %v", err)
	}
}

// FuzzSet holds what Set must do with any file: it changes the one setting, or nothing.
func FuzzSet(f *testing.F) {
	for _, text := range documents {
		f.Add(text, "7m")
	}
	f.Add("limits: {memory: 1g}\n", "1")
	f.Add("timeout: |\n  1m\nquiet: true\n", "9s")
	f.Fuzz(func(t *testing.T, was, value string) {
		src, path := fileSource(t, was)
		err := config.Set(src, "timeout", value)
		now, readErr := os.ReadFile(path)
		if readErr != nil {
			t.Fatal(readErr)
		}
		if err != nil {
			if string(now) != was {
				t.Fatalf("Set(%q) = %v, and the file is %q; want %q", value, err, now, was)
			}
			return
		}
		var before, after map[string]any
		if yamlv3.Unmarshal([]byte(was), &before) != nil || yamlv3.Unmarshal(now, &after) != nil {
			t.Fatalf("Set(%q) in %q makes %q", value, was, now)
		}
		for name := range before {
			if strings.EqualFold(name, "timeout") {
				delete(before, name)
			}
		}
		for name := range after {
			if strings.EqualFold(name, "timeout") {
				delete(after, name)
			}
		}
		if fmt.Sprint(before) != fmt.Sprint(after) {
			t.Fatalf("Set(%q) in %q changes others: %q", value, was, now)
		}
	})
}
