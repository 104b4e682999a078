package tool

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/corpus"
)

func TestExpand(t *testing.T) {
	t.Parallel()
	u := URLs{
		Skills:   []Skill{{Name: "s", Dir: "/skills/s"}, {Name: "a:b", Dir: "/skills/ab", File: "/skills/ab/READ.md"}},
		Local:    &Local{Artifacts: "/art"},
		Resolver: router{"agent://x": {Path: "/art/x.md"}, "artifact://1": {Path: "/art/it's.log"}},
	}
	for _, test := range []struct{ text, want string }{
		{"cat agent://x", "cat '/art/x.md'"},
		{"cat(agent://x)", "cat('/art/x.md')"},
		{"cat <agent://x >y", "cat <'/art/x.md' >y"},
		{"A=agent://x b", "A='/art/x.md' b"},
		{"cat artifact://1", `cat '/art/it'\''s.log'`},
		{`cat "agent://x"y`, `cat '/art/x.md'y`},
		{`cat 'agent://x"`, `cat ''/art/x.md'"`},
		{`cat "agent://x'`, `cat "'/art/x.md''`},
		{"myagent://x", "my'/art/x.md'"},
		{"cat agent://x\u00a0y", "cat '/art/x.md'\u00a0y"},
		{"cat agent://x\\ y", "cat '/art/x.md'\\ y"},
		{"x'local:/a'", "x'/art/local/a'"},
		{"x/local:///a", "x/'/art/local/a'"},
		{"x/local://", "x/local://"},
		{"local://a?q#f", "'/art/local/a'"},
		{"skill://s", "'/skills/s/SKILL.md'"},
		{"skill://s/", "'/skills/s/SKILL.md'"},
		{"skill://s?x", "'/skills/s/SKILL.md'"},
		{"skill://s/a%20b?x#y", "'/skills/s/a b'"},
		{"skill://a:b", "'/skills/ab/READ.md'"},
		{"skill://a:b:", "'/skills/ab/READ.md'"},
		{"skill://a:b:1:2/x", "'/skills/ab/x/1:2'"},
		{"http://x agents:/x file:/x", "http://x agents:/x file:/x"},
		{"skill://s/../x", "error: Path traversal (..) is not allowed in skill:// URLs"},
		{"skill://s/a/..b", "error: Path traversal (..) is not allowed in skill:// URLs"},
		{"skill://s/%zz", "error: Invalid skill:// URL path encoding: skill://s/%zz"},
		{"skill://s/%ff", "error: Invalid skill:// URL path encoding: skill://s/%ff"},
		{"skill://s/%00", "error: Invalid skill:// URL path encoding: skill://s/%00"},
		{"skill://:s", "error: Unknown skill: :s. Available: s, a:b"},
		{"local://../x", "error: Path traversal (..) is not allowed in local:// URLs"},
		{"local:////etc", "error: Absolute paths are not allowed in local:// URLs"},
		{"local://%2Fetc", "error: Absolute paths are not allowed in local:// URLs"},
		{"local://a%00", "error: Invalid URL encoding in local:// path: local://a%00"},
		{"plan://x", "error: Cannot resolve plan:// URL in bash command: plan://x\nInternal URL router is unavailable for this protocol in the current session."},
		// The last one is reported first.
		{"skill://no agent://no", "error: Failed to resolve agent:// URL in bash command: agent://no\nNo mapping for agent://no"},
	} {
		got, found, err := u.expand(test.text, Expansion{Field: fieldCommand}, nil)
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != test.want {
			t.Errorf("expand(%q) = %q, %+v; want %q", test.text, got, found, test.want)
		}
	}
	if _, err := u.resolve("vault", "vault://x"); err == nil || err.Error() != "Unsupported internal URL in bash command: vault://x" {
		t.Errorf("resolve(vault://x) = %v", err)
	}
	for id, want := range map[string]string{"": "session", ".": "session", "..": "session", "a/b:c": "a_b_c", "é😀": "___", `a\b`: "a_b"} {
		if got := SafeSession(id); got != want {
			t.Errorf("safeSession(%q) = %q; want %q", id, got, want)
		}
	}
}

func TestRoots(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"0.bash.log", "10.bash-original.log", "10.bash.log", "2.bash.log.partial", "worker.md", "notes.txt", "mem/memory_summary.md", "mem/a/b.md", "secret"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "secret"), filepath.Join(dir, "mem", "link")); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(map[string]any{
		"artifacts_dir": dir, "memory_root": filepath.Join(dir, "mem"), "rules": []map[string]string{{"name": "r", "path": "/rules/r.md"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := parseContext(raw)
	if err != nil {
		t.Fatal(err)
	}
	var h Host
	c.apply(&h)
	memory, err := filepath.EvalSymlinks(filepath.Join(dir, "mem"))
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"artifact://10":        filepath.Join(dir, "10.bash.log"),
		"artifact://2":         "error: Artifact 2 not found. Available: 0, 10",
		"artifact://x":         "error: artifact:// ID must be numeric, got: x",
		"artifact://1/../x":    "error: artifact:// ID must be numeric, got: 1/../x",
		"artifact://%31":       "error: artifact:// ID must be numeric, got: %31",
		"artifact://":          "error: artifact:// URL requires a numeric ID: artifact://0",
		"agent://worker":       filepath.Join(dir, "worker.md"),
		"agent://../secret":    "error: Not found: ../secret\nAvailable: worker",
		"rule://r":             "/rules/r.md",
		"rule://q":             "error: Unknown rule: q\nAvailable: r",
		"memory://root":        filepath.Join(memory, "memory_summary.md"),
		"memory://root/a/b.md": filepath.Join(memory, "a", "b.md"),
		"memory://root/gone":   "error: Memory file not found: memory://root/gone",
		"memory://root/link":   "error: memory:// URL escapes memory root",
		"memory://root/../x":   "error: Path traversal (..) is not allowed in memory:// URLs",
		"memory://root//x":     "error: Absolute paths are not allowed in memory:// URLs",
		"memory://root/%zz":    "error: Invalid URL encoding in memory:// path: memory://root/%zz",
		"memory://root/a":      "error: memory:// URL must resolve to a file: memory://root/a",
		"memory:///x":          "error: memory:// URL requires a namespace: memory://root",
		"plan://x":             "error: " + ErrNoHandler.Error(),
	} {
		scheme, _, _ := strings.Cut(url, "://")
		got, err := h.URLs.Resolver.Resolve(scheme, url)
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want {
			t.Errorf("Resolve(%s) = %q; want %q", url, got, want)
		}
	}
	if _, err := (Roots{}).Resolve("memory", "memory://root"); err == nil || !strings.HasPrefix(err.Error(), "Memory artifacts are not available") {
		t.Errorf("Resolve() without memory = %v", err)
	}
}

func TestContext(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"skils":[]}`:          `context: there is no field "skils"`,
		`{"skills":{}}`:         "context: skills: it cannot be a JSON object",
		`[]`:                    "context: expected an object, got an array",
		`{"local":1,"local":2}`: `context: "local" is given twice`,
	} {
		if _, err := parseContext(json.RawMessage(raw)); err == nil || err.Error() != want {
			t.Errorf("parseContext(%s) = %v; want %s", raw, err, want)
		}
	}
	c, err := parseContext(json.RawMessage(`{"session_cwd":"/srv","home":"/root","local":null}`))
	var h Host
	c.apply(&h)
	if err != nil || h.Dir != "/srv" || h.Home != "/root" || h.URLs.Local != nil || h.URLs.Resolver != nil {
		t.Errorf("host %+v, %v", h, err)
	}
}

func TestURLCorpus(t *testing.T) {
	t.Parallel()
	type row struct {
		Field   string          `json:"field"`
		Input   string          `json:"input"`
		Context json.RawMessage `json:"context"`
		Output  *string         `json:"output"`
		Error   *string         `json:"error"`
		Prefix  string          `json:"error_prefix"`
		Suffix  string          `json:"error_suffix"`
	}
	corpus.File{Path: "tool/testdata/urls.jsonl", Ran: 79}.Run(t, func(t *testing.T, c corpus.Row) {
		t.Helper()
		var r row
		c.Into(t, &r)
		if c.Kind == "resolver_error" {
			checkResolverError(t, c.ID, r.Input, r.Prefix, r.Suffix)
			return
		}
		ctx, err := parseContext(r.Context)
		if err != nil {
			t.Fatal(err)
		}
		h := defaultHost()
		ctx.apply(&h)
		if h.URLs.Local != nil {
			h.URLs.Local.Temp = "/tmp"
		}
		fields := map[string]any{"command": "true"}
		switch r.Field {
		case fieldEnv:
			fields["env"] = map[string]string{"V": r.Input}
		default:
			fields[r.Field] = r.Input
		}
		p := contractOf(t, "A").Plan(corpus.Arguments(t, fields), h)
		got := map[string]string{fieldCommand: p.Command, fieldEnv: p.Env["V"], fieldCwd: p.Dir}[r.Field]
		switch {
		case r.Error != nil && errorOf(p) != *r.Error:
			t.Errorf("%q: %q, error %q; want error %q", r.Input, got, errorOf(p), *r.Error)
		case r.Output != nil && (p.Err != nil || got != *r.Output):
			t.Errorf("%q becomes %q, error %q; want %q", r.Input, got, errorOf(p), *r.Output)
		}
	})
}

// checkResolverError makes the world that a row describes.
func checkResolverError(t *testing.T, id, input, prefix, suffix string) {
	t.Helper()
	url := strings.Fields(input)[0]
	u := URLs{Resolver: Roots{}}
	switch id {
	case "url-122":
		u.Resolver = Roots{Artifacts: t.TempDir()}
	case "url-123":
		url = "artifact://1"
	case "url-124":
		u.Resolver = Roots{Artifacts: filepath.Join(t.TempDir(), "gone")}
	case "url-125":
		u.Resolver = Roots{Artifacts: t.TempDir()}
	}
	_, _, err := u.expand("cat "+url, Expansion{Field: fieldCommand}, nil)
	if want := prefix + url + "\n" + suffix; err == nil || err.Error() != want {
		t.Errorf("expand(cat %s) = %v; want %q", url, err, want)
	}
}

// A long text takes time in proportion to its length: anything else would not end
// here.
func TestExpandLong(t *testing.T) {
	t.Parallel()
	u := URLs{Local: &Local{Artifacts: "/art"}}
	for _, unit := range []string{"/local:/", "local:/a ", "'local://a' ", "local:", "://", "agent", "\"local:/"} {
		text := strings.Repeat(unit, 2<<20/len(unit))
		if out, found, err := u.expand(text, Expansion{Field: fieldCommand}, nil); err == nil && len(found) == 0 && out != text {
			t.Errorf("expand(%s…) changes it without an expansion", unit)
		}
	}
}

func FuzzExpand(f *testing.F) {
	for _, seed := range []string{
		"cat 'local:/a' \"skill://s/x\" local:/b agent://1;x", "local://", "x.local:/y", "skill://s/%2e%2e/x", "a://b:://local:/c",
	} {
		f.Add(seed)
	}
	u := URLs{Skills: []Skill{{Name: "s", Dir: "/skills/s"}}, Local: &Local{Artifacts: "/art"}, Resolver: Roots{}}
	f.Fuzz(func(t *testing.T, text string) {
		out, found, err := u.expand(text, Expansion{Field: fieldEnv}, nil)
		if err != nil {
			return
		}
		at, rebuilt := 0, ""
		for _, e := range found {
			if e.Offset < at || e.Offset+e.Length > len(text) {
				t.Fatalf("expansions of %q overlap: %+v", text, found)
			}
			if !within("/skills/s", e.Path) && !within("/art/local", e.Path) || strings.IndexByte(e.Path, 0) >= 0 {
				t.Errorf("%s of %q is %q, outside", e.URL, text, e.Path)
			}
			rebuilt += text[at:e.Offset] + e.Path
			at = e.Offset + e.Length
		}
		if rebuilt += text[at:]; rebuilt != out {
			t.Errorf("expand(%q) = %q; want %q by its expansions", text, out, rebuilt)
		}
	})
}
