// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// apiPackage is what the Go files of an API package declare.
type apiPackage struct {
	group   string
	version string // the package's name
	doc     doc
	types   []*apiType // exported, without lists of kinds, by name
	names   []nameBlock
}

// apiType is a struct, or a named basic type with its values.
type apiType struct {
	name   string
	doc    doc
	isKind bool
	base   string // of a type that is no struct
	fields []field
	values []constant
}

// field is a JSON field of a struct.
type field struct {
	json     string
	typ      string
	doc      doc
	inline   bool
	required bool
}

// nameBlock is a block of constants that belong to no type.
type nameBlock struct {
	title     string
	constants []constant
}

type constant struct {
	value string
	doc   doc
}

// doc is a comment: its paragraphs, and its markers without the plus sign.
type doc struct {
	paragraphs []string
	markers    []string
}

// parseFolder reads the Go files of a folder, except tests and generated ones.
func parseFolder(folder string) (*apiPackage, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("read %s: %w", folder, fs.ErrNotExist)
	}
	api, values := &apiPackage{}, map[string][]constant{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(filepath.Base(name), "zz_generated") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		api.version = file.Name.Name
		if d := parseDoc(file.Doc); len(d.paragraphs) > 0 {
			api.doc = d
		}
		for _, decl := range file.Decls {
			if g, ok := decl.(*ast.GenDecl); ok {
				api.addTypes(g)
				api.addConstants(g, values)
			}
		}
	}
	for _, t := range api.types {
		t.values = values[t.name]
	}
	slices.SortFunc(api.types, func(a, b *apiType) int { return strings.Compare(a.name, b.name) })
	if api.group, _ = api.doc.value("groupName"); api.group == "" {
		return nil, errors.New("package comment: has no +groupName marker")
	}
	return api, nil
}

func (a *apiPackage) addTypes(g *ast.GenDecl) {
	for _, spec := range g.Specs {
		ts, ok := spec.(*ast.TypeSpec)
		if !ok || !ts.Name.IsExported() {
			continue
		}
		t := &apiType{name: ts.Name.Name, doc: parseDoc(ts.Doc, g.Doc)}
		if generate, _ := t.doc.value("kubebuilder:object:generate"); generate == "false" {
			continue // no type of the API
		}
		_, root := t.doc.value("kubebuilder:object:root")
		if root && strings.HasSuffix(t.name, "List") {
			continue
		}
		t.isKind = root
		if s, ok := ts.Type.(*ast.StructType); ok {
			t.fields = parseFields(s)
		} else {
			t.base = typeText(ts.Type)
		}
		a.types = append(a.types, t)
	}
}

// addConstants sorts string constants by their type; those without one are names. Of names without
// comments it keeps the title of the block only, which tells where they are explained.
func (a *apiPackage) addConstants(g *ast.GenDecl, values map[string][]constant) {
	if g.Tok != token.CONST {
		return
	}
	block, undocumented := nameBlock{}, false
	if g.Lparen.IsValid() {
		block.title = text(parseDoc(g.Doc).paragraphs, "\n\n")
	}
	for _, spec := range g.Specs {
		vs, ok := spec.(*ast.ValueSpec)
		if !ok || len(vs.Values) != 1 || !vs.Names[0].IsExported() {
			continue
		}
		literal, ok := vs.Values[0].(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			continue
		}
		value, err := strconv.Unquote(literal.Value)
		if err != nil {
			continue
		}
		d := parseDoc(vs.Doc)
		if !g.Lparen.IsValid() {
			d = parseDoc(g.Doc)
		}
		c := constant{value: value, doc: d.renamed(vs.Names[0].Name, "`"+value+"`")}
		if vs.Type != nil {
			name := typeText(vs.Type)
			values[name] = append(values[name], c)
			continue
		}
		if undocumented = len(d.paragraphs) == 0; undocumented {
			continue
		}
		block.constants = append(block.constants, c)
	}
	if len(block.constants) > 0 || undocumented && block.title != "" {
		a.names = append(a.names, block)
	}
}

func parseFields(s *ast.StructType) []field {
	var fields []field
	for _, f := range s.Fields.List {
		if f.Tag == nil {
			continue
		}
		tag := regexp.MustCompile(`json:"([^"]*)"`).FindStringSubmatch(f.Tag.Value)
		if tag == nil {
			continue
		}
		name, options, _ := strings.Cut(tag[1], ",")
		typ := typeText(f.Type)
		if typ == "metav1.TypeMeta" || typ == "metav1.ObjectMeta" || name == "-" {
			continue
		}
		d := parseDoc(f.Doc)
		_, optional := d.value("optional")
		added := field{json: name, typ: typ, doc: d, inline: options == "inline"}
		added.required = !optional && !added.inline && !strings.Contains(options, "omit")
		if len(f.Names) > 0 {
			added.doc = d.renamed(f.Names[0].Name, "`"+name+"`")
		}
		fields = append(fields, added)
	}
	return fields
}

// typeText returns a type as Go source without pointers.
func typeText(e ast.Expr) string {
	switch t := e.(type) {
	case *ast.Ident:
		return t.Name
	case *ast.StarExpr:
		return typeText(t.X)
	case *ast.SelectorExpr:
		return typeText(t.X) + "." + t.Sel.Name
	case *ast.ArrayType:
		return "[]" + typeText(t.Elt)
	case *ast.MapType:
		return "map[" + typeText(t.Key) + "]" + typeText(t.Value)
	}
	return "object"
}

// parseDoc reads the first comment that is there.
func parseDoc(groups ...*ast.CommentGroup) doc {
	var d doc
	for _, g := range groups {
		if g == nil {
			continue
		}
		var lines []string
		flush := func() {
			if len(lines) > 0 {
				d.paragraphs = append(d.paragraphs, strings.Join(lines, " "))
			}
			lines = nil
		}
		for line := range strings.Lines(g.Text()) {
			line = strings.TrimSpace(line)
			if marker, found := strings.CutPrefix(line, "+"); found {
				d.markers = append(d.markers, marker)
			} else if line == "" {
				flush()
			} else {
				lines = append(lines, line)
			}
		}
		flush()
		return d
	}
	return d
}

// value returns the value of a marker such as +kubebuilder:default=ipvlan.
func (d doc) value(marker string) (string, bool) {
	for _, m := range d.markers {
		if name, value, _ := strings.Cut(m, "="); name == marker {
			return value, true
		}
	}
	return "", false
}

// arguments returns the arguments of a marker such as +kubebuilder:resource:scope=Cluster,shortName=tc.
func (d doc) arguments(marker string) map[string]string {
	arguments := map[string]string{}
	for _, m := range d.markers {
		if list, found := strings.CutPrefix(m, marker+":"); found {
			for argument := range strings.SplitSeq(list, ",") {
				name, value, _ := strings.Cut(argument, "=")
				arguments[name] = value
			}
		}
	}
	return arguments
}

// rules returns the messages of the CEL rules, each once.
func (d doc) rules() []string {
	var rules []string
	message := regexp.MustCompile(",message=(?:`([^`]*)`|\"([^\"]*)\")")
	for _, m := range d.markers {
		if !strings.HasPrefix(m, "kubebuilder:validation:XValidation:") {
			continue
		}
		if found := message.FindStringSubmatch(m); found != nil {
			rule := text([]string{found[1] + found[2]}, "")
			if !slices.Contains(rules, rule) {
				rules = append(rules, rule)
			}
		}
	}
	return rules
}

// renamed replaces a Go name at the beginning of the comment, or removes it with its colon.
func (d doc) renamed(name, replacement string) doc {
	if len(d.paragraphs) == 0 {
		return d
	}
	first := d.paragraphs[0]
	if rest, found := strings.CutPrefix(first, name+": "); found {
		first = strings.ToUpper(rest[:1]) + rest[1:]
	} else if rest, found := strings.CutPrefix(first, name+" "); found {
		first = replacement + " " + rest
	}
	d.paragraphs = append([]string{first}, d.paragraphs[1:]...)
	return d
}
