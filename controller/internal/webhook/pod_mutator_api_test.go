// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// scene has networks of devices and NICs for one namespace. A "%" in a text is its prefix.
type scene struct {
	*testing.T
	env               *apitest.Env
	namespace, prefix string
}

// newScene creates the networks, and two Nodes of which one has the NIC "%0". Before the first Pod it calls prepare
// with the scene: the API server remembers for half a minute that a namespace has no quota.
func newScene(t *testing.T, env *apitest.Env, prepare ...func(*scene)) *scene {
	t.Helper()
	ns := env.Namespace(t)
	s := &scene{T: t, env: env, namespace: ns, prefix: "n" + ns[len(ns)-8:]}
	for _, f := range prepare {
		f(s)
	}
	for name, spec := range map[string]string{
		"fast":   `{NetworkID: fast, NetworkType: sriov, Options: {device_pool: "a.b/%"}}`,
		"other":  `{NetworkID: other, NetworkType: sriov, Options: {device_pool: "c.d/%", vlan: 7}}`,
		"closed": `{NetworkID: closed, NetworkType: sriov, AllowedTenants: [another], Options: {device_pool: "e.f/%"}}`,
		"some":   `{NetworkID: some, Options: {host_device: "%0"}}`,
	} {
		s.create(object(t, v1.KindClusterNetwork, "", s.prefix+"-"+name, "{spec: "+s.text(spec)+"}"))
	}
	nic := map[string]string{v1.NICLabelPrefix + s.prefix + "0": ""}
	s.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.prefix + "-with", Labels: nic}})
	s.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.prefix + "-without", Labels: map[string]string{v1.NICLabelPrefix + s.prefix + "1": ""}}})
	eventually(t, "the webhook knows the Nodes", func() bool {
		pod := s.pod("other some", `{}`) // a LimitRange of a test demands a device
		return env.Client.Create(t.Context(), pod, client.DryRunAll) == nil && pod.Spec.Affinity != nil
	})
	return s
}

func (s *scene) text(t string) string { return strings.ReplaceAll(t, "%", s.prefix) }

func (s *scene) create(o client.Object) {
	s.Helper()
	if err := s.env.Client.Create(s.Context(), o); err != nil {
		s.Fatal(err)
	}
}

// pod returns a Pod in YAML with an interface in each of these networks. Its containers are "a" and, if the text
// has none, nothing else.
func (s *scene) pod(networks, text string) *corev1.Pod {
	s.Helper()
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(s.text(text)), pod); err != nil {
		s.Fatalf("Pod of the test: %v\n%s", err, text)
	}
	pod.Namespace, pod.GenerateName, pod.Spec.ServiceAccountName = s.namespace, "p-", "default"
	if len(pod.Spec.Containers) == 0 {
		pod.Spec.Containers = []corev1.Container{{Name: "a"}}
	}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Image = "b"
	}
	for i := range pod.Spec.InitContainers {
		pod.Spec.InitContainers[i].Image = "b"
	}
	if networks != "" {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1.InterfacesAnnotation, s.interfaces(networks))
	}
	return pod
}

// interfaces is the annotation with an interface in each of these networks.
func (s *scene) interfaces(networks string) string {
	var entries []string
	for name := range strings.FieldsSeq(networks) {
		entries = append(entries, fmt.Sprintf(`{"clusterNetwork": "%s-%s"}`, s.prefix, name))
	}
	return "[" + strings.Join(entries, ", ") + "]"
}

// devices lists the devices that the containers of a Pod request and are limited to.
func (s *scene) devices(pod *corev1.Pod) string {
	var all []string
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		for _, domain := range []string{"a.b", "c.d", "e.f"} {
			name := corev1.ResourceName(domain + "/" + s.prefix)
			request, requested := c.Resources.Requests[name]
			limit, limited := c.Resources.Limits[name]
			if requested || limited {
				all = append(all, fmt.Sprintf("%s: %s/%s %s", c.Name, request.String(), limit.String(), domain))
			}
		}
	}
	return strings.Join(all, ", ")
}

// The API server stores Pods with the devices that their networks need.
func TestPodsRequestDevices(t *testing.T) {
	s := newScene(t, start(t))
	cases := map[string]struct {
		reason, networks, pod string
		want                  string
		refused               []string
	}{
		"None":      {reason: "The network has no devices.", networks: "some", pod: `{}`},
		"Added":     {reason: "The author has left the request out.", networks: "fast", pod: `{}`, want: "a: 1/1 a.b"},
		"Several":   {reason: "Two interfaces on one pool, and one on another.", networks: "fast other fast", pod: `{spec: {containers: [{name: a, resources: {requests: {cpu: 1}}}, {name: z}]}}`, want: "a: 2/2 a.b, a: 1/1 c.d"},
		"Author":    {reason: "The author has requested as many as needed.", networks: "fast fast", pod: `{spec: {containers: [{name: a}, {name: z, resources: {limits: {a.b/%: 2}}}]}}`, want: "z: 2/2 a.b"},
		"TooMany":   {reason: "Two devices would have no VLAN.", networks: "fast", pod: `{spec: {containers: [{name: a, resources: {limits: {a.b/%: 1}}}, {name: z, resources: {limits: {a.b/%: 2}}}]}}`, refused: []string{`spec.containers[1].resources.requests[a.b/%]: Invalid value: 3: must be 1 in all containers together, one for each interface in ClusterNetwork/%-fast, because a device without an interface has no VLAN`}},
		"InitMore":  {reason: "The init container would have a device without a VLAN.", networks: "fast", pod: `{spec: {initContainers: [{name: i, resources: {limits: {a.b/%: 2}}}]}}`, refused: []string{`spec.initContainers[0].resources.requests[a.b/%]: Invalid value: 2: must be 1 in all containers together`}},
		"OtherPool": {reason: "No network of the Pod has the pool; a quota may bound it.", networks: "fast", pod: `{spec: {containers: [{name: a, resources: {limits: {c.d/%: 5}}}]}}`, want: "a: 1/1 a.b, a: 5/5 c.d"},
		"TooFew":    {reason: "An interface would have no device.", networks: "fast fast", pod: `{spec: {containers: [{name: a}, {name: z, resources: {limits: {a.b/%: 1}}}]}}`, refused: []string{`spec.containers[1].resources.requests[a.b/%]: Invalid value: 1: must be 2 in all containers together, one for each interface in ClusterNetwork/%-fast`}},
		"Init":      {reason: "kubelet gives the init container's device to the container.", networks: "fast", pod: `{spec: {initContainers: [{name: i, resources: {limits: {a.b/%: 1}}}], containers: [{name: a}]}}`, want: "i: 1/1 a.b, a: 1/1 a.b"},
		"Sidecar":   {reason: "The sidecar keeps its device.", networks: "fast fast", pod: `{spec: {initContainers: [{name: i, restartPolicy: Always, resources: {limits: {a.b/%: 1}}}], containers: [{name: a, resources: {limits: {a.b/%: 1}}}]}}`, want: "i: 1/1 a.b, a: 1/1 a.b"},
		"PodLevel":  {reason: "The Pod's own resources and a resizePolicy stay valid.", networks: "fast", pod: `{spec: {resources: {requests: {cpu: 1}, limits: {cpu: 1}}, containers: [{name: a, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]}]}}`, want: "a: 1/1 a.b"},
		"Owned":     {reason: "A controller makes the Pod from a template.", networks: "fast", pod: `{metadata: {ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: u, controller: true}]}}`, want: "a: 1/1 a.b"},
		"Bound":     {reason: "kubelet allocates devices to a Pod that no scheduler has seen.", networks: "fast", pod: `{spec: {nodeName: "%-without"}}`, want: "a: 1/1 a.b"},
		"Closed":    {reason: "The Pod gets no device of another tenant, and its author does not learn of the pool.", networks: "closed", pod: `{}`, refused: []string{"AllowedTenants must contain the Pod's namespace"}},
		"Missing":   {reason: "Nothing is known of the network; a warning says so.", networks: "later", pod: `{}`},
		"HostPod":   {reason: "The Pod gets no interface.", networks: "fast", pod: `{spec: {hostNetwork: true}}`},
		"OldName":   {reason: "DANM's annotation has the same meaning.", pod: `{metadata: {annotations: {danm.k8s.io/interfaces: '[{"clusterNetwork": "%-fast"}]'}}}`, want: "a: 1/1 a.b"},
		"Unlabeled": {reason: "The Pod requests no network.", pod: `{}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range tc.refused {
				tc.refused[i] = s.text(tc.refused[i])
			}
			pod := s.pod(tc.networks, tc.pod)
			err := s.env.Client.Create(t.Context(), pod.DeepCopy(), client.DryRunAll)
			checkAnswer(t, tc.reason, err, tc.refused)
			checkAnswer(t, tc.reason, s.env.Client.Create(t.Context(), pod), tc.refused)
			if err == nil && s.devices(pod) != tc.want {
				t.Errorf("%s\ndevices: got %q, want %q", tc.reason, s.devices(pod), tc.want)
			}
		})
	}
}

// A tenant gets a pool and a VLAN from its TenantConfig, and its Pods the devices of that pool. It cannot get those of
// another tenant by a network or by a forged assignment.
func TestTenantsRequestDevices(t *testing.T) {
	env := start(t)
	s := newScene(t, env)
	other := env.Namespace(t)
	offer(t, env, other, s.text(`{hostDevices: [{name: "c.d/%", vniType: vlan, vniRange: "8"}]}`))
	offer(t, env, s.namespace, s.text(`{hostDevices: [{name: "a.b/%", vniType: vlan, vniRange: "7-9"}]}`))
	tenants := tenantOf(t, env, s.namespace)
	tn := tenantNetwork(t, s.namespace, "fast", `{NetworkType: sriov}`)
	if err := tenants.Create(t.Context(), tn); err != nil {
		t.Fatal(err)
	}
	if got, want := attributes(tn), s.text("device_pool=a.b/% vlan=7"); !strings.HasSuffix(got, want) {
		t.Errorf("the tenant's network has %s, want %s", got, want)
	}
	stolen := tenantNetwork(t, s.namespace, "stolen", s.text(`{NetworkType: sriov, Options: {device_pool: "c.d/%"}}`))
	checkAnswer(t, "The pool is another tenant's.", tenants.Create(t.Context(), stolen), []string{s.text(`spec.Options.device_pool: Invalid value: "c.d/%"`), s.text("use a.b/%")})
	pod := s.pod("", `{metadata: {annotations: {danm.io/interfaces: '[{"tenantNetwork": "fast"}]'}}}`)
	eventually(t, "the Pod requests the device", func() bool {
		created := pod.DeepCopy()
		return env.Client.Create(t.Context(), created, client.DryRunAll) == nil && s.devices(created) == "a: 1/1 a.b"
	})
}

// A workload's template with too few devices is rejected, and one without is right: its Pods get them.
func TestTemplatesRequestDevices(t *testing.T) {
	s := newScene(t, start(t))
	deployment := workload(t, "apps/v1 Deployment", s.namespace, v1.InterfacesAnnotation, s.interfaces("fast fast"))
	s.create(deployment.DeepCopy())
	spec, _ := deployment.Object["spec"].(map[string]any)
	template, _ := spec["template"].(map[string]any)
	podSpec, _ := template["spec"].(map[string]any)
	podSpec["containers"] = []any{map[string]any{"name": "a", "image": "b", "resources": map[string]any{"limits": map[string]any{s.text("a.b/%"): "1"}}}}
	deployment.SetName("few")
	many := deployment.DeepCopy()
	err := s.env.Client.Create(t.Context(), deployment)
	checkAnswer(t, "The user of a Deployment sees no answer to its Pods.", err, []string{s.text("spec.template.spec.containers[0].resources.limits[a.b/%]: Invalid value: 1: must be 2")})
	if err := unstructured.SetNestedSlice(many.Object, []any{map[string]any{"name": "a", "image": "b", "resources": map[string]any{"limits": map[string]any{s.text("a.b/%"): "3"}}}},
		"spec", "template", "spec", "containers"); err != nil {
		t.Fatal(err)
	}
	checkAnswer(t, "Its Pods would be rejected.", s.env.Client.Create(t.Context(), many), []string{s.text("spec.template.spec.containers[0].resources.limits[a.b/%]: Invalid value: 3: must be 2")})
}

// Other admission of Kubernetes sees the devices: a LimitRange and a quota count what the webhook adds.
func TestDevicesCountInQuotas(t *testing.T) {
	s := newScene(t, start(t), func(s *scene) {
		pool, one := corev1.ResourceName("requests.a.b/"+s.prefix), resource.MustParse("1")
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{pool: one}}}
		s.create(quota)
		quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{pool: resource.MustParse("0")}} // no controller writes it here
		if err := s.env.Client.Status().Update(s.Context(), quota); err != nil {
			s.Fatal(err)
		}
		s.create(&corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "l"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
			{Type: corev1.LimitTypePod, Max: corev1.ResourceList{corev1.ResourceName("c.d/" + s.prefix): one}},
			{Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceCPU: one}},
		}}})
	})
	cases := map[string]struct {
		reason, networks, want string
		refused                []string
	}{
		"Quota":      {reason: "The namespace may have one device.", networks: "other fast fast", refused: []string{"exceeded quota: q, requested: requests.a.b/%=2, used: requests.a.b/%=0, limited: requests.a.b/%=1"}},
		"LimitRange": {reason: "A Pod may have one device.", networks: "other other", refused: []string{"maximum c.d/% usage per Pod is 1, but limit is 2"}},
		"Within":     {reason: "The Pod is within both.", networks: "other fast", want: "a: 1/1 a.b, a: 1/1 c.d"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range tc.refused {
				tc.refused[i] = s.text(tc.refused[i])
			}
			pod := s.pod(tc.networks, `{}`)
			err := s.env.Client.Create(t.Context(), pod, client.DryRunAll)
			checkAnswer(t, tc.reason, err, tc.refused)
			if err != nil {
				return
			}
			if cpu := pod.Spec.Containers[0].Resources.Limits.Cpu().String(); cpu != "1" || s.devices(pod) != tc.want {
				t.Errorf("%s\ngot %s CPUs and devices %q, want the default of the LimitRange, and %q", tc.reason, cpu, s.devices(pod), tc.want)
			}
		})
	}
}

// Pods on a NIC that some Nodes lack are for those that have it.
func TestPodsRequireNICs(t *testing.T) {
	s := newScene(t, start(t))
	nic := corev1.NodeSelectorRequirement{Key: v1.NICLabelPrefix + s.prefix + "0", Operator: corev1.NodeSelectorOpExists}
	zone := corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}
	own := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{s.prefix + "-without"}}}}
	terms101 := `{spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [` + strings.Repeat(`{matchExpressions: [{key: zone, operator: Exists}]}, `, 101) + `]}}}}}`
	err := s.env.Client.Create(t.Context(), s.pod("some", terms101), client.DryRunAll)
	checkAnswer(t, "The Pod would become huge.", err, []string{"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Invalid value: 101: must have at most 100 terms"})
	cases := map[string]struct {
		reason, networks, pod string
		want                  []corev1.NodeSelectorTerm
	}{
		"Added":     {reason: "One Node lacks the NIC.", networks: "some", pod: `{}`, want: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{nic}}}},
		"Devices":   {reason: "Both are added in one answer.", networks: "fast some", pod: `{}`, want: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{nic}}}},
		"Other":     {reason: "The scheduler knows where the devices are.", networks: "fast", pod: `{}`},
		"Term":      {reason: "The author's requirements stay.", networks: "some", pod: `{spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a]}]}]}}}}}`, want: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{zone, nic}}}},
		"DaemonSet": {reason: "The Pod is for one Node.", networks: "some", pod: `{spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: ["%-without"]}]}]}}}}}`, want: []corev1.NodeSelectorTerm{own}},
		"Bound":     {reason: "kubelet would end the Pod.", networks: "some", pod: `{spec: {nodeName: "%-without"}}`},
		"OptOut":    {reason: "The author wants no affinity.", networks: "some", pod: `{metadata: {annotations: {danm.io/node-affinity: none}}}`},
		"Gated":     {reason: "A Pod that is not to be scheduled yet gets it, too.", networks: "some", pod: `{spec: {schedulingGates: [{name: example.com/a}]}}`, want: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{nic}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := s.pod(tc.networks, tc.pod)
			if err := s.env.Client.Create(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, terms(pod)); diff != "" {
				t.Errorf("%s\nterms (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// terms returns the terms of a Pod's required node affinity.
func terms(pod *corev1.Pod) []corev1.NodeSelectorTerm {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	return nil
}

// A Pod without an annotation gets the default network. Admission considers it where a cluster administrator wants
// that, and does not delay the Pods of other namespaces.
func TestPodsOnDefaultNetwork(t *testing.T) {
	env := start(t)
	s := newScene(t, env)
	s.create(object(t, v1.KindDanmNet, s.namespace, v1.DefaultNetworkName, s.text(`{spec: {NetworkID: fast, NetworkType: sriov, Options: {device_pool: "a.b/%"}}}`)))
	check := func(reason string, pod *corev1.Pod, want string) {
		t.Helper()
		if err := env.Client.Create(t.Context(), pod, client.DryRunAll); err != nil || s.devices(pod) != want {
			t.Errorf("%s\ngot devices %q, %v, want %q", reason, s.devices(pod), err, want)
		}
	}
	eventually(t, "the webhook knows the default network", func() bool {
		pod := s.pod("", `{metadata: {annotations: {danm.io/interfaces: "[]"}}}`)
		return env.Client.Create(t.Context(), pod, client.DryRunAll) == nil && s.devices(pod) != ""
	})
	check("An empty list requests the default network.", s.pod("", `{metadata: {annotations: {danm.io/interfaces: "[]"}}}`), "a: 1/1 a.b")
	check("The webhook is not called.", s.pod("", `{}`), "")
	label := fmt.Sprintf(`{"metadata": {"labels": {%q: ""}}}`, v1.DefaultInterfacesLabel)
	if err := env.Client.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}, merge("%s", label)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API server calls the webhook", func() bool {
		pod := s.pod("", `{}`)
		return env.Client.Create(t.Context(), pod, client.DryRunAll) == nil && s.devices(pod) == "a: 1/1 a.b"
	})
	check("The Pod is in other networks.", s.pod("other", `{}`), "a: 1/1 c.d")
	check("The Pod is in no network.", s.pod("", `{spec: {hostNetwork: true}}`), "")
}

// Another webhook that is called later may change what this one has considered: the API server calls this one again.
func TestMutationAfterOthers(t *testing.T) {
	env := start(t)
	s := newScene(t, env)
	patches := map[string]string{
		"term":  `[{"op": "add", "path": "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/-", "value": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}]`,
		"first": `[{"op": "add", "path": "/spec/containers/0", "value": {"name": "proxy", "image": "b"}}]`,
		"list":  fmt.Sprintf(`[{"op": "replace", "path": "/metadata/annotations/danm.io~1interfaces", "value": %q}]`, s.interfaces("fast fast")),
	}
	serveWebhook(t, env, s.namespace, func(r *admissionv1.AdmissionRequest) string {
		var pod corev1.Pod
		if err := json.Unmarshal(r.Object.Raw, &pod); err != nil || pod.Annotations["example.com/done"] != "" {
			return ""
		}
		return patches[pod.Labels["patch"]]
	})
	eventually(t, "the API server calls the other webhook", func() bool {
		pod := s.pod("fast", `{metadata: {labels: {patch: first}}}`)
		return env.Client.Create(t.Context(), pod, client.DryRunAll) == nil && len(pod.Spec.Containers) == 2
	})
	pod := s.pod("some", `{metadata: {labels: {patch: term}}}`)
	if err := env.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for i, term := range terms(pod) {
		if len(term.MatchExpressions) == 0 || term.MatchExpressions[len(term.MatchExpressions)-1].Key != v1.NICLabelPrefix+s.prefix+"0" {
			t.Errorf("term %d does not require the NIC: %v", i, term)
		}
	}
	if len(terms(pod)) != 2 {
		t.Errorf("the Pod has %d terms, want 2", len(terms(pod)))
	}
	pod = s.pod("fast", `{metadata: {labels: {patch: first}}}`)
	if err := env.Client.Create(t.Context(), pod); err != nil || s.devices(pod) != "a: 1/1 a.b" {
		t.Errorf("with a container that was added before the first one: devices %q, %v", s.devices(pod), err)
	}
	err := env.Client.Create(t.Context(), s.pod("fast", `{metadata: {labels: {patch: list}}}`))
	checkAnswer(t, "With an interface that was added later, the Pod has too few devices.", err, []string{"must be 2"})
}

// serveWebhook serves a mutating webhook for Pods of a namespace that the API server calls after Patchbay's, as it
// sorts them by name. Answer returns a JSON patch or "".
func serveWebhook(t *testing.T, env *apitest.Env, namespace string, answer func(*admissionv1.AdmissionRequest) string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		body, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(body, &review) != nil || review.Request == nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		if patch := answer(review.Request); patch != "" {
			kind := admissionv1.PatchTypeJSONPatch
			review.Response.Patch, review.Response.PatchType = []byte(patch), &kind
		}
		_ = json.NewEncoder(w).Encode(&review)
	}))
	t.Cleanup(server.Close)
	none, scope, fail := registrationv1.SideEffectClassNone, registrationv1.NamespacedScope, registrationv1.Fail
	name := "zz." + namespace + ".example.com"
	cfg := &registrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []registrationv1.MutatingWebhook{{
		Name: name, AdmissionReviewVersions: []string{"v1"}, SideEffects: &none, FailurePolicy: &fail,
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
		ClientConfig:      registrationv1.WebhookClientConfig{URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})},
		Rules: []registrationv1.RuleWithOperations{{
			Operations: []registrationv1.OperationType{registrationv1.Create},
			Rule:       registrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: &scope},
		}},
	}}}
	if err := env.Client.Create(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Client.Delete(context.WithoutCancel(t.Context()), cfg) })
}
