package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// configNames are those that the configuration has in this program: the parameter or field
// cfg, the part Cfg, and in core.Configuration the embedded Config.
var configNames = map[string]bool{"cfg": true, "Cfg": true, "Config": true}

// configOf reports whether an expression is the configuration or a part of it: a.cfg, or
// what is selected, indexed or pointed to from there.
func configOf(e ast.Expr) bool {
	for {
		switch x := e.(type) {
		case *ast.SelectorExpr:
			if configNames[x.Sel.Name] {
				return true
			}
			if base, ok := x.X.(*ast.Ident); ok && base.Name == "cfg" && x.Sel.IsExported() { // what is not exported is not config.Config's
				return true
			}
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return false
		}
	}
}

// changes returns what a file assigns to the configuration or a part of it, or takes the
// address of.
func changes(file *ast.File) (found []ast.Expr) {
	add := func(e ast.Expr) {
		if configOf(e) {
			found = append(found, e)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				add(left)
			}
		case *ast.IncDecStmt:
			add(n.X)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				add(n.X)
			}
		}
		return true
	})
	return found
}

// The configuration does not change after Load: the one assignment is that of Load itself.
func TestConfigDoesNotChange(t *testing.T) {
	t.Parallel()
	files := token.NewFileSet()
	var found []string
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, e := range changes(file) {
			found = append(found, files.Position(e.Pos()).String())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || !strings.HasPrefix(found[0], filepath.Join("core", "configuration.go")) {
		t.Errorf("the configuration is changed at %q; want once, by Load in core/configuration.go", found)
	}
}

// changes finds each way to change a part.
func TestChanges(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"a.Cfg = c": 1, "a.Cfg.JSON = true": 1, "a.Cfg.Env.Set[0] = x": 1, "a.Cfg.Limits.Pids++": 1, "p := &a.Cfg.Limits": 1, "*a.Cfg = c": 1,
		"x, r.p.Cfg.Quiet = 1, true": 1, "cfg.JSON = true": 1, "a.cfg.Config = c": 1, "c.Config = cfg": 1, "cfg, err := f()": 0, "cfg.notes = n": 0, "c := a.Cfg": 0, "x = a.Cfg.JSON": 0, "f(a.Cfg)": 0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nfunc _() { "+text+" }\n", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(changes(file)); got != want {
			t.Errorf("changes(%s) finds %d; want %d", text, got, want)
		}
	}
}
