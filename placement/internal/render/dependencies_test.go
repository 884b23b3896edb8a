// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

const richPod = `
spec:
  serviceAccountName: runner
  imagePullSecrets: [{name: pull}]
  volumes:
  - {name: a, configMap: {name: vol-config}}
  - {name: b, secret: {secretName: vol-secret, optional: true}}
  - {name: c, persistentVolumeClaim: {claimName: data}}
  - {name: d, projected: {sources: [{configMap: {name: proj-config}}, {secret: {name: proj-secret}}, {serviceAccountToken: {path: token}}, {downwardAPI: {}}]}}
  - {name: e, emptyDir: {}}
  - {name: f, csi: {driver: x, nodePublishSecretRef: {name: csi-secret}}}
  - {name: g, iscsi: {targetPortal: x, iqn: x, lun: 0, secretRef: {name: iscsi-secret}}}
  - {name: h, cephfs: {monitors: [x], secretRef: {name: ceph-secret}}}
  - {name: i, azureFile: {secretName: azure-secret, shareName: x}}
  - {name: j, ephemeral: {volumeClaimTemplate: {metadata: {annotations: {secret: none}}, spec: {accessModes: [ReadWriteOnce]}}}}
  resourceClaims: [{name: gpu, resourceClaimName: gpu}, {name: own, resourceClaimTemplateName: gpus}]
  nodeSelector: {configMap: none}
  initContainers:
  - {name: init, image: x, envFrom: [{configMapRef: {name: init-config}}, {prefix: X}]}
  containers:
  - name: main
    image: x
    envFrom: [{secretRef: {name: env-secret}}, {configMapRef: {name: vol-config}}]
    env:
    - {name: A, value: a}
    - {name: B, valueFrom: {secretKeyRef: {name: key-secret, key: k}}}
    - {name: C, valueFrom: {configMapKeyRef: {name: key-config, key: k}}}
    - {name: D, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  ephemeralContainers:
  - {name: debug, image: x, envFrom: [{secretRef: {name: debug-secret}}]}
`

func richPodAt(by string) string { return strings.ReplaceAll(richPod, "\n", "\n"+by) }

func TestDependencies(t *testing.T) {
	t.Parallel()
	rich := []string{
		"ConfigMap/init-config", "ConfigMap/key-config", "ConfigMap/proj-config", "ConfigMap/vol-config",
		"PersistentVolumeClaim/data", "ResourceClaim/gpu", "ResourceClaimTemplate/gpus", "Secret/azure-secret", "Secret/ceph-secret",
		"Secret/csi-secret", "Secret/debug-secret", "Secret/env-secret", "Secret/iscsi-secret", "Secret/key-secret",
		"Secret/proj-secret", "Secret/pull", "Secret/vol-secret", "ServiceAccount/runner",
	}
	cases := map[string]struct {
		reason, text string
		want         []string
	}{
		"Deployment":  {reason: "a Pod template may have all kinds of references", text: "apiVersion: apps/v1\nkind: Deployment\nspec:\n  template:" + richPodAt("    "), want: rich},
		"Pod":         {reason: "a Pod is its own template", text: "apiVersion: v1\nkind: Pod" + richPod, want: rich},
		"CronJob":     {reason: "the template of a CronJob is nested", text: "apiVersion: batch/v1\nkind: CronJob\nspec:\n  jobTemplate:\n    spec:\n      template:" + richPodAt("        "), want: rich},
		"DaemonSet":   {reason: "a DaemonSet has a Pod template", text: "apiVersion: apps/v1\nkind: DaemonSet\nspec:\n  template:" + richPodAt("    "), want: rich},
		"Job":         {reason: "a Job has a Pod template", text: "apiVersion: batch/v1\nkind: Job\nspec:\n  template:" + richPodAt("    "), want: rich},
		"Clones":      {reason: "a StatefulSet's claims are cloned in the cluster", text: "apiVersion: apps/v1\nkind: StatefulSet\nspec: {volumeClaimTemplates: [{metadata: {name: data}, spec: {dataSource: {kind: PersistentVolumeClaim, name: golden}}}], template: {spec: {containers: [{name: x}]}}}", want: []string{"PersistentVolumeClaim/golden"}},
		"Clone":       {reason: "a claim may be a clone", text: "apiVersion: v1\nkind: PersistentVolumeClaim\nspec: {dataSource: {kind: PersistentVolumeClaim, name: golden}}", want: []string{"PersistentVolumeClaim/golden"}},
		"Snapshot":    {reason: "the hub does not place snapshots", text: "apiVersion: v1\nkind: PersistentVolumeClaim\nspec: {dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: golden}}"},
		"StatefulSet": {reason: "its Service gives its Pods their names", text: "apiVersion: apps/v1\nkind: StatefulSet\nspec: {serviceName: db, template: {spec: {containers: [{name: x}]}}}", want: []string{"Service/db"}},
		"Operator":    {reason: "a custom kind may have a Pod template", text: "apiVersion: example.com/v1\nkind: Runner\nspec: {template: {spec: {serviceAccountName: r, containers: [{name: x}]}}}", want: []string{"ServiceAccount/r"}},
		"OtherWord":   {reason: "a template may be of something else", text: "apiVersion: example.com/v1\nkind: Letter\nspec: {template: {spec: {serviceAccountName: r, volumes: none}}}"},
		"Text":        {reason: "a template may be a text", text: "apiVersion: example.com/v1\nkind: Letter\nspec: {template: dear}"},
		"Default":     {reason: "each namespace has the ServiceAccount default", text: "apiVersion: v1\nkind: Pod\nspec: {serviceAccountName: default, containers: [{name: x}]}"},
		"Account":     {reason: "image pulls need its Secrets", text: "apiVersion: v1\nkind: ServiceAccount\nimagePullSecrets: [{name: pull}]\nsecrets: [{name: token}]", want: []string{"Secret/pull"}},
		"Ingress": {
			reason: "an Ingress needs backends and certificates",
			text: "apiVersion: networking.k8s.io/v1\nkind: Ingress\nspec: {defaultBackend: {service: {name: front, port: {number: 80}}}, tls: [{secretName: cert}, {}], rules: [{host: a}, " +
				"{http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: back, port: {number: 80}}}}, {path: /x, pathType: Prefix, backend: {resource: {kind: Bucket, name: b}}}]}}]}",
			want: []string{"Secret/cert", "Service/back", "Service/front"},
		},
		"ConfigMap": {reason: "a ConfigMap has no dependencies", text: "apiVersion: v1\nkind: ConfigMap\ndata: {a: b}"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := object(t, tc.text)
			o.SetNamespace("shop")
			var got []string
			for _, r := range Dependencies(o) {
				if r.Namespace != "shop" || (r.Group != "") != strings.HasPrefix(r.Kind, "ResourceClaim") {
					t.Errorf("%s: %+v is in another namespace", tc.reason, r)
				}
				if gk := (schema.GroupKind{Group: r.Group, Kind: r.Kind}); !MayBeDependency(gk) {
					t.Errorf("%s: MayBeDependency(%s): got false", tc.reason, gk)
				}
				got = append(got, r.Kind+"/"+r.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestMayBeDependency(t *testing.T) {
	t.Parallel()
	for _, gvk := range CompanionKinds() {
		if !MayBeDependency(gvk.GroupKind()) {
			t.Errorf("%s: got false, want true for a companion", gvk)
		}
	}
	if gk := (schema.GroupKind{Group: "apps", Kind: "Deployment"}); MayBeDependency(gk) {
		t.Errorf("%s: got true, want false since no object names one", gk)
	}
}

func TestIsCompanionOf(t *testing.T) {
	t.Parallel()
	const (
		workload = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {namespace: shop, name: web}\nspec: {template: {metadata: {labels: {app: web, tier: front}}, spec: {containers: [{name: x}]}}}"
		config   = "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: shop, name: web}"
		service  = "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop}\nspec: {selector: "
		scaler   = "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {namespace: shop}\nspec: {scaleTargetRef: "
	)
	cases := map[string]struct {
		reason, object, workload string
		want                     bool
	}{
		"Some":       {reason: "the Pods have all labels of the selector", object: service + "{app: web}}", workload: workload, want: true},
		"Other":      {reason: "a label has another value", object: service + "{app: db}}", workload: workload},
		"More":       {reason: "a label is missing", object: service + "{app: web, zone: a}}", workload: workload},
		"Empty":      {reason: "a Service without a selector selects no Pods", object: service + "{}}", workload: workload},
		"Elsewhere":  {reason: "Services select in their namespace", object: strings.Replace(service, "shop", "bar", 1) + "{app: web}}", workload: workload},
		"NoPods":     {reason: "a ConfigMap has no Pods", object: service + "{app: web}}", workload: config},
		"Networks":   {reason: "a Service on Patchbay's networks has its selector in an annotation", object: "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, annotations: {danm.io/selector: '{\"app\": \"web\"}'}}\nspec: {clusterIP: None}", workload: workload, want: true},
		"NoJSON":     {reason: "svcwatcher reports a selector that is no JSON", object: "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, annotations: {danm.io/selector: app=web}}\nspec: {clusterIP: None}", workload: workload},
		"Scales":     {reason: "the version of the target does not matter", object: scaler + "{apiVersion: apps/v1beta2, kind: Deployment, name: web}}", workload: workload, want: true},
		"OtherKind":  {reason: "the target has another kind", object: scaler + "{apiVersion: apps/v1, kind: StatefulSet, name: web}}", workload: workload},
		"OtherGroup": {reason: "the target has another group", object: scaler + "{apiVersion: example.com/v1, kind: Deployment, name: web}}", workload: workload},
		"OtherName":  {reason: "the target has another name", object: scaler + "{apiVersion: apps/v1, kind: Deployment, name: db}}", workload: workload},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := IsCompanionOf(object(t, tc.object), object(t, tc.workload)); got != tc.want {
				t.Errorf("%s: got %v", tc.reason, got)
			}
		})
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	if got := v1alpha1.WorkName("apps", "Deployment", "shop", "web"); got != "deployment-web-"+got[len(got)-16:] {
		t.Errorf("got %s: people should know what it is of", got)
	}
	if v1alpha1.WorkName("", "A", "b", "c-d") == v1alpha1.WorkName("", "A", "b-c", "d") || v1alpha1.WorkName("a", "B", "", "x") == v1alpha1.WorkName("", "B", "a", "x") {
		t.Error("two objects have one name")
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		name := v1alpha1.WorkName(text.Draw(t, "group"), text.Draw(t, "kind"), text.Draw(t, "namespace"), rapid.StringN(0, 300, -1).Draw(t, "name"))
		if wrong := validation.IsDNS1035Label(name); len(wrong) > 0 {
			t.Fatalf("%q: %v", name, wrong)
		}
	})
}
