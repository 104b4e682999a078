package serve

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemaFile describes the protocol to clients. Every message of every test of the
// protocol is held to it.
const schemaFile = "../../docs/rpc.schema.json"

var compiler = sync.OnceValues(func() (*jsonschema.Compiler, error) {
	f, err := os.Open(schemaFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	doc, err := jsonschema.UnmarshalJSON(f)
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	return c, c.AddResource("rpc", doc)
})

var compiled struct {
	mu  sync.Mutex
	all map[string]*jsonschema.Schema // guarded by mu
}

// schema is a definition of the file, "" for the message itself.
func schema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	compiled.mu.Lock()
	defer compiled.mu.Unlock()
	if s := compiled.all[name]; s != nil {
		return s
	}
	c, err := compiler()
	if err != nil {
		t.Fatalf("%s: %v", schemaFile, err)
	}
	where := "rpc"
	if name != "" {
		where += "#/$defs/" + strings.ReplaceAll(name, "/", "~1")
	}
	s, err := c.Compile(where)
	if err != nil {
		t.Fatalf("%s: %s: %v", schemaFile, name, err)
	}
	if compiled.all == nil {
		compiled.all = map[string]*jsonschema.Schema{}
	}
	compiled.all[name] = s
	return s
}

func validate(t *testing.T, name, text string) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return schema(t, name).Validate(v)
}

// checkMessage holds what a server sends to the schema.
func checkMessage(t *testing.T, line string) {
	t.Helper()
	if err := validate(t, "", line); err != nil {
		t.Errorf("%s\n%v", line, err)
	}
}

// checkAnswer holds a result to its method's, and the parameters that led to it.
func checkAnswer(t *testing.T, method, params string, a rpcAnswer) {
	t.Helper()
	if a.Error != nil {
		return
	}
	if err := validate(t, method+".result", string(a.Result)); err != nil {
		t.Errorf("%s: %s\n%v", method, a.Result, err)
	}
	if err := validate(t, method+".params", params); err != nil {
		t.Errorf("%s was answered, but not by the schema: %s\n%v", method, params, err)
	}
}

// TestSchemaIsWhole holds the schema to the methods there are.
func TestSchemaIsWhole(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Defs map[string]json.RawMessage `json:"$defs"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	others := []string{"tools/update", "job/completed", "pty/started", "$/cancelRequest", "terminal/create", "terminal/output", "terminal/wait_for_exit", "terminal/kill", "terminal/release", "network/ask"}
	for name := range methods {
		if file.Defs[name+".params"] == nil || file.Defs[name+".result"] == nil {
			t.Errorf("%s has no %s.params or no %s.result", schemaFile, name, name)
		}
	}
	for name := range file.Defs {
		schema(t, name)
		method, _, ok := strings.Cut(name, ".")
		if _, known := methods[method]; ok && !known && !slices.Contains(others, method) {
			t.Errorf("%s has %s, and there is no such method", schemaFile, name)
		}
	}
}

// TestSchemaRefuses holds the schema to refusing something at all.
func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{}`, `[]`, `{"jsonrpc":"2.0","id":1}`, `{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"","data":{"kind":""}}}`,
		`{"jsonrpc":"2.0","method":"tools/update","params":{}}`, `{"jsonrpc":"2.0","method":"none","params":{}}`,
		`{"jsonrpc":"2.0","id":null,"result":{}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}`,
	} {
		if validate(t, "", text) == nil {
			t.Errorf("the schema takes %s", text)
		}
	}
}

// TestDocument holds docs/rpc.md to the methods and the table of errors.
func TestDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/rpc.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	for name := range methods {
		if !strings.Contains(doc, "### `"+name+"`") {
			t.Errorf("docs/rpc.md has no section for %s", name)
		}
	}
	if !strings.Contains(doc, errorTable()) {
		t.Errorf("docs/rpc.md does not have the table of errors as it is:\n%s", errorTable())
	}
	seen := map[int]bool{}
	for _, row := range Errors() {
		if seen[row.Code] {
			t.Errorf("the code %d is there twice", row.Code)
		}
		seen[row.Code] = true
	}
}

// errorTable is the table of errors as Markdown.
func errorTable() string {
	var b strings.Builder
	b.WriteString("| code | kind | meaning |\n|---|---|---|\n")
	for _, row := range Errors() {
		fmt.Fprintf(&b, "| %d | `%s` | %s |\n", row.Code, row.Kind, row.Meaning)
	}
	return b.String()
}
