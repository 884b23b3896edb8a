// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	operatorv1alpha1 "github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/source"
)

// reasonWord is the form of a reason in the Kubernetes API.
var reasonWord = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

// The catalogue in each API package has each reason once, with all that its page shows, and with a
// test that expects it.
func TestReasonsAreCatalogued(t *testing.T) {
	t.Parallel()
	var placement, operator []v1.ReasonInfo
	for _, r := range v1alpha1.Reasons() {
		placement = append(placement, v1.ReasonInfo(r))
	}
	for _, r := range operatorv1alpha1.Reasons() {
		operator = append(operator, v1.ReasonInfo(r))
	}
	for api, reasons := range map[string][]v1.ReasonInfo{
		"api/danm/v1/reasons.go": v1.Reasons(), "api/placement/v1alpha1/reasons.go": placement, "api/operator/v1alpha1/reasons.go": operator,
	} {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			requireCatalogue(t, reasonConstants(t, api), reasons)
		})
	}
}

// requireCatalogue requires that a catalogue has the reasons of these constants, and is complete.
func requireCatalogue(t *testing.T, constants map[string]string, reasons []v1.ReasonInfo) {
	t.Helper()
	listed := map[string]bool{}
	for _, r := range reasons {
		if listed[r.Reason] {
			t.Errorf("%s is twice in Reasons: list it once", r.Reason)
		}
		listed[r.Reason] = true
		if !reasonWord.MatchString(r.Reason) {
			t.Errorf("%s: must be CamelCase", r.Reason)
		}
		if r.On == "" || r.When == "" || r.Remedy == "" {
			t.Errorf("%s: On, When and Remedy must be set: %+v", r.Reason, r)
		}
		requireTestOfReason(t, r, constants)
	}
	for name, value := range constants {
		if !listed[value] {
			t.Errorf("%s is not in Reasons: a user who reads %q finds no page about it", name, value)
		}
	}
}

// requireTestOfReason requires that the test of a reason exists, and that its file has the reason.
func requireTestOfReason(t *testing.T, r v1.ReasonInfo, constants map[string]string) {
	t.Helper()
	folder, function, _ := strings.Cut(r.Test, ".Test")
	root, err := source.Path(folder)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	word := regexp.MustCompile(`\b` + r.Reason + `\b`)
	for name, value := range constants {
		if value == r.Reason {
			word = regexp.MustCompile(`\b(` + r.Reason + `|` + name + `)\b`)
		}
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		switch {
		case err != nil:
			t.Fatal(err)
		case !strings.Contains(string(text), "\nfunc Test"+function+"("):
			continue
		case !word.Match(text):
			t.Errorf("%s: its test is %s, and %s does not mention the reason", r.Reason, r.Test, filepath.Base(file))
		}
		return
	}
	t.Errorf("%s: its test %s does not exist", r.Reason, r.Test)
}

// Programs use each reason of the API packages, and no others: a word that is spelled out in the code
// is in no catalogue, and a constant that only tests read documents what never happens.
func TestReasonsAreConstants(t *testing.T) {
	t.Parallel()
	files := productFiles(t)
	for path, api := range map[string]string{
		module + "/api/danm/v1": "api/danm/v1/reasons.go", module + "/api/placement/v1alpha1": "api/placement/v1alpha1/reasons.go",
		module + "/api/operator/v1alpha1": "api/operator/v1alpha1/reasons.go",
	} {
		constants := reasonConstants(t, api)
		if len(constants) == 0 {
			t.Fatalf("%s declares no reasons", api)
		}
		for _, file := range files {
			if name := importName(file.syntax, path); name != "" {
				deleteUsed(constants, file.syntax, name)
			}
		}
		for name := range constants {
			t.Errorf("%s of %s is dead: only tests use it, if anything does", name, api)
		}
	}
	for _, file := range files {
		for _, literal := range reasonLiterals(file.syntax) {
			t.Errorf("%s: reason %s must be a constant of the API package", file.set.Position(literal.Pos()), literal.Value)
		}
	}
}

// productFile is a parsed file of a program.
type productFile struct {
	set    *token.FileSet
	syntax *ast.File
}

// productFiles are the files that are compiled into the programs.
func productFiles(t *testing.T) []productFile {
	t.Helper()
	root, err := source.Path()
	if err != nil {
		t.Fatal(err)
	}
	var all []productFile
	skipped := []string{"bin", ".git", "api", "docs", "scripts", "test"}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if relative, _ := filepath.Rel(root, path); entry.IsDir() && slices.Contains(skipped, relative) {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		set := token.NewFileSet()
		syntax, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		all = append(all, productFile{set, syntax})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// reasonConstants returns the values of the constants Reason… of a file.
func reasonConstants(t *testing.T, file string) map[string]string {
	t.Helper()
	path, err := source.Path(file)
	if err != nil {
		t.Fatal(err)
	}
	syntax, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]string{}
	ast.Inspect(syntax, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
			constants[spec.Names[0].Name], err = strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
		}
		return true
	})
	return constants
}

// importName returns the name by which a file uses a package, or "".
func importName(file *ast.File, path string) string {
	for _, i := range file.Imports {
		if i.Path.Value != strconv.Quote(path) {
			continue
		}
		if i.Name != nil {
			return i.Name.Name
		}
		return path[strings.LastIndex(path, "/")+1:]
	}
	return ""
}

// deleteUsed deletes the constants that a file uses from the package that it knows by name.
func deleteUsed(constants map[string]string, file *ast.File, name string) {
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == name {
				delete(constants, s.Sel.Name)
			}
		}
		return true
	})
}

// reasonLiterals are the words in a file that become reasons: of a field Reason, of an Event, or of a
// condition.
func reasonLiterals(file *ast.File) []*ast.BasicLit {
	var found []*ast.BasicLit
	record := func(e ast.Expr) {
		literal, ok := e.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return
		}
		if word, err := strconv.Unquote(literal.Value); err == nil && reasonWord.MatchString(word) {
			found = append(found, literal)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Reason" {
				record(n.Value)
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if s, ok := left.(*ast.SelectorExpr); ok && s.Sel.Name == "Reason" && len(n.Rhs) == len(n.Lhs) {
					record(n.Rhs[i])
				}
			}
		case *ast.CallExpr:
			if slices.Contains([]string{"Event", "Eventf", "AnnotatedEventf", "newCondition"}, calledName(n)) {
				for _, argument := range n.Args {
					record(argument)
				}
			}
		}
		return true
	})
	return found
}

// calledName returns the name of a called function or method.
func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// Each place in which a word can become a reason is found.
func TestReasonLiterals(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, statement, want string }{
		"Condition":  {"A literal of a condition.", `_ = metav1.Condition{Reason: "Ready"}`, `"Ready"`},
		"Assignment": {"A condition is changed.", `c.Status, c.Reason = x, "Lost"`, `"Lost"`},
		"Event":      {"A recorder's method.", `r.Event(o, corev1.EventTypeWarning, "Failed", err.Error())`, `"Failed"`},
		"Function":   {"The function that placement makes conditions with.", `newCondition(x, true, "Fine", "all is well")`, `"Fine"`},
		"Constant":   {"A constant is in the catalogue.", `r.Event(o, corev1.EventTypeWarning, v1.ReasonLinkUp, "links are up")`, ""},
		"Sentence":   {"A field Reason of test data has sentences.", `_ = Case{Reason: "A word is not a subnet."}`, ""},
		"Comparison": {"kubelet's reasons are kubelet's.", `_ = w.Reason == "ContainerCreating"`, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc f() { "+tc.statement+" }\n", parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, literal := range reasonLiterals(file) {
				got += literal.Value
			}
			if got != tc.want {
				t.Errorf("%s: %s: got %s, want %s", tc.reason, tc.statement, got, tc.want)
			}
		})
	}
}
