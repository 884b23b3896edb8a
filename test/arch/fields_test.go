// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// unreadFields are fields that code need not read, each with its reason.
var unreadFields = map[string]string{
	"PlacementSpec.Volumes": "the API server takes no other value than Refuse yet (TestRefusals)",
	"ReplicaPolicy.By":      "the API server takes no other value than Static yet (TestRefusals)",
}

// A field of a placement kind that a person or the hub sets is read by code, and one that is
// reported is written. A field that nothing reads does nothing: it is not served yet, and the
// API has it not.
func TestPlacementFieldsDoSomething(t *testing.T) {
	t.Parallel()
	u := fieldUsesOf(t, module+"/api/placement/v1alpha1")
	for _, kind := range []string{"Cluster", "Placement", "ClusterPlacement", "Customization", "Assignment", "Work", "AppliedWork"} {
		object, ok := u.api.Scope().Lookup(kind).(*types.TypeName)
		if !ok {
			t.Fatalf("kind %s: there is no such type", kind)
		}
		for path, f := range fields(u.api, object.Type(), kind) {
			_, excused := unreadFields[f.name]
			switch part := strings.SplitN(path, ".", 3); {
			case len(part) < 3: // TypeMeta, ObjectMeta, Spec, Status
			case part[1] == "Spec" && !u.read[f.field] && !excused:
				t.Errorf("%s (%s) does nothing: no code reads it. Serve it, or take it out of the API", path, f.name)
			case part[1] == "Spec" && u.read[f.field] && excused:
				t.Errorf("%s (%s) is read: it needs no excuse here", path, f.name)
			case part[1] == "Status" && !u.written[f.field]:
				t.Errorf("%s (%s) is always empty: no code writes it. Write it, or take it out of the API", path, f.name)
			}
		}
	}
}

// fieldUses are the fields of an API that the module's code uses, without tests and without the
// generated code of the API itself.
type fieldUses struct {
	api           *types.Package
	read, written map[*types.Var]bool
}

func fieldUsesOf(t *testing.T, api string) *fieldUses {
	t.Helper()
	mode := packages.NeedName | packages.NeedImports | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo
	all, err := packages.Load(&packages.Config{Mode: mode, Context: t.Context()}, module+"/placement/...", module+"/internal/kubectl/...")
	if err != nil {
		t.Fatal(err)
	}
	u := &fieldUses{read: map[*types.Var]bool{}, written: map[*types.Var]bool{}}
	for _, p := range all {
		for _, e := range p.Errors {
			t.Fatal(e)
		}
		if used := p.Imports[api]; used != nil {
			u.api = used.Types
		}
		for _, file := range p.Syntax {
			u.recordFile(p.TypesInfo, file)
		}
	}
	if u.api == nil {
		t.Fatalf("%s: nothing imports it", api)
	}
	return u
}

// recordFile goes through one file. A selector reads its field, unless it is assigned to; to take its
// address does both.
func (u *fieldUses) recordFile(info *types.Info, file *ast.File) {
	assigned := map[ast.Expr]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				assigned[left] = n.Tok == token.ASSIGN
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok {
				if field, ok := info.Uses[key].(*types.Var); ok && field.IsField() {
					u.written[field] = true
				}
			}
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				u.recordSelector(info, n.X, u.written)
			}
		case *ast.SelectorExpr:
			if assigned[n] {
				u.recordSelector(info, n, u.written)
			} else {
				u.recordSelector(info, n, u.read)
			}
		}
		return true
	})
}

// recordSelector notes the field that an expression selects, with those that it goes through.
func (u *fieldUses) recordSelector(info *types.Info, e ast.Expr, in map[*types.Var]bool) {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok {
		return
	}
	if s := info.Selections[selector]; s != nil {
		if field, ok := s.Obj().(*types.Var); ok {
			in[field] = true
		}
	}
}

// namedField is a field with its name in Go: Type.Field.
type namedField struct {
	name  string
	field *types.Var
}

// fields are those of a type and of what it is made of, by path, as far as they are the API's.
func fields(api *types.Package, of types.Type, path string) map[string]namedField {
	found := map[string]namedField{}
	var walk func(of types.Type, path string, above []types.Type)
	walk = func(of types.Type, path string, above []types.Type) {
		switch of := of.(type) {
		case *types.Pointer:
			walk(of.Elem(), path, above)
		case *types.Slice:
			walk(of.Elem(), path, above)
		case *types.Map:
			walk(of.Elem(), path, above)
		case *types.Named:
			s, ok := of.Underlying().(*types.Struct)
			if !ok || of.Obj().Pkg() != api {
				return
			}
			if slices.Contains(above, types.Type(of)) {
				return
			}
			for f := range s.Fields() {
				if !f.Embedded() {
					found[path+"."+f.Name()] = namedField{of.Obj().Name() + "." + f.Name(), f}
				}
				walk(f.Type(), path+"."+f.Name(), append(slices.Clip(above), of))
			}
		}
	}
	walk(of, path, nil)
	return found
}
