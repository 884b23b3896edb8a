// SPDX-License-Identifier: Apache-2.0

package aggregate

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

// update writes the results into the golden files. Review them before you commit them.
var update = flag.Bool("update", false, "write the golden files")

// golden is a file of testdata: an object, the reports of clusters, and the status computed from them.
type golden struct {
	Reason string         `json:"reason"`
	Exact  bool           `json:"exact,omitempty"`
	Object map[string]any `json:"object"`
	Rows   []goldenRow    `json:"rows"`
	Want   map[string]any `json:"want"`
	Error  string         `json:"error,omitempty"`
}

// goldenRow is a Report; the cluster is reachable unless unreachable is set.
type goldenRow struct {
	Cluster    string         `json:"cluster"`
	Observed   int64          `json:"observed"`
	Generation int64          `json:"generation"`
	Asked      *int32         `json:"asked,omitempty"`
	Wanted     *int32         `json:"wanted,omitempty"`
	Ready      bool           `json:"ready,omitempty"`
	Unreached  bool           `json:"unreachable,omitempty"`
	Status     map[string]any `json:"status,omitempty"`
}

// noon is the time of all summaries in the tests.
func noon() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) }

// ints turns the numbers of YAML into the types that the API server's JSON decodes to.
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

// parts returns the object and the reports of a file.
func (g *golden) parts() (*unstructured.Unstructured, []Report) {
	rows := make([]Report, 0, len(g.Rows))
	for _, r := range g.Rows {
		row := Report{
			Cluster: r.Cluster, ObservedGeneration: r.Observed, Generation: r.Generation, Requested: r.Asked, Desired: r.Wanted,
			Ready: r.Ready, Reachable: !r.Unreached,
		}
		if r.Status != nil {
			row.Status = ints(r.Status)
		}
		rows = append(rows, row)
	}
	return &unstructured.Unstructured{Object: ints(g.Object)}, rows
}

// files reads the golden files by name.
func files(t *testing.T) map[string]*golden {
	t.Helper()
	names, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatal("no golden files", err)
	}
	all := map[string]*golden{}
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = &golden{}
		if err := yaml.UnmarshalStrict(raw, all[name]); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return all
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for file, g := range files(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			g.check(t, file)
		})
	}
}

// Each kind has a golden file. The hub stores the exact report of a single cluster, except
// observedGeneration, which is the hub's, and the allocation bitmaps of networks.
func TestExactOfEveryKind(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for file, g := range files(t) {
		object, rows := g.parts()
		seen[object.GetKind()] = true
		delete(object.Object, "status")
		for _, row := range rows {
			row.ObservedGeneration = object.GetGeneration()
			got := TranslateStatus(object, row)
			if object.GetKind() == "Namespace" || row.Status == nil {
				continue // the hub's controllers write it, or there is no report
			}
			want := runtime.DeepCopyJSON(row.Status)
			if object.GroupVersionKind().Group == networkGroup {
				for _, field := range []string{"ipam", "vlan", "observedGeneration"} {
					delete(want, field)
				}
			}
			generations(want, row.Generation, object.GetGeneration())
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s: -want +got\n%s", file, row.Cluster, diff)
			}
		}
	}
	for _, kind := range []string{
		"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob", "Service", "Ingress", "PersistentVolumeClaim", "Pod",
		"HorizontalPodAutoscaler", "PodDisruptionBudget", "ClusterNetwork", "TenantNetwork", "DanmNet", "Database",
	} {
		if !seen[kind] {
			t.Errorf("%s has no golden file", kind)
		}
	}
}

// generations translates observedGeneration; a condition that is behind stays so.
func generations(status map[string]any, from, to int64) {
	if _, ok := status["observedGeneration"]; ok {
		status["observedGeneration"] = to
	}
	for _, c := range conditionsByType(status) {
		if seen, ok := c["observedGeneration"].(int64); ok {
			c["observedGeneration"] = max(0, to-max(0, from-seen))
		}
	}
}

// check compares a file with the result, also when the hub has that already.
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
		t.Errorf("the same reports give another status, so the hub would write it again and again: %v\n%s", err, diff)
	}
}

func (g *golden) run(object *unstructured.Unstructured, rows []Report) (map[string]any, error) {
	if g.Exact {
		return TranslateStatus(object, rows[0]), nil
	}
	return SumStatuses(object, rows, noon())
}

func norm(m map[string]any) map[string]any {
	if m == nil {
		return nil
	}
	return ints(m)
}

func statuses(rows []Report) []any {
	all := make([]any, 0, len(rows))
	for _, r := range rows {
		all = append(all, r.Status)
	}
	return all
}

// write replaces the result in a file.
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
