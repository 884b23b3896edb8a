// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package kubectl

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// apply applies a manifest as a user's tool does.
func apply(t *testing.T, c client.Client, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("helm")); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return o
}

// joined makes the API server of a cluster look as if its agent had joined the hub as east.
func joined(t *testing.T, hub, cluster client.Client) {
	t.Helper()
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{"east": {Server: "https://hub.example"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agentNamespace}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agentNamespace, Name: hubSecretName}, Data: map[string][]byte{"kubeconfig": kubeconfig}},
	} {
		if err := cluster.Create(t.Context(), o); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"east", "west"} {
		c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSpec{Accepted: true}}
		if err := hub.Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now()}}
		if err := hub.Status().Update(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		for _, o := range []client.Object{
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterNamespacePrefix + name}},
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ClusterNamespacePrefix + name, Name: v1alpha1.HeartbeatLease}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("patchbay-agent-1")}},
		} {
			if err := hub.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// templated is the manifest of a Deployment; more is added to its Pod template's spec.
func templated(name, more string) string {
	return `{apiVersion: apps/v1, kind: Deployment, metadata: {name: ` + name + `, namespace: shop}, spec: {replicas: 2, selector: {matchLabels: {app: ` + name + `}},
 template: {metadata: {labels: {app: ` + name + `}}, spec: {` + more + `containers: [{name: c, image: "registry.example/app:1"}]}}}}`
}

// Without --yes an import changes nothing: it prints the effect on each object, and the causes of refusals.
func TestImportPlan(t *testing.T) {
	t.Parallel()
	hub, do := hubBench(t)
	env := apitest.New(t)
	cluster, err := adminFactory(env).unthrottledPlacementClient()
	if err != nil {
		t.Fatal(err)
	}
	joined(t, hub, cluster)
	for _, c := range []client.Client{hub, cluster} {
		if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}); err != nil {
			t.Fatal(err)
		}
	}
	importFrom := func(name string, args ...string) (string, error) {
		return do(append([]string{"import", "--in=" + name, "--in-kubeconfig=" + env.ControlPlane.AdminKubeconfig()}, args...)...)
	}
	apply(t, cluster, templated("web", ""))
	apply(t, cluster, templated("worker", "serviceAccountName: builder, "))
	apply(t, cluster, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: builder, namespace: shop}}")
	apply(t, cluster, templated("scaled", ""))
	apply(t, cluster, "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: scaler, namespace: shop}, spec: {maxReplicas: 4, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: scaled}}}")
	for _, c := range []client.Client{hub, cluster} {
		value := map[bool]string{true: "aHVi", false: "Y2x1c3Rlcg=="}[c == hub]
		apply(t, c, "{apiVersion: v1, kind: Secret, metadata: {name: both, namespace: shop}, data: {a: "+value+"}}")
		apply(t, c, "{apiVersion: v1, kind: ConfigMap, metadata: {name: same, namespace: shop}, data: {a: b}}")
	}
	apply(t, cluster, "{apiVersion: v1, kind: ConfigMap, metadata: {name: other, namespace: shop, labels: {placement.patchbay.io/managed: 'true'}, annotations: {placement.patchbay.io/source-uid: x}}}")
	apply(t, cluster, "{apiVersion: v1, kind: ConfigMap, metadata: {name: owned, namespace: shop, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: same, uid: x}]}}")
	const open = "Namespace shop of east: gets the label placement.patchbay.io/access=create. What hub users may do in their namespace shop, they may then do there\n"

	for name, tc := range map[string]struct {
		reason string
		args   []string
		want   string // after open
		err    string
	}{
		"Adopted":        {"The plan names the object and what changes.", []string{"shop/deploy/web"}, "Deployment shop/web: is created at the hub for east, and adopted there; nothing changes in east\nNothing was changed. To import: kubectl patchbay import shop/deploy/web --in=east --in-kubeconfig=", ""},
		"ServiceAccount": {"The agent would refuse it.", []string{"shop/deploy/worker", "--yes"}, "Deployment shop/worker: refused: its Pods run as ServiceAccount builder, which must be imported, too, or get the label placement.patchbay.io/access=use in the cluster\n", "nothing was changed"},
		"Both":           {"Its account comes, too, and first.", []string{"shop/deploy/worker", "shop/sa/builder"}, "ServiceAccount shop/builder: is created at the hub for east, and adopted there; nothing changes in east\nDeployment shop/worker: is created at the hub for east, and adopted there; nothing changes in east\nNothing was changed.", ""},
		"Autoscaler":     {"The hub would scale against it.", []string{"shop/deploy/scaled"}, "Deployment shop/scaled: refused: HorizontalPodAutoscaler scaler scales it: first create a Placement at the hub that selects it, with apply.yield: [spec.replicas]\n", "nothing was changed"},
		"Different":      {"The values of a Secret are not printed.", []string{"shop/secret/both"}, "Secret shop/both: refused: the hub has an object with that name and other content:\n    data.a: (a hidden value) becomes (a hidden value)\n", "nothing was changed"},
		"Elsewhere":      {"The object at the hub may be for other clusters.", []string{"shop/cm/same"}, `ConfigMap shop/same: refused: the hub has it, with metadata.annotations[placement.patchbay.io/clusters] "", which must be "east": kubectl annotate`, "nothing was changed"},
		"OtherHub":       {"Two hubs must not manage one object.", []string{"shop/cm/other"}, "ConfigMap shop/other: refused: another hub manages it", "nothing was changed"},
		"Owned":          {"A named object that cannot come is an error.", []string{"shop/cm/owned"}, "ConfigMap shop/owned: refused: ConfigMap same owns it\n", "nothing was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := importFrom("east", tc.args...)
			if got := strings.TrimPrefix(out, open); !strings.HasPrefix(got, tc.want) {
				t.Errorf("%s\n-want +got\n%s", tc.reason, cmp.Diff(tc.want, got))
			}
			if (err == nil) != (tc.err == "") || err != nil && !strings.HasPrefix(err.Error(), tc.err) {
				t.Errorf("%s\ngot %v, want %q", tc.reason, err, tc.err)
			}
		})
	}
	for name, tc := range map[string]struct {
		reason, cluster, want string
		args                  []string
	}{
		"Context":   {"The hub would create a second copy of the objects in west.", "west", "flag --in-context: must lead to the cluster west: the agent of the context's cluster has joined as east", []string{"shop"}},
		"Unknown":   {"The Cluster must exist.", "north", "read Cluster north of the hub", []string{"shop"}},
		"Name":      {"A Cluster has a name.", "", `flag --in: must be the name of a Cluster, such as "east": got ""`, []string{"shop"}},
		"Form":      {"The form is one of three.", "east", `"shop/deployment/web/x" must be NAMESPACE, NAMESPACE/KIND or NAMESPACE/KIND/NAME`, []string{"shop/deployment/web/x"}},
		"Arguments": {"An import of all namespaces would be a mistake.", "east", "give one or several NAMESPACE", nil},
		"Namespace": {"A misspelt namespace has no objects.", "east", "read Namespace shopp of the cluster", []string{"shopp"}},
		"Kind":      {"Cluster-scoped kinds stay there.", "east", "KIND nodes: must be a kind with namespaces", []string{"shop/nodes"}},
	} {
		t.Run("Wrong"+name, func(t *testing.T) {
			if out, err := importFrom(tc.cluster, tc.args...); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\ngot %q, %v, want %q", tc.reason, out, err, tc.want)
			}
		})
	}
	t.Run("OtherHubsAgent", func(t *testing.T) {
		pod := apply(t, cluster, "{apiVersion: v1, kind: Pod, metadata: {name: patchbay-agent-2, namespace: patchbay-system}, spec: {containers: [{name: c, image: a}]}}")
		_, err := importFrom("east", "shop")
		if err == nil || !strings.Contains(err.Error(), "the heartbeat at this hub is not from the agent of the context's cluster (patchbay-agent-2)") {
			t.Errorf("got %v: a hub with a Cluster of the same name would create the objects in that one", err)
		}
		if err := cluster.Delete(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	})
	checkUntouched(t, hub, cluster)
}

// checkUntouched checks that plans have changed nothing.
func checkUntouched(t *testing.T, hub, cluster client.Client) {
	t.Helper()
	web := &unstructured.Unstructured{}
	web.SetAPIVersion("apps/v1")
	web.SetKind("Deployment")
	key := client.ObjectKey{Namespace: "shop", Name: "web"}
	if err := hub.Get(t.Context(), key, web.DeepCopy()); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("at the hub: got %v, want no Deployment", err)
	}
	if err := cluster.Get(t.Context(), key, web); err != nil {
		t.Fatal(err)
	}
	fields, err := json.Marshal(web.GetManagedFields())
	if err != nil {
		t.Fatal(err)
	}
	if len(web.GetLabels()) > 0 || len(web.GetManagedFields()) != 1 {
		t.Errorf("in the cluster: got labels %v, fields %s, want them untouched", web.GetLabels(), fields)
	}
	ns := &corev1.Namespace{}
	if err := cluster.Get(t.Context(), client.ObjectKey{Name: "shop"}, ns); err != nil || ns.Labels[v1alpha1.AccessLabel] != "" {
		t.Errorf("namespace: got %v, %v, want no label", ns.Labels, err)
	}
}
