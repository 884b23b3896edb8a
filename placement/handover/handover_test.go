// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestStaysInCluster(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ reason, object, want string }{
		"deployment":   {"A user's workload may come.", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}}", ""},
		"owned":        {"Its owner makes it.", "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, ownerReferences: [{kind: ReplicaSet, name: web-1}]}}", "ReplicaSet web-1 owns it"},
		"bare pod":     {"Nothing else makes it.", "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}}", ""},
		"root ca":      {"Each cluster has its own certificate authority.", "{apiVersion: v1, kind: ConfigMap, metadata: {name: kube-root-ca.crt, namespace: shop}}", "each cluster has its own"},
		"system":       {"The hub may not place there.", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: kube-system}}", "each cluster has its own"},
		"role":         {"Rights stay with the cluster's admin.", "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a, namespace: shop}}", "each cluster has its own"},
		"token":        {"The token is not valid elsewhere.", "{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: a, namespace: shop}}", "its token is valid in this cluster only"},
		"helm release": {"It is a record of this cluster.", "{apiVersion: v1, kind: Secret, type: helm.sh/release.v1, metadata: {name: a, namespace: shop}}", "Helm records a release of this cluster in it"},
		"secret":       {"A user's Secret may come.", "{apiVersion: v1, kind: Secret, type: Opaque, metadata: {name: a, namespace: shop}}", ""},
		"deleted":      {"It is gone soon.", `{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: shop, deletionTimestamp: "2026-01-01T00:00:00Z"}}`, "it is being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := StaysInCluster(parse(t, tc.object)); got != tc.want {
				t.Errorf("%s\ngot %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// What an API server, a controller or an agent has set is no part of what the hub gets.
func TestForHub(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ reason, live, want string }{
		"deployment": {
			"Machine fields go; kubectl's record and Helm's labels stay.", `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  uid: u
  resourceVersion: "7"
  generation: 2
  labels: {app.kubernetes.io/managed-by: Helm, placement.patchbay.io/access: adopt}
  annotations: {deployment.kubernetes.io/revision: "3", meta.helm.sh/release-name: web, kubectl.kubernetes.io/last-applied-configuration: "{}"}
spec: {replicas: 2, template: {metadata: {labels: {app: web}}}}
status: {replicas: 2}`, `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  labels: {app.kubernetes.io/managed-by: Helm}
  annotations:
    meta.helm.sh/release-name: web
    kubectl.kubernetes.io/last-applied-configuration: "{}"
    placement.patchbay.io/clusters: east
    placement.patchbay.io/conflict: Adopt
spec: {replicas: 2, template: {metadata: {labels: {app: web}}}}`,
		},
		"service": {
			"Addresses and node ports belong to the cluster, unless a user has set them.", `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack, ports: [{port: 80, protocol: TCP, nodePort: 30080}]}`, `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, annotations: {placement.patchbay.io/clusters: east, placement.patchbay.io/conflict: Adopt}}
spec: {ports: [{port: 80, protocol: TCP}]}`,
		},
		"claim": {
			"The volume is the cluster's.", `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: shop, annotations: {pv.kubernetes.io/bind-completed: "yes"}, finalizers: [kubernetes.io/pvc-protection]}
spec: {volumeName: pvc-1, storageClassName: fast}`, `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: shop, annotations: {placement.patchbay.io/clusters: east, placement.patchbay.io/conflict: Adopt}}
spec: {storageClassName: fast}`,
		},
		"stateful set": {
			"Templates of claims have machine fields, too.", `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec: {volumeClaimTemplates: [{metadata: {name: data, creationTimestamp: null}, spec: {storageClassName: fast}, status: {phase: Pending}}]}`, `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop, annotations: {placement.patchbay.io/clusters: east, placement.patchbay.io/conflict: Adopt}}
spec: {volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: fast}}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(parse(t, tc.want).Object, ForHub(parse(t, tc.live), "east").Object); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestChanges(t *testing.T) {
	t.Parallel()
	const base = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, labels: {a: b}}, spec: {replicas: 2, template: {spec: {containers: [{name: c, image: a}]}}}}"
	for name, tc := range map[string]struct {
		reason, before, after string
		want                  []string
	}{
		"marks": {"The agent's marks are no change.", base, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, generation: 3, labels: {a: b, placement.patchbay.io/managed: 'true'}, annotations: {placement.patchbay.io/hub-uid: x}}, spec: {replicas: 2, template: {spec: {containers: [{name: c, image: a}]}}}}", nil},
		"template": {
			"Each field is named.", base, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3, paused: true, template: {spec: {containers: [{name: c, image: b}]}}}}",
			[]string{`metadata.labels: {"a":"b"} is removed`, "spec.paused: true is added", "spec.replicas: 2 becomes 3", `spec.template.spec.containers[0].image: "a" becomes "b"`},
		},
		"secret": {
			"No value of a Secret is printed.", "{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {a: c2VjcmV0, b: eA==}}", "{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {a: b3RoZXI=}}",
			[]string{"data.a: (a hidden value) becomes (a hidden value)", "data.b: (a hidden value) is removed"},
		},
		"secret without data": {
			"No value of a Secret is printed with all others, either.", "{apiVersion: v1, kind: Secret, metadata: {name: a}}", "{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {a: b3RoZXI=}}",
			[]string{"data: (a hidden value) is added"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, c := range Adoption(parse(t, tc.before), parse(t, tc.after)) {
				got = append(got, c.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestRestartsPods(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		object, field string
		want          bool
	}{
		"template": {"{apiVersion: apps/v1, kind: Deployment}", "spec.template.spec.containers[0].image", true},
		"whole":    {"{apiVersion: apps/v1, kind: DaemonSet}", "spec.template", true},
		"replicas": {"{apiVersion: apps/v1, kind: Deployment}", "spec.replicas", false},
		"cron job": {"{apiVersion: batch/v1, kind: CronJob}", "spec.jobTemplate.spec.template", false},
		"custom":   {"{apiVersion: example.com/v1, kind: Widget}", "spec.template", false},
	} {
		if got := RestartsPods(parse(t, tc.object).GroupVersionKind().GroupKind(), tc.field); got != tc.want {
			t.Errorf("%s: got %t, want %t", name, got, tc.want)
		}
	}
}

// After the adoption only the agent owns what it applies. Others keep the rest, and an autoscaler its replicas.
func TestOwnFields(t *testing.T) {
	t.Parallel()
	live := parse(t, `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  managedFields:
  - {manager: patchbay-agent, operation: Apply, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {'k:{"name":"c"}': {".": {}, "f:name": {}, "f:image": {}}}}}}}}
  - {manager: kubectl, operation: Update, fieldsType: FieldsV1, fieldsV1: {"f:metadata": {"f:annotations": {".": {}, "f:note": {}}}, "f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {".": {}, 'k:{"name":"c"}': {".": {}, "f:name": {}, "f:image": {}}}}}}}}
  - {manager: flux, operation: Apply, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:replicas": {}}}}
  - {manager: kubectl-patchbay, operation: Update, fieldsType: FieldsV1, fieldsV1: {"f:metadata": {"f:labels": {".": {}, "f:placement.patchbay.io/access": {}}}}}
  - {manager: kube-controller-manager, operation: Update, subresource: scale, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:replicas": {}}}}
  - {manager: other, operation: Update, fieldsType: FieldsV1, fieldsV1: {"f:spec": {".": {}, "f:paused": {}}}}
`)
	entries, changed, err := OwnFields(live)
	if err != nil || !changed {
		t.Fatalf("changed %t, %v", changed, err)
	}
	got := map[string]string{}
	for _, e := range entries {
		got[e.Manager] = string(e.FieldsV1.GetRawBytes())
	}
	for manager, want := range map[string]string{
		"kubectl": `{"f:metadata":{"f:annotations":{"f:note":{}}}}`, "kube-controller-manager": `{"f:spec":{"f:replicas":{}}}`, "other": `{"f:spec":{".":{},"f:paused":{}}}`,
	} {
		if got[manager] != want {
			t.Errorf("%s: got %s, want %s", manager, got[manager], want)
		}
	}
	if len(got) != 4 || !strings.Contains(got[v1alpha1.AgentFieldManager], "f:image") {
		t.Errorf("got %v, want neither flux nor kubectl-patchbay", got)
	}
	live.SetManagedFields(entries)
	if _, again, err := OwnFields(live); err != nil || again {
		t.Errorf("again: changed %t, %v, want nothing left", again, err)
	}
	live.SetManagedFields(nil)
	if _, _, err := OwnFields(live); err == nil {
		t.Error("without the agent's entry: got no error, and others would lose their fields")
	}
}

// An object whose autoscaler the hub does not know about would be scaled back by it.
func TestYieldsReplicas(t *testing.T) {
	t.Parallel()
	web := parse(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}}")
	yields := v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "all"}}
	if YieldsReplicas(web, nil, nil, nil) || YieldsReplicas(web, nil, []v1alpha1.Placement{yields}, nil) {
		t.Error("no policy yields the replicas")
	}
	yields.Spec.Apply.Yield = []v1alpha1.FieldPath{"spec.replicas"}
	if !YieldsReplicas(web, nil, []v1alpha1.Placement{yields}, nil) {
		t.Error("the policy yields the replicas")
	}
}

// The manifest is what the agent applies, for one live object.
func TestManifest(t *testing.T) {
	t.Parallel()
	atHub := parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop, uid: hub, annotations: {placement.patchbay.io/clusters: east, placement.patchbay.io/conflict: Adopt, placement.patchbay.io/on-delete: Orphan}}, data: {a: b}}")
	want := "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop, uid: live, labels: {placement.patchbay.io/managed: 'true'}}, data: {a: b}}"
	got, err := json.Marshal(Manifest(atHub, "live").Object)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(parse(t, want).Object, parse(t, string(got)).Object); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
