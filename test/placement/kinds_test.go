// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// kcp policy: the annotation places, moves and takes back objects of any kind.
func TestKCPPolicyAnyKind(t *testing.T) {
	t.Parallel()
	const pods = `
  selector: {matchLabels: {app: x}}
  template:
    metadata: {labels: {app: x}}
    spec:
      containers: [{name: c, image: "registry.example/app:1"}]
`
	cases := map[string]struct {
		reason, apiVersion, kind, body string
		stays                          bool // it does not move
		once                           bool // nor does it come back
		orphaned                       bool // its removal keeps it in its cluster
	}{
		"ConfigMap": {reason: "No spec, no status.", apiVersion: "v1", kind: "ConfigMap", body: `data: {a: b}`},
		"Secret":    {reason: "Its data are bytes.", apiVersion: "v1", kind: "Secret", body: `stringData: {a: b}`},
		"Claim": {
			reason:     "It does not move, and its data are kept when it is removed.",
			apiVersion: "v1", kind: "PersistentVolumeClaim", stays: true, orphaned: true,
			body: `spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`,
		},
		"Widget": {reason: "A kind that came after the hub and the agents.", apiVersion: "test.example.com/v1", kind: "Widget", body: `spec: {size: 1}`},
		"Job": {
			reason:     "It runs once, and is not run again where it moves to.",
			apiVersion: "batch/v1", kind: "Job", stays: true, once: true,
			body: `spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "registry.example/app:1"}]}}}`,
		},
		"StatefulSet": {reason: "It is in one cluster at a time.", apiVersion: "apps/v1", kind: "StatefulSet", body: "spec:\n  replicas: 2\n  serviceName: x" + pods},
		"DaemonSet":   {reason: "Its number is the cluster's.", apiVersion: "apps/v1", kind: "DaemonSet", body: "spec:" + pods},
		"ClusterNetwork": {
			reason:     "It has no namespace.",
			apiVersion: "danm.io/v1", kind: "ClusterNetwork", body: `spec: {NetworkID: x, Options: {host_device: ens9, cidr: 10.9.0.0/24}}`,
		},
		"TenantNetwork": {reason: "Where nobody assigns devices it stays as it is.", apiVersion: "danm.io/v1", kind: "TenantNetwork", body: `spec: {NetworkID: x, NetworkType: ipvlan}`},
	}
	w := shared
	w.installWidgets(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := w.namespace(t)
			checkInvariants(t, w, ns)
			o := object(tc.apiVersion, tc.kind, ns, "x")
			if strings.HasPrefix(tc.kind, "Cluster") {
				o = object(tc.apiVersion, tc.kind, "", ns)
				t.Cleanup(func() { w.deleteAtEnd(t, object(tc.apiVersion, tc.kind, "", ns)) })
			}
			w.apply(t, w.Hub.Client, ns, fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s, annotations: {%s: east}}\n%s\n",
				tc.apiVersion, tc.kind, o.GetName(), "placement.patchbay.io/clusters", tc.body))
			w.awaitClustersWith(t, o, "east")
			if !tc.stays {
				w.annotate(t, sameKey(o), "west")
				w.awaitClustersWith(t, o, "west")
			}
			if tc.once {
				w.annotate(t, sameKey(o), "west")
				w.awaitPlacedReason(t, o, v1alpha1.ReasonRunsOnce)
				w.awaitClustersWith(t, o, "east")
				w.annotate(t, sameKey(o), "")
				w.awaitClustersWith(t, o, "")
				w.annotate(t, sameKey(o), "west")
				w.awaitPlacedReason(t, o, v1alpha1.ReasonRunsOnce)
			}
			w.annotate(t, sameKey(o), "")
			if tc.orphaned {
				eventually(t, "no Work is left", func() error { return w.checkNoWorks(t, ns) })
				w.awaitClustersWith(t, o, "east")
				checkLetGo(t, o)
				return
			}
			w.awaitClustersWith(t, o, "")
			if err := w.Hub.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				t.Errorf("%s\nat the hub: %v", tc.reason, err)
			}
		})
	}
}

// sameKey names the same object, without what was read of it.
func sameKey(o client.Object) client.Object {
	apiVersion, kind := o.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	return object(apiVersion, kind, o.GetNamespace(), o.GetName())
}
