// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package v1alpha1_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// The API server rejects values that would not work, with field and rule.
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
		{policies, `replicas: {by: Available, weights: {east: 1}}`, "spec.replicas.by", "must be Static with weights: Available divides by the room of the clusters"},
		{policies, `status: {associated: Mirror}`, "spec.status.associated", "mirroring associated objects is not served yet: use Counts"},
		{policies, `volumes: Recreate`, "spec.volumes", "starting with empty volumes is not served yet: use Refuse or Transfer"},
		{policies, `volumes: Copy`, "spec.volumes", `supported values: "Refuse"`},
		{policies, `move: {settle: 1d}`, "spec.move.settle", duration},
		{policies, `move: {settle: "10"}`, "spec.move.settle", duration},
		{policies, `move: {settle: ""}`, "spec.move.settle", duration},
		{policies, `move: {stable: -10s}`, "spec.move.stable", duration},
		{policies, `move: {stable: 1d}`, "spec.move.stable", duration},
		{policies, `move: {stable: "10"}`, "spec.move.stable", duration},
		{policies, `move: {stable: 10m1s}`, "spec.move.stable", "must be at most 10m"},
		{policies, `move: {stable: 99999h}`, "spec.move.stable", "must be at most 10m"},
		{policies, `move: {deadline: -5m}`, "spec.move.deadline", duration},
		{policies, `move: {deadline: 9999999h}`, "spec.move.deadline", duration},
		{policies, `offline: {assumeLostAfter: 1 h}`, "spec.offline.assumeLostAfter", duration},
		{policies, `offline: {assumeLostAfter: 19.9s}`, "spec.offline.assumeLostAfter", "must be at least 20s"},
		{policies, `offline: {assumeLostAfter: "0"}`, "spec.offline.assumeLostAfter", "must be at least 20s"},
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
		{[]string{"Cluster"}, `declaredLost: {lastHeartbeat: "2026-01-02T15:04:05.000000Z"}`, "spec.declaredLost", "must be absent in a new Cluster"},
		{[]string{"Cluster"}, `drain: {deadline: tomorrow}`, "spec.drain.deadline", "must be of type date-time"},
		{policies, `move: {settle: 1.5h, deadline: "0", surge: 1000000, unavailable: 100%}`, "", ""},
		{policies, `move: {stable: 10m}`, "", ""},
		{policies, `offline: {assumeLostAfter: 20s}`, "", ""},
		{policies, `move: {stable: "0"}`, "", ""},
		{policies, `move: {stable: 1.5s}`, "", ""},
		{policies, `move: {settle: 1h30m0.5s, deadline: 100ms, surge: 250%, unavailable: 0}`, "", ""},
		{policies, `{replicas: {min: {east: 0}, max: {east: 1000000}}, volumes: Refuse}`, "", ""},
		{policies, `volumes: Transfer`, "", ""},
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

// An Assignment with the maximum of targets has at most MaxObjectBytes, with its managedFields.
func TestLargestAssignment(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		c, err := client.New(env.Config, client.Options{Scheme: bed.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		a := largest()
		status := a.Status
		if err := c.Create(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		a.Spec.Targets[0].RequestedReplicas = new(int32(1)) // the hub changes it later
		if err := c.Update(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		a.Status = status
		if err := c.Status().Update(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(a), a); err != nil {
			t.Fatal(err)
		}
		if len(a.ManagedFields) == 0 || len(a.Spec.Targets) != 500 || len(a.Status.Clusters) != 500 {
			t.Fatalf("got %d entries of managedFields, %d targets, %d clusters", len(a.ManagedFields), len(a.Spec.Targets), len(a.Status.Clusters))
		}
		raw, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) > v1alpha1.MaxObjectBytes {
			fields, _ := json.Marshal(a.ManagedFields)
			t.Errorf("it has %d bytes, %d of them managedFields, want at most %d", len(raw), len(fields), v1alpha1.MaxObjectBytes)
		}
	})
}

// largest returns the Assignment of a Deployment that is divided between 500 clusters, with the largest
// status that the hub writes: 128 KiB of entries.
func largest() *v1alpha1.Assignment {
	now := metav1.NewMicroTime(time.Now())
	a := &v1alpha1.Assignment{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: apitest.Name("largest")},
		Spec: v1alpha1.AssignmentSpec{
			Object: v1alpha1.ObjectReference{
				Group: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments", Namespace: metav1.NamespaceDefault,
				Name: "web", UID: "00000000-0000-0000-0000-000000000000",
			},
			Decision: v1alpha1.Decision{Source: "Placement default/web", Number: 12, LastChangeTime: &now, OnDelete: v1alpha1.OnDeleteDelete},
		},
	}
	var summary []string
	for i := range 500 {
		name := fmt.Sprintf("production-eu-%06d", i)
		summary = append(summary, name+" 1000")
		a.Spec.Targets = append(a.Spec.Targets, v1alpha1.Target{
			Cluster: v1alpha1.ClusterName(name), Replicas: new(int32(1000)), RequestedReplicas: new(int32(1000)), State: v1alpha1.TargetActive, LastTransitionTime: &now,
		})
		a.Status.Clusters = append(a.Status.Clusters, v1alpha1.ClusterReport{
			Cluster: v1alpha1.ClusterName(name), Term: 12, Revision: 1234, Applied: true, Replicas: &v1alpha1.ReplicaCounts{Total: 1000, Ready: 1000, Available: 999},
			Message: strings.Repeat("m", 60), Associated: &v1alpha1.Associated{Pods: map[string]int32{"Running": 999, "ContainerCreating": 1}},
		})
	}
	a.Status.Summary = strings.Join(summary, ", ")
	return a
}
