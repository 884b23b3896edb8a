// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package v1alpha1_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// The API server rejects what would not work, and says in which field and what is right.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const (
		duration = `must be a duration such as "90s", "10m" or "1h30m"`
		quantity = "must be a quantity from 0, such as "
	)
	policies := []string{"Placement", "ClusterPlacement"}
	cases := []struct {
		kinds              []string
		spec, field, wants string
	}{
		{policies, `replicas: {by: Available}`, "spec.replicas.by", "dividing by available room is not served yet: use Static"},
		{policies, `status: {associated: Mirror}`, "spec.status.associated", "mirroring associated objects is not served yet: use Counts"},
		{policies, `volumes: Transfer`, "spec.volumes", "moving volumes is not served yet: use Refuse"},
		{policies, `volumes: Recreate`, "spec.volumes", "moving volumes is not served yet: use Refuse"},
		{policies, `volumes: Copy`, "spec.volumes", `supported values: "Refuse"`},
		{policies, `move: {settle: 1d}`, "spec.move.settle", duration},
		{policies, `move: {settle: "10"}`, "spec.move.settle", duration},
		{policies, `move: {settle: ""}`, "spec.move.settle", duration},
		{policies, `move: {deadline: -5m}`, "spec.move.deadline", duration},
		{policies, `move: {deadline: 9999999h}`, "spec.move.deadline", duration},
		{policies, `offline: {assumeLostAfter: 1 h}`, "spec.offline.assumeLostAfter", duration},
		{policies, `replicas: {max: {east: 3000000000}}`, "spec.replicas.max", "less than or equal to 1000000"},
		{policies, `replicas: {min: {east: 1000001}}`, "spec.replicas.min", "less than or equal to 1000000"},
		{policies, `move: {surge: 3000000000}`, "spec.move.surge", `must be a number from 0 to 1000000, or a percentage such as "25%"`},
		{policies, `move: {surge: "25"}`, "spec.move.surge", `must be a number from 0 to 1000000, or a percentage such as "25%"`},
		{policies, `move: {unavailable: -1}`, "spec.move.unavailable", `must be a number from 0 to 1000000, or a percentage from "0%" to "100%"`},
		{policies, `move: {unavailable: 101%}`, "spec.move.unavailable", `must be a number from 0 to 1000000, or a percentage from "0%" to "100%"`},
		{[]string{"Cluster"}, `limits: {cpu: 1e1.5}`, "spec.limits.cpu", quantity + `"16" or "500m"`},
		{[]string{"Cluster"}, `limits: {cpu: -1}`, "spec.limits.cpu", quantity + `"16" or "500m"`},
		{[]string{"Cluster"}, `limits: {memory: "1e2147483648"}`, "spec.limits.memory", quantity + `"64Gi"`},
		{[]string{"Cluster"}, `limits: {pods: 3000000000}`, "spec.limits.pods", "less than or equal to 2147483647"},
		{[]string{"Cluster"}, `drain: {deadline: 2026-01-02t15:04:05z}`, "spec.drain.deadline", "should match '^[0-9]{4}-"},
		{[]string{"Cluster"}, `drain: {deadline: tomorrow}`, "spec.drain.deadline", "must be of type date-time"},
		{policies, `move: {settle: 1.5h, deadline: "0", surge: 1000000, unavailable: 100%}`, "", ""},
		{policies, `move: {settle: 1h30m0.5s, deadline: 100ms, surge: 250%, unavailable: 0}`, "", ""},
		{policies, `{replicas: {min: {east: 0}, max: {east: 1000000}}, volumes: Refuse}`, "", ""},
		{[]string{"Cluster"}, `{limits: {cpu: 2, memory: 64Gi, pods: 2147483647}, drain: {deadline: "2026-01-02T15:04:05Z"}}`, "", ""},
		{[]string{"Cluster"}, `{limits: {cpu: "0.5", memory: "1e12"}, drain: {deadline: "2026-01-02T15:04:05+02:00"}}`, "", ""},
	}
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		for _, tc := range cases {
			for _, kind := range tc.kinds {
				spec := map[string]any{}
				if err := yaml.Unmarshal([]byte(tc.spec), &spec); err != nil {
					t.Fatal(err)
				}
				o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
				o.SetGroupVersionKind(v1alpha1.SchemeGroupVersion().WithKind(kind))
				o.SetName(apitest.Name("refused"))
				if kind == "Placement" {
					o.SetNamespace(metav1.NamespaceDefault)
				}
				err := env.Client.Create(t.Context(), o, client.DryRunAll)
				if tc.field == "" {
					if err != nil {
						t.Errorf("%s %s: %v", kind, tc.spec, err)
					}
					continue
				}
				if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.field) || !strings.Contains(err.Error(), tc.wants) {
					t.Errorf("%s %s: got %v, want %s: %s", kind, tc.spec, err, tc.field, tc.wants)
				}
			}
		}
	})
}
