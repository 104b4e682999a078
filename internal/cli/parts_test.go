package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// partsHeld returns the fields of a package's structs that hold a part of the program, with
// the types of the parts.
func partsHeld(files []*ast.File) map[string]string {
	held := map[string]string{}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.StructType)
			if !ok {
				return true
			}
			for _, f := range s.Fields.List {
				part := partName(f.Type)
				if part != "" && len(f.Names) == 0 {
					held[part] = part
				}
				for _, name := range f.Names {
					if part != "" {
						held[name.Name] = part
					}
				}
			}
			return true
		})
	}
	return held
}

// selects reports whether a package uses a field of that name.
func selects(files []*ast.File, name string) (found bool) {
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == name {
				found = true
			}
			return !found
		})
	}
	return found
}

// partName is the type that *core.T or *stdio.Streams points to, "" for other types.
func partName(e ast.Expr) string {
	p, ok := e.(*ast.StarExpr)
	if !ok {
		return ""
	}
	s, ok := p.X.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if in, ok := s.X.(*ast.Ident); ok && (in.Name == "core" || in.Name == "stdio") {
		return s.Sel.Name
	}
	return ""
}

// What runs a command holds the parts of the program that it uses, and never all of them.
func TestCommandsHoldWhatTheyUse(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("*cmd/*.go")
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string][]*ast.File{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		packages[filepath.Dir(name)] = append(packages[filepath.Dir(name)], file)
	}
	if len(packages) < 10 {
		t.Errorf("there are %d packages of commands; want more", len(packages))
	}
	for dir, files := range packages {
		held := partsHeld(files)
		if len(held) == 0 {
			t.Errorf("%s: no struct holds a part of the program", dir)
		}
		for name, part := range held {
			if part == "Parts" || !selects(files, name) {
				t.Errorf("%s holds %s, a %s, and does not use it, or not all of it", dir, name, part)
			}
		}
	}
}
