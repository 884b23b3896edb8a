// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package charts

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// The spec of an Installation, as values of the chart, gives the same workloads, and the same other objects, as the
// operator makes of it. Its golden files are what it makes.
func TestSameAsOperator(t *testing.T) {
	t.Parallel()
	specs, err := filepath.Glob(path(t, "operator", "internal", "render", "testdata", "*.spec.yaml"))
	if err != nil || len(specs) < 3 {
		t.Fatalf("find Installations: %v, %v", specs, err)
	}
	for _, spec := range specs {
		t.Run(filepath.Base(spec), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(spec)
			if err != nil {
				t.Fatal(err)
			}
			golden, err := os.ReadFile(strings.TrimSuffix(spec, ".spec.yaml") + ".golden.yaml")
			if err != nil {
				t.Fatal(err)
			}
			var values map[string]any
			if err := yaml.Unmarshal(text, &values); err != nil {
				t.Fatal(err)
			}
			rendered := mustRender(t, values)
			if diff := cmp.Diff(namesInGolden(string(golden)), names(rendered)); diff != "" {
				t.Errorf("objects: -operator +chart\n%s", diff)
			}
			workloads := objects(t, string(golden))
			if len(workloads) < 2 {
				t.Fatalf("the golden file has %d workloads", len(workloads))
			}
			for name, want := range workloads {
				got := rendered[name]
				withoutOperator(t, want)
				withDefaults(t, got)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: -operator +chart\n%s", name, diff)
				}
			}
		})
	}
}

// names returns the kinds and names of objects.
func names(objects map[string]map[string]any) []string {
	var all []string
	for _, o := range objects {
		metadata, _ := o["metadata"].(map[string]any)
		all = append(all, fmt.Sprint(o["kind"], " ", metadata["name"]))
	}
	slices.Sort(all)
	return all
}

// namesInGolden returns the kinds and names in a golden file, without what the chart leaves to the other chart and to
// the user.
func namesInGolden(golden string) []string {
	var all []string
	for _, match := range regexp.MustCompile(`(?m)^# (\S+ \S+)$`).FindAllStringSubmatch(golden, -1) {
		if !strings.HasPrefix(match[1], "CustomResourceDefinition ") && match[1] != "Namespace "+namespace {
			all = append(all, match[1])
		}
	}
	slices.Sort(all)
	return all
}

// withoutOperator removes from a workload what the operator adds to find its objects again.
func withoutOperator(t *testing.T, o map[string]any) {
	t.Helper()
	labels := mapOf(t, field(t, o, "metadata", "labels"))
	delete(labels, "operator.patchbay.io/installation")
	delete(labels, "app.kubernetes.io/managed-by")
	annotations := mapOf(t, field(t, o, "spec", "template", "metadata", "annotations"))
	delete(annotations, "operator.patchbay.io/template")
	delete(annotations, "operator.patchbay.io/image")
	delete(mapOf(t, o["spec"]), "minReadySeconds") // the operator waits for it before the second node
	if deadline := field(t, o, "spec", "progressDeadlineSeconds"); deadline != nil && deadline != float64(60) && deadline != int64(60) {
		delete(mapOf(t, o["spec"]), "progressDeadlineSeconds") // 300 by default; Kubernetes' own is 600
	}
}

// withDefaults adds to a workload what the operator writes although it is Kubernetes' default.
func withDefaults(t *testing.T, o map[string]any) {
	t.Helper()
	spec := mapOf(t, o["spec"])
	if o["kind"] == "Deployment" && spec["strategy"] == nil {
		spec["strategy"] = map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": "25%", "maxUnavailable": "25%"}}
	}
	for _, c := range listOf(t, field(t, spec, "template", "spec", "containers")) {
		container := mapOf(t, c)
		if resources, ok := container["resources"].(map[string]any); ok && len(resources) == 0 {
			delete(container, "resources")
		}
	}
}
