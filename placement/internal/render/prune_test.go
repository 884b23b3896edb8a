// SPDX-License-Identifier: Apache-2.0

package render

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPrune(t *testing.T) {
	t.Parallel()
	const meta = `metadata:
  name: x
  namespace: shop
  uid: u
  resourceVersion: "7"
  generation: 3
  creationTimestamp: "2026-01-01T00:00:00Z"
  deletionTimestamp: "2026-01-01T00:00:00Z"
  finalizers: [placement.patchbay.io/placed, example.com/mine]
  ownerReferences: [{apiVersion: example.com/v1, kind: Database, name: main, uid: u2}]
  managedFields: [{manager: kubectl, operation: Apply, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:ports": {'k:{"port":443,"protocol":"TCP"}': {"f:nodePort": {}}, "v:odd": {"f:nodePort": {}}}}}}, {manager: other, operation: Update, subresource: status, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {"f:nodePort": {}}}}}}]
  labels: {app: web, job-name: x, batch.kubernetes.io/controller-uid: u}
  annotations: {note: keep, kubectl.kubernetes.io/last-applied-configuration: "{}", placement.patchbay.io/clusters: "east,west"}
`
	const labels = "labels: {app: web, job-name: x, batch.kubernetes.io/controller-uid: u}"
	const kept = "metadata: {name: x, namespace: shop, " + labels + ", annotations: {note: keep}}\n"
	cases := map[string]struct{ reason, text, want string }{
		"ConfigMap": {
			reason: "data stays, UID and owners are for the hub",
			text:   "apiVersion: v1\nkind: ConfigMap\n" + meta + "data: {a: b}\nstatus: {x: y}",
			want:   "apiVersion: v1\nkind: ConfigMap\n" + kept + "data: {a: b}",
		},
		"OnlyOurAnnotations": {
			reason: "an empty map of annotations is removed",
			text:   "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, annotations: {placement.patchbay.io/clusters: east}}",
			want:   "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}",
		},
		"Deployment": {
			reason: "nulls of the API server are removed, replicas stay",
			text:   "apiVersion: apps/v1\nkind: Deployment\n" + meta + "spec: {replicas: 3, template: {metadata: {creationTimestamp: null, labels: {a: b}}}}",
			want:   "apiVersion: apps/v1\nkind: Deployment\n" + kept + "spec: {replicas: 3, template: {metadata: {labels: {a: b}}}}",
		},
		"Service": {
			reason: "allocated addresses and ports are removed; a node port in kubectl's managedFields was requested",
			text: "apiVersion: v1\nkind: Service\n" + meta + "spec: {clusterIP: 10.0.0.3, clusterIPs: [10.0.0.3], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack, healthCheckNodePort: 31000, " +
				"ports: [{port: 80, protocol: TCP, nodePort: 30123}, {port: 443, nodePort: 30443}]}",
			want: "apiVersion: v1\nkind: Service\n" + kept + "spec: {ports: [{port: 80, protocol: TCP}, {port: 443, nodePort: 30443}]}",
		},
		"Headless": {
			reason: "the cluster IP None and a dual-stack policy are requested",
			text:   "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {clusterIP: None, clusterIPs: [None], ipFamilyPolicy: PreferDualStack}",
			want:   "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {clusterIP: None, clusterIPs: [None], ipFamilyPolicy: PreferDualStack}",
		},
		"Job": {
			reason: "a cluster would reject the selector and labels with the UID at the hub",
			text:   "apiVersion: batch/v1\nkind: Job\n" + meta + "spec: {selector: {matchLabels: {batch.kubernetes.io/controller-uid: u}}, template: {metadata: {labels: {app: web, controller-uid: u, batch.kubernetes.io/job-name: x}}}}",
			want:   "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x, namespace: shop, labels: {app: web}, annotations: {note: keep}}\nspec: {template: {metadata: {labels: {app: web}}}}",
		},
		"JobWithoutLabels": {
			reason: "the API server of the hub has added all labels, and drops an empty map from a Work",
			text:   "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x, labels: {controller-uid: u}}\nspec: {template: {metadata: {labels: {controller-uid: u}}}}",
			want:   "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\nspec: {template: {metadata: {}}}",
		},
		"JobWithTTL": {
			reason: "the hub deletes a finished Job, and orders its removal; a CronJob's Jobs are the cluster's",
			text:   "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\nspec: {ttlSecondsAfterFinished: 0, manualSelector: true, template: {}}",
			want:   "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\nspec: {manualSelector: true, template: {}}",
		},
		"CronJobWithTTL": {
			reason: "the Jobs of a CronJob are not at the hub",
			text:   "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: x}\nspec: {jobTemplate: {spec: {ttlSecondsAfterFinished: 0}}}",
			want:   "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: x}\nspec: {jobTemplate: {spec: {ttlSecondsAfterFinished: 0}}}",
		},
		"JobByHand": {
			reason: "a manual selector stays",
			text:   "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\nspec: {manualSelector: true, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}}}",
			want:   "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\nspec: {manualSelector: true, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}}}",
		},
		"Pod": {
			reason: "a cluster sets node, priority and token volume; ephemeral containers cannot be created",
			text: "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {nodeName: n1, ephemeralContainers: [{name: debug}], priority: 0, priorityClassName: high, volumes: [{name: kube-api-access-x7, projected: {}}, {name: data}], " +
				"initContainers: [{name: i}], containers: [{name: c, volumeMounts: [{name: data}, {name: kube-api-access-x7}]}]}",
			want: "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {priorityClassName: high, volumes: [{name: data}], initContainers: [{name: i}], containers: [{name: c, volumeMounts: [{name: data}]}]}",
		},
		"ServiceAccount": {
			reason: "tokens do not leave the hub",
			text:   "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: x}\nsecrets: [{name: x-token}]\nimagePullSecrets: [{name: pull}]",
			want:   "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: x}\nimagePullSecrets: [{name: pull}]",
		},
		"Namespace": {
			reason: "the API server sets the finalizer of a namespace",
			text:   "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\nspec: {finalizers: [kubernetes]}\nstatus: {phase: Active}",
			want:   "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}",
		},
		"Network": {
			reason: "the allocation bitmap of a network stays at the hub",
			text:   "apiVersion: danm.io/v1\nkind: TenantNetwork\nmetadata: {name: x}\nspec: {NetworkID: lan}\nstatus: {ipam: {v4: {cidr: 10.0.0.0/24}}}",
			want:   "apiVersion: danm.io/v1\nkind: TenantNetwork\nmetadata: {name: x}\nspec: {NetworkID: lan}",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := object(t, tc.text)
			Prune(o)
			if diff := cmp.Diff(object(t, tc.want).Object, o.Object); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
			once := o.DeepCopy()
			Prune(o)
			if diff := cmp.Diff(once.Object, o.Object, cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == `["nodePort"]` }, cmp.Ignore())); diff != "" {
				t.Errorf("%s: pruned twice: %s", tc.reason, diff)
			}
		})
	}
}
