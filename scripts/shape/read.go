// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

// code is the module's ordinary code: every package without tests and generated files.
type code struct {
	fset     *token.FileSet
	packages []*packages.Package
}

// read loads the packages of the module in a folder.
func read(folder string) (code, error) {
	c := code{fset: token.NewFileSet()}
	cfg := &packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedModule,
		Dir:  folder, Fset: c.fset,
	}
	all, err := packages.Load(cfg, "./...")
	if err != nil {
		return code{}, fmt.Errorf("load packages: %w", err)
	}
	for _, p := range all {
		if len(p.Errors) > 0 {
			return code{}, fmt.Errorf("load %s: %w", p.PkgPath, p.Errors[0])
		}
		var kept []*ast.File
		for _, f := range p.Syntax {
			if !ast.IsGenerated(f) {
				kept = append(kept, f)
			}
		}
		p.Syntax = kept
	}
	c.packages = all
	return c, nil
}

// file returns the base name of the file that a position is in.
func (c code) file(p token.Pos) string { return filepath.Base(c.fset.Position(p).Filename) }

// path returns a package's path within the module.
func path(p *packages.Package) string {
	return strings.TrimPrefix(strings.TrimPrefix(p.PkgPath, p.Module.Path), "/")
}

// public reports whether other modules may import the package, and it is not a test's.
func public(p *packages.Package) bool {
	folder := path(p)
	return p.Name != "main" && !strings.Contains("/"+folder+"/", "/internal/") &&
		!strings.HasPrefix(folder, "api/") && !strings.HasPrefix(folder, "test/")
}

// functions calls f for each function with a body.
func (c code) functions(f func(p *packages.Package, file *ast.File, fn *ast.FuncDecl)) {
	for _, p := range c.packages {
		for _, file := range p.Syntax {
			for _, d := range file.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
					f(p, file, fn)
				}
			}
		}
	}
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
