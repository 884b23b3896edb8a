// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// kcp policy, who may place where: a tenant places every kind on the clusters that it may
// use, by every verb, and is told of the others which field, which value and what to do.
func TestKCPPolicyTenants(t *testing.T) {
	t.Parallel()
	w := shared
	ns := w.namespace(t)
	checkInvariants(t, w, ns)
	tenant := w.newUserClient(t, ns, "tenant", "edit", ns, "east,south")
	w.grantAll(t, ns, "tenant")
	eventually(t, "the rights are known", func() error {
		return errors.Join(tenant.Create(t.Context(), annotatedObject(t, ns, "ConfigMap", "east"), client.DryRunAll),
			tenant.List(t.Context(), &rbacv1.RoleList{}, client.InNamespace(ns)))
	})

	for kind := range tenantKinds() {
		for clusters, refused := range map[string]string{
			"east": "", "": "", "east=2,south=1": "", "east, south": "",
			"west": "west", "east,west": "west", "west=1,east": "west", "nowhere": "nowhere",
			strings.Repeat("east,", 8) + "east": "at most 8",
		} {
			err := tenant.Create(t.Context(), annotatedObject(t, ns, kind, clusters), client.DryRunAll)
			checkRefusal(t, kind+" created on "+clusters, err, refused)
		}
	}

	// Objects stay where nobody sees them: this is about who may write what.
	o := annotatedObject(t, ns, "Deployment", "")
	if err := tenant.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	merge := func(clusters string) client.Patch {
		return client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.ClustersAnnotation, clusters))
	}
	for clusters, refused := range map[string]string{"south": "", "west": "west"} {
		checkRefusal(t, "patched to "+clusters, tenant.Patch(t.Context(), o.DeepCopy(), merge(clusters), client.DryRunAll), refused)
		checkRefusal(t, "patched in the status to "+clusters, tenant.Status().Patch(t.Context(), o.DeepCopy(), merge(clusters), client.DryRunAll), refused)
		next := o.DeepCopy()
		next.SetResourceVersion("") // the hub writes, too
		next.SetAnnotations(map[string]string{v1alpha1.ClustersAnnotation: clusters})
		checkRefusal(t, "updated to "+clusters, tenant.Update(t.Context(), next, client.DryRunAll), refused)
		apply := client.ApplyConfigurationFromUnstructured(annotatedObject(t, ns, "Deployment", clusters))
		checkRefusal(t, "applied on "+clusters, tenant.Apply(t.Context(), apply, client.DryRunAll, client.ForceOwnership, client.FieldOwner("tenant")), refused)
	}

	w.tenantPlacements(t, tenant, ns)

	// What an admin has placed stays a tenant's to edit, and to take away.
	if err := w.Hub.Client.Patch(t.Context(), o.DeepCopy(), merge("west")); err != nil {
		t.Fatal(err)
	}
	other := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))
	checkRefusal(t, "another edit", tenant.Patch(t.Context(), o.DeepCopy(), other), "")
	checkRefusal(t, "a change of its place", tenant.Patch(t.Context(), o.DeepCopy(), merge("west,east"), client.DryRunAll), "west")
	checkRefusal(t, "nowhere", tenant.Patch(t.Context(), o.DeepCopy(), merge("")), "")
}

// tenantPlacements tries to say in a Placement what the annotation may not say.
func (w *world) tenantPlacements(t *testing.T, tenant client.Client, ns string) {
	t.Helper()
	placement := func(name string, clusters ...v1alpha1.ClusterName) *v1alpha1.Placement {
		return &v1alpha1.Placement{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Spec: v1alpha1.PlacementSpec{
				Objects: []v1alpha1.ObjectSelector{{Kind: "ConfigMap", Names: []v1alpha1.ObjectName{"nobody"}}}, Clusters: v1alpha1.ClusterChoice{Names: clusters},
			},
		}
	}
	for refused, clusters := range map[string][]v1alpha1.ClusterName{
		"": {"east", "south"}, "west": {"east", "west"}, "all Clusters": nil,
	} {
		checkFieldRefusal(t, "a Placement, "+refused, tenant.Create(t.Context(), placement("new", clusters...), client.DryRunAll), "spec.clusters.names", refused)
	}
	admins := placement("admins", "west")
	if err := w.Hub.Client.Create(t.Context(), admins); err != nil {
		t.Fatal(err)
	}
	for patch, refused := range map[string]string{
		`{"metadata":{"labels":{"a":"b"}}}`:               "",
		`{"spec":{"clusters":{"names":["east"]}}}`:        "",
		`{"spec":{"clusters":{"names":["west","east"]}}}`: "west",
		`{"spec":{"clusters":{"names":null}}}`:            "all Clusters",
		`{"spec":{"objects":[{"kind":"Secret"}]}}`:        "west",
	} {
		err := tenant.Patch(t.Context(), admins.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch)), client.DryRunAll)
		checkFieldRefusal(t, "an admin's Placement: "+patch, err, "spec.clusters.names", refused)
	}
}

// checkRefusal compares what became of a request with what is to: a refusal says who is refused
// what, and why.
func checkRefusal(t *testing.T, what string, err error, refused string) {
	t.Helper()
	checkFieldRefusal(t, what, err, "metadata.annotations[placement.patchbay.io/clusters]", refused)
}

func checkFieldRefusal(t *testing.T, what string, err error, field, refused string) {
	t.Helper()
	if refused == "" {
		if err != nil {
			t.Errorf("%s: got %v, want it accepted", what, err)
		}
		return
	}
	if !apierrors.IsForbidden(err) {
		t.Errorf("%s: got %v, want forbidden", what, err)
		return
	}
	for _, want := range []string{field, refused, ":tenant", "the verb use"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q is not in %q", what, want, err)
		}
	}
}

// grantAll lets somebody write all kinds of a namespace, and statuses: what stands in
// the way is the policy alone.
func (w *world) grantAll(t *testing.T, ns, name string) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: ns, Name: "everything"}
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*", "*/status"}, Verbs: []string{"*"}}}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: roleRef("Role", meta.Name),
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: name}},
		},
	} {
		if err := w.Hub.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// annotatedObject is an object of a kind with the annotation.
func annotatedObject(t *testing.T, ns, kind, clusters string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(tenantKinds()[kind]), &o.Object); err != nil {
		t.Fatal(err)
	}
	o.SetKind(kind)
	o.SetNamespace(ns)
	o.SetName("one")
	o.SetAnnotations(map[string]string{v1alpha1.ClustersAnnotation: clusters})
	return o
}

// tenantKinds are what tenants make.
func tenantKinds() map[string]string {
	const pod = `{containers: [{name: c, image: "registry.example/app:1"}]}`
	const template = `{metadata: {labels: {app: one}}, spec: ` + pod + `}`
	const job = `{template: {spec: {restartPolicy: Never, containers: [{name: c, image: "registry.example/app:1"}]}}}`
	return map[string]string{
		"ConfigMap":               `{apiVersion: v1}`,
		"Secret":                  `{apiVersion: v1}`,
		"ServiceAccount":          `{apiVersion: v1}`,
		"Service":                 `{apiVersion: v1, spec: {ports: [{port: 80}]}}`,
		"PersistentVolumeClaim":   `{apiVersion: v1, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`,
		"Pod":                     `{apiVersion: v1, spec: ` + pod + `}`,
		"Deployment":              `{apiVersion: apps/v1, spec: {selector: {matchLabels: {app: one}}, template: ` + template + `}}`,
		"ReplicaSet":              `{apiVersion: apps/v1, spec: {selector: {matchLabels: {app: one}}, template: ` + template + `}}`,
		"StatefulSet":             `{apiVersion: apps/v1, spec: {serviceName: one, selector: {matchLabels: {app: one}}, template: ` + template + `}}`,
		"DaemonSet":               `{apiVersion: apps/v1, spec: {selector: {matchLabels: {app: one}}, template: ` + template + `}}`,
		"Job":                     `{apiVersion: batch/v1, spec: ` + job + `}`,
		"CronJob":                 `{apiVersion: batch/v1, spec: {schedule: "0 0 * * *", jobTemplate: {spec: ` + job + `}}}`,
		"Ingress":                 `{apiVersion: networking.k8s.io/v1, spec: {defaultBackend: {service: {name: one, port: {number: 80}}}}}`,
		"NetworkPolicy":           `{apiVersion: networking.k8s.io/v1, spec: {podSelector: {}}}`,
		"PodDisruptionBudget":     `{apiVersion: policy/v1, spec: {maxUnavailable: 1}}`,
		"HorizontalPodAutoscaler": `{apiVersion: autoscaling/v2, spec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: one}}}`,
	}
}
