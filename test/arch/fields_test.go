// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"

	"github.com/patchbay-cni/patchbay/test/source"
)

// fieldTable says where each field of the API groups takes effect.
const fieldTable = "testdata/fields.txt"

// apiKinds are the kinds of each API group, by package. Those that people write come first.
func apiKinds() map[string][]string {
	return map[string][]string{
		module + "/api/danm/v1":            {"ClusterNetwork", "TenantNetwork", "DanmNet", "TenantConfig", "DanmEp", "NodeNetwork", "NetworkView"},
		module + "/api/operator/v1alpha1":  {"Installation"},
		module + "/api/placement/v1alpha1": {"Cluster", "Placement", "ClusterPlacement", "Customization", "Assignment", "Work", "AppliedWork"},
	}
}

// Each field of an object takes effect in a function that mentions it, or is refused as not served yet.
// A field that nothing reads or writes is worse than a missing one: users rely on it.
func TestFieldsTakeEffect(t *testing.T) {
	t.Parallel()
	table, m := readFieldTable(t), loadMentions(t)
	messages := ruleTexts(t)
	known := map[string]bool{}
	for api, kinds := range apiKinds() {
		for _, kind := range kinds {
			for path, f := range m.fieldsOf(t, api, kind) {
				known[f.name] = true
				where, listed := table[f.name]
				message, refused := strings.CutPrefix(where, "refused: ")
				use, mentioned := m.uses[f.field][where]
				switch {
				case !listed:
					t.Errorf("%s (%s): %s does not say where it takes effect. Functions that mention it: %v", path, f.name, fieldTable, slices.Sorted(maps.Keys(m.uses[f.field])))
				case refused && !strings.Contains(messages, message):
					t.Errorf("%s (%s): no definition or policy in deployments refuses it with %q", path, f.name, message)
				case refused:
				case !m.functions[where]:
					t.Errorf("%s (%s): there is no function %s", path, f.name, where)
				case !mentioned:
					t.Errorf("%s (%s): %s does not mention it", path, f.name, where)
				case isReported(path) && !use.written && !m.isWritten(f.field):
					t.Errorf("%s (%s) is always empty: no code writes it. Write it, or take it out of the API", path, f.name)
				case !isReported(path) && !m.isRead(f.field):
					t.Errorf("%s (%s) does nothing: no code reads it. Serve it, or take it out of the API", path, f.name)
				}
			}
		}
	}
	for name := range table {
		if !known[name] {
			t.Errorf("%s: there is no field %s", fieldTable, name)
		}
	}
}

// isReported reports whether Patchbay writes the field for others to read.
func isReported(path string) bool {
	kind, rest, _ := strings.Cut(path, ".")
	return strings.HasPrefix(rest, "Status.") || kind == "DanmEp" || kind == "NetworkView"
}

// readFieldTable reads the table by Go type and field.
func readFieldTable(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(fieldTable)
	if err != nil {
		t.Fatal(err)
	}
	table := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, where, ok := strings.Cut(strings.TrimSpace(line), " ")
		if ok && name != "#" {
			table[name] = where
		}
	}
	return table
}

// ruleTexts returns all definitions and admission policies with single spaces, because YAML breaks long lines.
func ruleTexts(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, folder := range []string{"deployments/crds", "deployments/placement/crds", "deployments/operator/crds", "deployments/admission"} {
		path, err := source.Path(strings.Split(folder, "/")...)
		if err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(path, "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, error %v", folder, len(files), err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all.WriteString(strings.Join(strings.Fields(strings.ReplaceAll(string(text), "''", "'")), " "))
		}
	}
	return all.String()
}

// mention says how a function uses a field.
type mention struct{ read, written bool }

// mentions are the functions of the module's programs and the fields that they use, without tests.
type mentions struct {
	apis      map[string]*types.Package
	functions map[string]bool
	uses      map[*types.Var]map[string]mention
}

// loadMentions parses all programs.
func loadMentions(t *testing.T) *mentions {
	t.Helper()
	var patterns []string
	for _, folder := range []string{"cni", "controller", "daemon", "internal", "ipam", "netwatcher", "operator", "placement", "svcwatcher"} {
		patterns = append(patterns, module+"/"+folder+"/...")
	}
	mode := packages.NeedName | packages.NeedImports | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo
	all, err := packages.Load(&packages.Config{Mode: mode, Context: t.Context()}, patterns...)
	if err != nil {
		t.Fatal(err)
	}
	m := &mentions{apis: map[string]*types.Package{}, functions: map[string]bool{}, uses: map[*types.Var]map[string]mention{}}
	for _, p := range all {
		for _, e := range p.Errors {
			t.Fatal(e)
		}
		for api := range apiKinds() {
			if used := p.Imports[api]; used != nil {
				m.apis[api] = used.Types
			}
		}
		for _, file := range p.Syntax {
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					m.recordFunction(p, f)
				}
			}
		}
	}
	return m
}

// fieldsOf returns the fields of a kind by path, without its metadata.
func (m *mentions) fieldsOf(t *testing.T, api, kind string) map[string]namedField {
	t.Helper()
	if m.apis[api] == nil {
		t.Fatalf("%s: nothing imports it", api)
	}
	object, ok := m.apis[api].Scope().Lookup(kind).(*types.TypeName)
	if !ok {
		t.Fatalf("kind %s: there is no such type", kind)
	}
	all := fields(m.apis[api], object.Type(), kind)
	maps.DeleteFunc(all, func(path string, _ namedField) bool { return path == kind+".Spec" || path == kind+".Status" })
	return all
}

// recordFunction records the fields that a function uses. A selector reads its field, unless it is
// assigned to; to take its address does both.
func (m *mentions) recordFunction(p *packages.Package, f *ast.FuncDecl) {
	name := strings.TrimPrefix(p.PkgPath, module+"/") + "." + receiverPrefix(f) + f.Name.Name
	m.functions[name] = true
	assigned := map[ast.Expr]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				assigned[left] = n.Tok == token.ASSIGN
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok {
				m.record(name, p.TypesInfo.Uses[key], mention{written: true})
			}
		case *ast.UnaryExpr:
			if s, ok := n.X.(*ast.SelectorExpr); ok && n.Op == token.AND && p.TypesInfo.Selections[s] != nil {
				m.record(name, p.TypesInfo.Selections[s].Obj(), mention{written: true})
			}
		case *ast.SelectorExpr:
			if s := p.TypesInfo.Selections[n]; s != nil {
				m.record(name, s.Obj(), mention{read: !assigned[n], written: assigned[n]})
			}
		}
		return true
	})
}

// receiverPrefix returns a method's type and a dot.
func receiverPrefix(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	of := f.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name + "."
	}
	return ""
}

func (m *mentions) record(function string, of types.Object, how mention) {
	field, ok := of.(*types.Var)
	if !ok || !field.IsField() {
		return
	}
	if m.uses[field] == nil {
		m.uses[field] = map[string]mention{}
	}
	before := m.uses[field][function]
	m.uses[field][function] = mention{read: before.read || how.read, written: before.written || how.written}
}

// isRead and isWritten report whether any function reads or writes the field.
func (m *mentions) isRead(field *types.Var) bool {
	return m.any(field, func(use mention) bool { return use.read })
}

func (m *mentions) isWritten(field *types.Var) bool {
	return m.any(field, func(use mention) bool { return use.written })
}

func (m *mentions) any(field *types.Var, is func(mention) bool) bool {
	for _, use := range m.uses[field] {
		if is(use) {
			return true
		}
	}
	return false
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
