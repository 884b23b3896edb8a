// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// update writes what is got into the golden files, to be read before it is committed.
var update = flag.Bool("update", false, "write the golden files")

// golden is a file of testdata: an object, what clusters report, and the status that
// comes of it.
type golden struct {
	Reason string         `json:"reason"`
	Exact  bool           `json:"exact,omitempty"`
	Object map[string]any `json:"object"`
	Rows   []goldenRow    `json:"rows"`
	Want   map[string]any `json:"want"`
	Error  string         `json:"error,omitempty"`
}

// goldenRow is a Row; reachable unless it is said otherwise.
type goldenRow struct {
	Cluster    string         `json:"cluster"`
	Observed   int64          `json:"observed"`
	Generation int64          `json:"generation"`
	Asked      *int32         `json:"asked,omitempty"`
	Wanted     *int32         `json:"wanted,omitempty"`
	Ready      bool           `json:"ready,omitempty"`
	Away       bool           `json:"unreachable,omitempty"`
	Status     map[string]any `json:"status,omitempty"`
}

// noon is when all summaries of the tests are made.
func noon() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) }

// ints turns numbers of YAML into those of the API server's JSON.
func ints(m map[string]any) map[string]any {
	u := &unstructured.Unstructured{Object: m}
	raw, err := yaml.Marshal(u.Object)
	if err == nil {
		raw, err = yaml.YAMLToJSON(raw)
	}
	out := map[string]any{}
	if err == nil {
		var obj any
		obj, err = runtime.Decode(unstructured.UnstructuredJSONScheme, []byte(`{"apiVersion":"v1","kind":"X","x":`+string(raw)+`}`))
		if u, ok := obj.(*unstructured.Unstructured); ok {
			out, _ = u.Object["x"].(map[string]any)
		}
	}
	if err != nil {
		panic(err) // of the test's own data
	}
	return out
}

// parts are the object and rows of a file.
func (g *golden) parts() (*unstructured.Unstructured, []Row) {
	rows := make([]Row, 0, len(g.Rows))
	for _, r := range g.Rows {
		row := Row{
			Cluster: r.Cluster, Observed: r.Observed, Generation: r.Generation, Asked: r.Asked, Wanted: r.Wanted,
			Ready: r.Ready, Reachable: !r.Away,
		}
		if r.Status != nil {
			row.Status = ints(r.Status)
		}
		rows = append(rows, row)
	}
	return &unstructured.Unstructured{Object: ints(g.Object)}, rows
}

func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			g := &golden{}
			if err := yaml.UnmarshalStrict(raw, g); err != nil {
				t.Fatal(err)
			}
			g.check(t, file)
		})
	}
}

// check compares a file with what comes of it, also when that is what the hub has.
func (g *golden) check(t *testing.T, file string) {
	t.Helper()
	object, rows := g.parts()
	before, beforeRows := object.DeepCopy(), runtime.DeepCopyJSONValue(statuses(rows))
	got, err := g.run(object, rows)
	if g.Error != "" {
		if err == nil || !strings.Contains(err.Error(), g.Error) {
			t.Errorf("%s: got error %v, want one with %q", g.Reason, err, g.Error)
		}
		return
	}
	if err != nil {
		t.Fatalf("%s: %v", g.Reason, err)
	}
	if diff := cmp.Diff(before.Object, object.Object) + cmp.Diff(beforeRows, statuses(rows)); diff != "" {
		t.Errorf("the arguments were changed: %s", diff)
	}
	if *update {
		g.write(t, file, got)
		return
	}
	if diff := cmp.Diff(norm(g.Want), norm(got)); diff != "" {
		t.Errorf("%s: -want +got\n%s", g.Reason, diff)
	}
	if got == nil {
		return
	}
	object.Object["status"] = runtime.DeepCopyJSON(got)
	again, err := g.run(object, rows)
	if diff := cmp.Diff(got, again); diff != "" || err != nil {
		t.Errorf("the same reports make another status, so there is a write without end: %v\n%s", err, diff)
	}
}

func (g *golden) run(object *unstructured.Unstructured, rows []Row) (map[string]any, error) {
	if g.Exact {
		return Exact(object, rows[0]), nil
	}
	return Sum(object, rows, noon())
}

func norm(m map[string]any) map[string]any {
	if m == nil {
		return nil
	}
	return ints(m)
}

func statuses(rows []Row) []any {
	all := make([]any, 0, len(rows))
	for _, r := range rows {
		all = append(all, r.Status)
	}
	return all
}

// write puts the answer into a file, below what stands there.
func (g *golden) write(t *testing.T, file string, got map[string]any) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(raw), "\nwant:")
	want, err := yaml.Marshal(map[string]any{"want": got})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.TrimRight(head, "\n")+"\n"+string(want)), 0o600); err != nil {
		t.Fatal(err)
	}
}
