// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// figure is one measure of the layout.
type figure struct {
	name  string
	value float64
	limit float64 // what value must not pass
	found []string
}

func figures(c code) []figure {
	return []figure{
		scatteredTypes(c), distantHelpers(c), packageSizes(c), longFunctions(c), complexFunctions(c),
		exportedNames(c), undocumented(c), flattenedErrors(c), nolints(c),
	}
}

func count(name string, limit float64, found []string) figure {
	slices.Sort(found)
	return figure{name: name, value: float64(len(found)), limit: limit, found: found}
}

// scatteredTypes counts types whose methods stand in more than three files.
func scatteredTypes(c code) figure {
	files := map[string]map[string]bool{}
	c.functions(func(p *packages.Package, _ *ast.File, fn *ast.FuncDecl) {
		if r := receiver(p, fn); r != "" {
			key := path(p) + "." + r
			if files[key] == nil {
				files[key] = map[string]bool{}
			}
			files[key][c.file(fn.Pos())] = true
		}
	})
	var found []string
	for t, in := range files {
		if len(in) > 3 {
			found = append(found, fmt.Sprintf("%s: %d files", t, len(in)))
		}
	}
	return count("types with methods in more than 3 files", 0, found)
}

// receiver returns the name of a method's type, and "" for a function.
func receiver(p *packages.Package, fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	t := p.TypesInfo.TypeOf(fn.Recv.List[0].Type)
	if ptr, ok := t.(*types.Pointer); ok {
		t = ptr.Elem()
	}
	if n, ok := t.(*types.Named); ok {
		return n.Obj().Name()
	}
	return ""
}

// distantHelpers is the percentage of unexported functions with one use that stand in another file
// than that use. Methods and constructors are not counted: they stand with their type.
func distantHelpers(c code) figure {
	type helper struct {
		name, file string
		uses       []string
	}
	helpers := map[types.Object]*helper{}
	c.functions(func(p *packages.Package, _ *ast.File, fn *ast.FuncDecl) {
		if !fn.Name.IsExported() && fn.Name.Name != "main" && fn.Name.Name != "init" && fn.Recv == nil && !c.constructs(p, fn) {
			helpers[p.TypesInfo.Defs[fn.Name]] = &helper{name: path(p) + "." + fn.Name.Name, file: c.file(fn.Pos())}
		}
	})
	for _, p := range c.packages {
		for id, o := range p.TypesInfo.Uses {
			if f, ok := o.(*types.Func); ok {
				if h := helpers[f.Origin()]; h != nil {
					h.uses = append(h.uses, c.file(id.Pos()))
				}
			}
		}
	}
	var once float64
	var found []string
	for _, h := range helpers {
		if len(h.uses) != 1 {
			continue
		}
		once++
		if h.uses[0] != h.file {
			found = append(found, fmt.Sprintf("%s in %s, used in %s", h.name, h.file, h.uses[0]))
		}
	}
	f := count("helpers used once, in another file (%)", 15, found)
	f.value = 100 * f.value / max(once, 1)
	return f
}

// constructs reports whether a function returns a type that is declared in its file.
func (c code) constructs(p *packages.Package, fn *ast.FuncDecl) bool {
	f, ok := p.TypesInfo.Defs[fn.Name].(*types.Func)
	if !ok {
		return false
	}
	for result := range f.Signature().Results().Variables() {
		t := result.Type()
		if pointer, ok := t.(*types.Pointer); ok {
			t = pointer.Elem()
		}
		if named, ok := t.(*types.Named); ok && named.Obj().Pkg() == p.Types && c.file(named.Obj().Pos()) == c.file(fn.Pos()) {
			return true
		}
	}
	return false
}

// packageSizes is the 90th percentile of the number of files in a package.
func packageSizes(c code) figure {
	var sizes []int
	var found []string
	for _, p := range c.packages {
		if len(p.Syntax) == 0 {
			continue
		}
		sizes = append(sizes, len(p.Syntax))
		if len(p.Syntax) > 12 {
			found = append(found, fmt.Sprintf("%s: %d files", path(p), len(p.Syntax)))
		}
	}
	f := count("files in a package, 90th percentile", 12, found)
	slices.Sort(sizes)
	f.value = float64(sizes[(len(sizes)-1)*9/10])
	return f
}

func longFunctions(c code) figure {
	var found []string
	c.functions(func(p *packages.Package, _ *ast.File, fn *ast.FuncDecl) {
		lines := c.fset.Position(fn.End()).Line - c.fset.Position(fn.Pos()).Line + 1
		if lines > 80 {
			found = append(found, fmt.Sprintf("%s.%s: %d lines", path(p), fn.Name.Name, lines))
		}
	})
	return count("functions over 80 lines", 0, found)
}

// complexFunctions counts functions with a cyclomatic complexity over 20 (McCabe 1976).
func complexFunctions(c code) figure {
	var found []string
	c.functions(func(p *packages.Package, _ *ast.File, fn *ast.FuncDecl) {
		n := 1
		ast.Inspect(fn, func(x ast.Node) bool {
			switch x := x.(type) {
			case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
				n++
			case *ast.CaseClause:
				if x.List != nil {
					n++
				}
			case *ast.CommClause:
				if x.Comm != nil {
					n++
				}
			case *ast.BinaryExpr:
				if x.Op == token.LAND || x.Op == token.LOR {
					n++
				}
			}
			return true
		})
		if n > 20 {
			found = append(found, fmt.Sprintf("%s.%s: %d", path(p), fn.Name.Name, n))
		}
	})
	return count("functions with a complexity over 20", 0, found)
}

// exportedNames counts the package-level names that other modules can use.
func exportedNames(c code) figure {
	var found []string
	for _, p := range c.packages {
		if !public(p) {
			continue
		}
		for _, name := range p.Types.Scope().Names() {
			if ast.IsExported(name) {
				found = append(found, path(p)+"."+name)
			}
		}
	}
	return count("exported names outside api, internal and test", 200, found)
}

// public reports whether other modules may import the package, and it is not a test's.
func public(p *packages.Package) bool {
	folder := path(p)
	return p.Name != "main" && !strings.Contains("/"+folder+"/", "/internal/") &&
		!strings.HasPrefix(folder, "api/") && !strings.HasPrefix(folder, "test/")
}

// undocumented counts packages and exported names without a doc comment.
func undocumented(c code) figure {
	found := map[string]bool{}
	for _, p := range c.packages {
		documented := len(p.Syntax) == 0
		for _, file := range p.Syntax {
			documented = documented || file.Doc != nil
			for _, d := range file.Decls {
				for _, name := range undocumentedIn(d) {
					found[path(p)+"."+name] = true
				}
			}
		}
		if !documented {
			found[path(p)] = true
		}
	}
	return count("packages and exported names without documentation", 0, slices.Collect(maps.Keys(found)))
}

func undocumentedIn(d ast.Decl) []string {
	var names []string
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil && d.Name.IsExported() && d.Doc == nil {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && s.Doc == nil && d.Doc == nil {
					names = append(names, s.Name.Name)
				}
			case *ast.ValueSpec:
				if s.Names[0].IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
					names = append(names, s.Names[0].Name)
				}
			}
		}
	}
	return names
}

var flattened = regexp.MustCompile(`fmt\.Errorf\(.*%[vs].*\berr\)`)

// flattenedErrors counts errors that are formatted into another without %w.
func flattenedErrors(c code) figure {
	return count("errors flattened into text", 0, c.lines(func(line string) bool {
		return flattened.MatchString(line) && !strings.Contains(line, "%w")
	}))
}

func nolints(c code) figure {
	return count("nolint comments", 5, c.lines(func(line string) bool { return strings.Contains(line, "//"+"nolint") }))
}

// lines returns the lines of the code that match, with their places.
func (c code) lines(match func(string) bool) []string {
	var found []string
	for _, p := range c.packages {
		for _, file := range p.Syntax {
			name := c.fset.Position(file.Pos()).Filename
			data, err := os.ReadFile(name)
			if err != nil {
				continue // it was read a moment ago
			}
			for i, line := range strings.Split(string(data), "\n") {
				if match(line) {
					found = append(found, fmt.Sprintf("%s/%s:%d: %s", path(p), c.file(file.Pos()), i+1, strings.TrimSpace(line)))
				}
			}
		}
	}
	return found
}
