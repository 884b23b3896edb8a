// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/source"
)

// The Helm chart makes the same checks, with the same words: test/charts reads the same cases.
func TestRejectsWhatTheChartRejects(t *testing.T) {
	t.Parallel()
	file, err := source.Path("test", "charts", "testdata", "rejected.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var cases map[string]struct {
		Reason string          `json:"reason"`
		Values json.RawMessage `json:"values"`
		Want   string          `json:"want"`
	}
	if err := yaml.UnmarshalStrict(text, &cases); err != nil {
		t.Fatal(err)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := &v1alpha1.Installation{}
			if err := json.Unmarshal(tc.Values, &i.Spec); err != nil {
				t.Fatal(err)
			}
			_, err := New(i)
			if err == nil {
				t.Fatalf("%s It must be rejected", tc.Reason)
			}
			// The values of the chart are the spec.
			got := strings.TrimPrefix(strings.ReplaceAll("\n"+err.Error()+"\n", "\nspec.", "\n"), "\n")
			if diff := cmp.Diff(tc.Want, got); diff != "" {
				t.Errorf("%s -want +got\n%s", tc.Reason, diff)
			}
		})
	}
}
