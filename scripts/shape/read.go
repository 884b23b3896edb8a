// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/token"
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
