// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// workloads are the kinds with a template, each with the template at "%s".
func workloads() map[string]string {
	const selector = `selector: {matchLabels: {app: web}}, `
	return map[string]string{
		"apps/v1 Deployment":  `{` + selector + `template: %s}`,
		"apps/v1 StatefulSet": `{` + selector + `serviceName: web, template: %s}`,
		"apps/v1 DaemonSet":   `{` + selector + `template: %s}`,
		"apps/v1 ReplicaSet":  `{` + selector + `template: %s}`,
		"batch/v1 Job":        `{template: %s}`,
		"batch/v1 CronJob":    `{schedule: "* * * * *", jobTemplate: {spec: {template: %s}}}`,
	}
}

// workload returns a workload with an annotation in its template.
func workload(t *testing.T, kind, ns, key, value string) *unstructured.Unstructured {
	t.Helper()
	restart := "Always"
	if strings.HasPrefix(kind, "batch") {
		restart = "Never"
	}
	template := fmt.Sprintf(`{metadata: {labels: {app: web}, annotations: {%q: %q}}, spec: {restartPolicy: %s, containers: [{name: a, image: b}]}}`, key, value, restart)
	u := &unstructured.Unstructured{}
	spec := map[string]any{}
	if err := yaml.Unmarshal(fmt.Appendf(nil, workloads()[kind], template), &spec); err != nil {
		t.Fatal(err)
	}
	u.Object = map[string]any{"spec": spec}
	version, name, _ := strings.Cut(kind, " ")
	u.SetAPIVersion(version)
	u.SetKind(name)
	u.SetNamespace(ns)
	u.SetName("web")
	return u
}

// templatePath is the path of the template in a workload.
func templatePath(kind string) string {
	if strings.HasSuffix(kind, "CronJob") {
		return "spec.jobTemplate.spec.template"
	}
	return "spec.template"
}

// A mistake in a template is rejected at the workload, with the text that its Pods would get.
func TestTemplatesAreRejected(t *testing.T) {
	env := start(t)
	for kind := range workloads() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ns := env.Namespace(t)
			net := object(t, v1.KindDanmNet, ns, "storage", fmt.Sprintf(`{spec: {NetworkID: s, Options: {host_device: %q, cidr: 10.0.0.0/24}}}`, "d"+ns[len(ns)-8:]))
			if err := env.Client.Create(t.Context(), net); err != nil {
				t.Fatal(err)
			}
			_, name, _ := strings.Cut(kind, " ")
			err := env.Client.Create(t.Context(), workload(t, kind, ns, v1.InterfacesAnnotation, `[{"network": "storage", "ip": "10.0.1.7"}]`))
			want := fmt.Sprintf(`admission webhook "workloads.danm.io" denied the request: %s.metadata.annotations[danm.io/interfaces][0].ip: Invalid value: "10.0.1.7": DanmNet/%s/storage: must be in the network's subnet 10.0.0.0/24: use an address in it`,
				templatePath(kind), ns)
			if err == nil || err.Error() != want {
				t.Errorf("%s with an address outside of the subnet\ngot  %v\nwant %s", name, err, want)
			}
			if err := env.Client.Create(t.Context(), workload(t, kind, ns, v1.InterfacesAnnotation, `[{"network": "storage", "ip": "10.0.0.7"}]`)); err != nil {
				t.Errorf("%s with a good address: %v", name, err)
			}
		})
	}
}

// A workload whose template breaks a rule that did not hold when it was created is scaled, labelled
// and deleted as before. Only a new template is rejected.
func TestOldTemplatesStay(t *testing.T) {
	env := start(t)
	for kind := range workloads() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ns := env.Namespace(t)
			u := workload(t, kind, ns, v1.InterfacesAnnotation, `[{"network": "storage", "ip": "10.0.1.7"}]`)
			u.SetFinalizers([]string{"example.com/keep"})
			if err := env.Client.Create(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			net := object(t, v1.KindDanmNet, ns, "storage", fmt.Sprintf(`{spec: {NetworkID: s, Options: {host_device: %q, cidr: 10.0.0.0/24}}}`, "d"+ns[len(ns)-8:]))
			if err := env.Client.Create(t.Context(), net); err != nil {
				t.Fatal(err)
			}
			scaled := map[string]string{"Deployment": `{"replicas": 3}`, "StatefulSet": `{"replicas": 3}`, "ReplicaSet": `{"replicas": 3}`, "DaemonSet": `{"minReadySeconds": 3}`, "Job": `{"parallelism": 3}`, "CronJob": `{"suspend": true}`}[u.GetKind()]
			for what, patch := range map[string]string{"scale": `{"spec": ` + scaled + `}`, "label": `{"metadata": {"labels": {"a": "b"}}}`} {
				if err := env.Client.Patch(t.Context(), u.DeepCopy(), merge("%s", patch)); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			if err := env.Client.Status().Patch(t.Context(), u.DeepCopy(), merge(`{"status": {}}`)); err != nil {
				t.Errorf("status: %v", err)
			}
			if !strings.HasPrefix(kind, "batch/v1 Job") { // its template never changes
				field := `{"annotations": {"a": "b"}}`
				patch := `{"spec": {"template": {"metadata": ` + field + `}}}`
				if u.GetKind() == "CronJob" {
					patch = `{"spec": {"jobTemplate": {"spec": {"template": {"metadata": ` + field + `}}}}}`
				}
				if err := env.Client.Patch(t.Context(), u.DeepCopy(), merge("%s", patch)); err == nil || !strings.Contains(err.Error(), "10.0.1.7") {
					t.Errorf("a new template: got %v, want a rejection", err)
				}
			}
			if err := env.Client.Delete(t.Context(), u.DeepCopy()); err != nil {
				t.Errorf("delete: %v", err)
			}
			if err := env.Client.Patch(t.Context(), u.DeepCopy(), merge(`{"metadata": {"finalizers": null}}`)); err != nil {
				t.Errorf("remove the finalizer: %v", err)
			}
		})
	}
}

// warningRecorder is a rest.WarningHandler that collects warnings.
type warningRecorder struct {
	mu   sync.Mutex
	list []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (r *warningRecorder) HandleWarningHeader(_ int, _, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, text)
}

// recordWarnings returns a client, and the warnings that it gets.
func recordWarnings(t *testing.T, env *apitest.Env) (client.Client, *warningRecorder) {
	t.Helper()
	cfg, r := rest.CopyConfig(env.Config), &warningRecorder{}
	cfg.WarningHandler = r
	c, err := client.New(cfg, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c, r
}

// A user who creates an object with a probable mistake gets a warning, also for a template.
func TestMistakesAreWarnings(t *testing.T) {
	env := start(t)
	const typo = "[danm.io/interface]: Patchbay has no such key, so it has no effect: did you mean danm.io/interfaces?"
	pod := func(ns string) *unstructured.Unstructured {
		return object(t, "Pod", ns, "web", `{metadata: {annotations: {danm.io/interface: "[]"}}, spec: {serviceAccountName: default, containers: [{name: a, image: b}]}}`)
	}
	cases := map[string]struct {
		reason string
		object func(ns string) *unstructured.Unstructured
		want   string
	}{
		"Pod": {reason: "The Pod has no interfaces.", object: func(ns string) *unstructured.Unstructured {
			u := pod(ns)
			u.SetAPIVersion("v1")
			return u
		}, want: "metadata.annotations" + typo},
		"HostNetwork": {reason: "The CNI plugin is not called.", object: func(ns string) *unstructured.Unstructured {
			u := pod(ns)
			u.SetAPIVersion("v1")
			u.SetAnnotations(map[string]string{v1.InterfacesAnnotation: `[{"network": "later"}]`})
			_ = unstructured.SetNestedField(u.Object, true, "spec", "hostNetwork")
			return u
		}, want: "spec.hostNetwork: the Pod uses the node's network, so metadata.annotations[danm.io/interfaces] has no effect: remove one of the two"},
		"Multus": {reason: "Patchbay does not add the interfaces of another plugin's annotation.", object: func(ns string) *unstructured.Unstructured {
			return workload(t, "apps/v1 Deployment", ns, "k8s.v1.cni.cncf.io/networks", "macvlan")
		}, want: "spec.template.metadata.annotations[k8s.v1.cni.cncf.io/networks]: Patchbay does not serve NetworkAttachmentDefinitions yet, so only another plugin, such as Multus, adds these interfaces: use danm.io/interfaces for Patchbay's networks"},
		"Template": {reason: "The user does not see the answers to the Pods.", object: func(ns string) *unstructured.Unstructured {
			return workload(t, "batch/v1 CronJob", ns, "danm.io/interface", "[]")
		}, want: "spec.jobTemplate.spec.template.metadata.annotations" + typo},
		"Network": {reason: "Patchbay does not read the key.", object: func(ns string) *unstructured.Unstructured {
			u := object(t, v1.KindDanmNet, ns, "net", fmt.Sprintf(`{spec: {NetworkID: s, Options: {host_device: %q}}}`, "d"+ns[len(ns)-8:]))
			u.SetAnnotations(map[string]string{"danm.io/ipam-rebuilt": "now"})
			return u
		}, want: "metadata.annotations[danm.io/ipam-rebuilt]: Patchbay has no such key, so it has no effect: did you mean danm.io/ipam-rebuild?"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, warnings := recordWarnings(t, env)
			if err := c.Create(t.Context(), tc.object(env.Namespace(t))); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{tc.want}, warnings.list); diff != "" {
				t.Errorf("%s\nwarnings (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// A user who annotates a network or TenantConfig gets a warning too, and none for what was there
// before.
func TestMistakesInChangesAreWarnings(t *testing.T) {
	env := start(t)
	ns := env.Namespace(t)
	net := object(t, v1.KindDanmNet, ns, "net", fmt.Sprintf(`{spec: {NetworkID: s, Options: {host_device: %q}}}`, "d"+ns[len(ns)-8:]))

	config := object(t, "TenantConfig", "", apitest.Name("tc"), fmt.Sprintf(`{hostDevices: [{name: %q}], namespaceSelector: {matchLabels: {networks: none}}}`, "e"+ns[len(ns)-8:]))
	for _, o := range []*unstructured.Unstructured{net, config} {
		if err := env.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		reason string
		object *unstructured.Unstructured
		patch  []string
		want   []string
	}{
		"Network": {"The first key has no effect, and the other changes add none.", net, []string{
			`{"metadata": {"annotations": {"danm.io/ipam-rebuilt": "now"}}}`, `{"metadata": {"labels": {"a": "b"}}}`, `{"metadata": {"annotations": {"example.com/a": "b"}}}`, `{"metadata": {"annotations": {"danm.io/ipam-rebuild": "now"}}}`,
		}, []string{"metadata.annotations[danm.io/ipam-rebuilt]: Patchbay has no such key, so it has no effect: did you mean danm.io/ipam-rebuild?"}},
		"TenantConfig": {"It has other keys than a network.", config, []string{`{"metadata": {"annotations": {"danm.io/ipam-rebuild": "now"}}}`},
			[]string{"metadata.annotations[danm.io/ipam-rebuild]: Patchbay has no such key, so it has no effect: remove it, or use one of danm.io/take-over"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, warnings := recordWarnings(t, env)
			for _, p := range tc.patch {
				if err := c.Patch(t.Context(), tc.object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(p))); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tc.want, warnings.list); diff != "" {
				t.Errorf("%s\nwarnings (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// Objects that look like ours, of kinds that another program has installed, get a warning.
func TestUnservedKinds(t *testing.T) {
	env := start(t)
	cases := map[string]struct{ reason, group, version, kind, plural, want string }{
		"DANM 4.3": {"The group was renamed.", "danm.k8s.io", "v1", "DanmNet", "danmnets",
			"DanmNet/net: Patchbay does not read apiVersion danm.k8s.io/v1: use danm.io/v1, which has the same fields"},
		"Multus": {"Patchbay does not serve the kind yet.", "k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition", "network-attachment-definitions",
			"NetworkAttachmentDefinition/net: Patchbay does not serve NetworkAttachmentDefinitions yet, so only another plugin, such as Multus, attaches Pods to it: create a network of apiVersion danm.io/v1, such as a ClusterNetwork"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ns := env.Namespace(t)
			crd := object(t, "CustomResourceDefinition", "", tc.plural+"."+tc.group, fmt.Sprintf(`{spec: {group: %s, scope: Namespaced, names: {kind: %s, plural: %s, singular: %s},
				versions: [{name: %s, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`, tc.group, tc.kind, tc.plural, strings.ToLower(tc.kind), tc.version))
			crd.SetAPIVersion("apiextensions.k8s.io/v1")
			crd.SetAnnotations(map[string]string{"api-approved.kubernetes.io": "unapproved, for a test"}) // needed below k8s.io
			if err := env.Client.Create(t.Context(), crd); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = env.Client.Delete(t.Context(), crd) })
			c, warnings := recordWarnings(t, env)
			eventually(t, "the kind is served", func() bool {
				u := object(t, tc.kind, ns, "net", `{spec: {}}`)
				u.SetAPIVersion(tc.group + "/" + tc.version)
				return c.Create(t.Context(), u) == nil
			})
			if diff := cmp.Diff([]string{tc.want}, warnings.list); diff != "" {
				t.Errorf("%s\nwarnings (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// A controller does not show warnings about the Pods that it creates, so it gets an Event.
func TestPodMistakesOfControllers(t *testing.T) {
	env := start(t)
	ns := env.Namespace(t)
	owner := workload(t, "apps/v1 ReplicaSet", ns, "a", "b")
	if err := env.Client.Create(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	isController := true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "web-", Annotations: map[string]string{"danm.io/interface": "[]"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: owner.GetName(), UID: owner.GetUID(), Controller: &isController}}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}, ServiceAccountName: "default"},
	}
	if err := env.Client.Create(t.Context(), pod.DeepCopy(), client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	if err := env.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	var events corev1.EventList
	eventually(t, "the ReplicaSet has an Event", func() bool {
		if err := env.Client.List(t.Context(), &events, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		return len(events.Items) > 0
	})
	e := events.Items[0]
	want := "Pod " + pod.Name + ": metadata.annotations[danm.io/interface]: Patchbay has no such key, so it has no effect: did you mean danm.io/interfaces?"
	if e.InvolvedObject.UID != owner.GetUID() || e.Type != corev1.EventTypeWarning || e.Reason != v1.ReasonLikelyMistake || e.Message != want || e.Count != 1 {
		t.Errorf("Event: got %s %s %d times on %s %s: %s, want one %s on the ReplicaSet: %s",
			e.Type, e.Reason, e.Count, e.InvolvedObject.Kind, e.InvolvedObject.UID, e.Message, v1.ReasonLikelyMistake, want)
	}
}
