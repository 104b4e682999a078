package clientfile

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// Everything that a change is not about stays as it is, byte for byte.
func TestSet(t *testing.T) {
	t.Parallel()
	server := map[string]any{"command": "x"}
	for _, test := range []struct {
		name, text string
		change     func(*Document) error
		want       string
	}{
		{"nothing", "", func(d *Document) error { return d.Set(server, "servers", "s") }, "{\n  \"servers\": {\n    \"s\": {\n      \"command\": \"x\"\n    }\n  }\n}\n"},
		{"an empty object", "{}", func(d *Document) error { return d.Set(1, "a") }, "{\n  \"a\": 1\n}"},
		{
			"comments and tabs", "// mine\n{\n\t\"a\": 1, // one\n\t/* two */ \"b\": {\n\t\t\"c\": [1,  2]\n\t}\n}\n",
			func(d *Document) error { return d.Set(true, "b", "d") },
			"// mine\n{\n\t\"a\": 1, // one\n\t/* two */ \"b\": {\n\t\t\"c\": [1,  2],\n\t\t\"d\": true\n\t}\n}\n",
		},
		{
			"a trailing comma and a comment behind it", "{\n  \"a\": 1, // one\n}\n",
			func(d *Document) error { return d.Set(2, "b") },
			"{\n  \"a\": 1,\n  \"b\": 2, // one\n}\n",
		},
		{"one line", `{"a": 1, "b": {"c": 2}}`, func(d *Document) error { return d.Set(3, "b", "d") }, `{"a": 1, "b": {"c": 2, "d": 3}}`},
		{"a replacement", "{\n  \"a\": {\"x\":  1}, // keep\n  \"b\": 2\n}", func(d *Document) error { return d.Set(5, "a") }, "{\n  \"a\": 5, // keep\n  \"b\": 2\n}"},
		{"Windows lines", "{\r\n  \"a\": 1\r\n}\r\n", func(d *Document) error { return d.Set(2, "b") }, "{\r\n  \"a\": 1,\r\n  \"b\": 2\r\n}\r\n"},
		{"an array", "{\n  \"a\": [\n    \"x\" // why\n  ]\n}", func(d *Document) error { return d.Add("y", "a") }, "{\n  \"a\": [\n    \"x\",\n    \"y\" // why\n  ]\n}"},
		{"an array of one line", `{"a": ["x"]}`, func(d *Document) error { return d.Add("y", "a") }, `{"a": ["x", "y"]}`},
		{"an array that has it", `{"a": ["x"]}`, func(d *Document) error { return d.Add("x", "a") }, `{"a": ["x"]}`},
		{"no array", `{"b": 1}`, func(d *Document) error { return d.Add("x", "a") }, "{\"b\": 1, \"a\": [\n  \"x\"\n]}"},
		{"removal", "{\n  // first\n  \"a\": 1,\n  \"b\": 2\n}\n", func(d *Document) error { return d.Remove(0, "b") }, "{\n  // first\n  \"a\": 1\n}\n"},
		{"removal of the first", "{\n  \"a\": 1,\n  \"b\": 2\n}\n", func(d *Document) error { return d.Remove(0, "a") }, "{\n  \"b\": 2\n}\n"},
		{"removal with what held it", "{\n  \"a\": 1,\n  \"s\": {\n    \"x\": {}\n  }\n}\n", func(d *Document) error { return d.Remove(0, "s", "x") }, "{\n  \"a\": 1\n}\n"},
		{"removal of what is not there", `{"a": 1}`, func(d *Document) error { return d.Remove(0, "s", "x") }, `{"a": 1}`},
		{"removal from what was there", `{"s": {"x": {}}}`, func(d *Document) error { return d.Remove(1, "s", "x") }, `{"s": {}}`},
		{"removal from an array that was there", `{"a": ["x"]}`, func(d *Document) error { return d.RemoveFrom("x", 1, "a") }, `{"a": []}`},
		{"removal of all", "{\n  \"a\": 1\n}\n", func(d *Document) error { return d.Remove(0, "a") }, "{}\n"},
		{"removal from an array", "{\n  \"a\": [\n    \"x\",\n    \"y\"\n  ]\n}", func(d *Document) error { return d.RemoveFrom("y", 0, "a") }, "{\n  \"a\": [\n    \"x\"\n  ]\n}"},
		{"removal of an array", `{"b": 1, "a": ["x"]}`, func(d *Document) error { return d.RemoveFrom("x", 0, "a") }, `{"b": 1}`},
	} {
		d, err := ParseJSON([]byte(test.text))
		if err == nil {
			err = test.change(d)
		}
		if err != nil || string(d.Text()) != test.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", test.name, err, d.Text(), test.want)
		}
	}
}

func TestNotUnderstood(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, want string }{
		{"half", "{\n  \"a\": 1,\n  b", "line 3, column 3"},
		{"an array", "\n[]", "line 2, column 1: it is not an object"},
		{"a name twice", "{\n \"a\": 1,\n \"a\": 2}", `line 3, column 2: "a" is there twice`},
		{"a name twice, deeper", "{\"x\": [{\"a\": 1, \"a\": 2}]}", `"a" is there twice`},
		{"a byte order mark", "\ufeff{}", "byte order mark"},
	} {
		if _, err := ParseJSON([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: ParseJSON = %v; want %q", test.name, err, test.want)
		}
	}
	d, err := ParseJSON([]byte("{\n  \"a\": 1,\n  \"o\": { /* only words */ }\n}"))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Set(1, "a", "b"); err == nil || !strings.Contains(err.Error(), "line 2, column 8: a is not an object") {
		t.Errorf("Set below a number: %v", err)
	}
	if err := d.Add(1, "a"); err == nil || !strings.Contains(err.Error(), "a is not an array") {
		t.Errorf("Add to a number: %v", err)
	}
	if err := d.Set(1, "o", "x"); err == nil || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("Set in an object of comments: %v", err)
	}
	if _, err := ParseTOML([]byte("a = 1\nb = \n")); err == nil {
		t.Error("broken TOML is taken")
	} else if p, ok := errors.AsType[*PositionError](err); !ok || p.Line != 2 {
		t.Errorf("broken TOML: %v; want its line", err)
	}
}

// What is set and removed again leaves a document that has the same values as before, and reading
// never fails on what was written.
func FuzzSetAndRemove(f *testing.F) {
	for _, text := range []string{"", "{}", "{\"a\": 1}", "// c\n{\n  \"a\": {\"b\": []}, // d\n}\n", "{\"servers\": {\"s\": 1}}", "{\"servers\": {},}", "{/**/\"x\":1/**/,/**/}", "{\"a\":[1,/*c*/],}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseJSON([]byte(text))
		if err != nil {
			return
		}
		before, had := minimal(d.root), d.Get("servers", "s")
		if err := d.Set(map[string]any{"command": "x", "args": []string{"<y>"}}, "servers", "s"); err != nil {
			return // it says where and why
		}
		if err := d.Add("Bash", "permissions", "deny"); err != nil {
			return
		}
		if !d.Has("Bash", "permissions", "deny") || !EqualTo(d.Get("servers", "s"), map[string]any{"command": "x", "args": []string{"<y>"}}) {
			t.Fatalf("it is not there: %s", d.Text())
		}
		if err := d.RemoveFrom("Bash", 0, "permissions", "deny"); err != nil {
			t.Fatal(err)
		}
		if err := d.Remove(0, "servers", "s"); err != nil {
			t.Fatal(err)
		}
		if d.Get("servers", "s") != nil || d.Has("Bash", "permissions", "deny") {
			t.Fatalf("it is still there: %s", d.Text())
		}
		if had == nil && !sameBut(before, minimal(d.root), "servers", "permissions") {
			t.Errorf("%q became %q", before, d.Text())
		}
	})
}

// sameBut compares all members of two objects but for some.
func sameBut(a, b json.RawMessage, but ...string) bool {
	var x, y map[string]json.RawMessage
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	for _, name := range but {
		delete(x, name)
		delete(y, name)
	}
	if len(x) != len(y) {
		return false
	}
	for name := range x {
		if string(x[name]) != string(y[name]) {
			return false
		}
	}
	return true
}

func TestTOML(t *testing.T) {
	t.Parallel()
	table := Table{Mark: "sandboxbash", Name: []string{"mcp_servers", "sandboxbash"}, Lines: []string{`command = "x"`}}
	const block = "# sandboxbash: begin\n[mcp_servers.sandboxbash]\ncommand = \"x\"\n# sandboxbash: end\n"
	for _, test := range []struct{ name, text, want string }{
		{"nothing", "", block},
		{"a text", "model = \"m\" # mine\n", "model = \"m\" # mine\n\n" + block},
		{"no newline at the end", "[a]\nb = 1", "[a]\nb = 1\n\n" + block},
		{"ours of before", "a = 1\n\n# sandboxbash: begin\n[mcp_servers.sandboxbash]\ncommand = \"old\"\n# sandboxbash: end\n\n[z]\n", "a = 1\n\n" + block + "\n[z]\n"},
	} {
		got, err := SetTable([]byte(test.text), table)
		if err != nil || string(got) != test.want {
			t.Errorf("%s: SetTable = %q, %v; want %q", test.name, got, err, test.want)
			continue
		}
		again, err := SetTable(got, table)
		if err != nil || string(again) != string(got) {
			t.Errorf("%s: SetTable again = %q, %v; want %q", test.name, again, err, got)
		}
		removed, err := RemoveTable(got, table)
		if want := strings.TrimSuffix(test.text, "\n"); err != nil || test.name != "ours of before" && strings.TrimSuffix(string(removed), "\n") != want {
			t.Errorf("%s: RemoveTable = %q, %v; want %q", test.name, removed, err, want)
		}
	}
	if _, err := SetTable([]byte("\n[mcp_servers.sandboxbash]\ncommand = \"mine\"\n"), table); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("SetTable over the user's own table: %v", err)
	}
	for _, test := range []struct{ name, text, want string }{
		{"nothing", "", "[features] # m\nshell_tool = false # m\n"},
		{"a table", "[features] # x\nother = true\n[z]\n", "[features] # x\nshell_tool = false # m\nother = true\n[z]\n"},
		{"another table", "[z]\na = 1\n", "[z]\na = 1\n\n[features] # m\nshell_tool = false # m\n"},
	} {
		got, same, err := SetLine([]byte(test.text), "features", "shell_tool", false, "m")
		if err != nil || same || string(got) != test.want {
			t.Errorf("%s: SetLine = %q, %v, %v; want %q", test.name, got, same, err, test.want)
			continue
		}
		if again, same, err := SetLine(got, "features", "shell_tool", false, "m"); err != nil || !same || string(again) != string(got) {
			t.Errorf("%s: SetLine again = %q, %v, %v", test.name, again, same, err)
		}
		if removed, err := RemoveLines(got, "m"); err != nil || string(removed) != test.text {
			t.Errorf("%s: RemoveLines = %q, %v; want %q", test.name, removed, err, test.text)
		}
	}
	if got, same, err := SetLine([]byte("[features]\nshell_tool = true\n"), "features", "shell_tool", false, "m"); err != nil || same || !strings.Contains(string(got), "true") {
		t.Errorf("SetLine over another value = %q, %v, %v; want it as it was", got, same, err)
	}
	if _, _, err := SetLine([]byte("features = {a = true}\n"), "features", "shell_tool", false, "m"); err == nil {
		t.Error("SetLine into a table in one line is not refused")
	}
	if got, err := RemoveLines([]byte("[features] # m\nmine = 1\nshell_tool = false # m\n"), "m"); err != nil || string(got) != "[features]\nmine = 1\n" {
		t.Errorf("RemoveLines = %q, %v; want what the user has added", got, err)
	}
}
