// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// mutator returns a podMutator that knows some networks, and Nodes with and without ens4 and ens5.
func mutator() *podMutator {
	networks := map[string]*network.Network{
		"fast":  {Type: v1.TypeSRIOV, DevicePool: "a.b/fast"},
		"other": {Type: v1.TypeSRIOV, DevicePool: "a.b/other"},
		"bad":   {Type: v1.TypeSRIOV, DevicePool: "nonsense"},
		"some":  {Type: v1.TypeIPVLAN, Device: "ens4", VLAN: 7},
		"some2": {Type: v1.TypeMACVLAN, Device: "ens5"},
		"all":   {Type: v1.TypeIPVLAN, Device: "ens3"},
		"none":  {Type: v1.TypeIPVLAN, Device: "ens9"},
	}
	nodes := newNodeIndex(nil)
	nodes.synced = true
	nodes.put(nodeWithNICs("node-1", "ens3", "ens4"))
	nodes.put(nodeWithNICs("node-2", "ens3", "ens5"))
	nodes.put(nodeWithNICs("node-3", "ens3", "ens4", "ens5"))
	nodes.put(nodeWithNICs("node-4")) // has not reported its NICs yet
	return &podMutator{nodes: nodes, checker: network.PodChecker{NetworkOf: func(ref network.Ref) *network.Network {
		n, ok := networks[ref.Name]
		if !ok || ref.Kind != v1.KindClusterNetwork {
			return nil
		}
		found := *n
		found.Ref = ref
		return &found
	}}}
}

// nodeWithNICs returns a Node with labels of NICs.
func nodeWithNICs(name string, nics ...string) *metav1.PartialObjectMetadata {
	node := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"a": "b"}}}
	for _, nic := range nics {
		node.Labels[v1.NICLabelPrefix+nic] = ""
	}
	return node
}

// mutate returns the patch of a Pod in YAML with an interface in each of these networks.
func mutate(t *testing.T, h *podMutator, networks, pod string) string {
	t.Helper()
	var entries []string
	for name := range strings.FieldsSeq(networks) {
		entries = append(entries, fmt.Sprintf(`{"clusterNetwork": %q}`, name))
	}
	var object map[string]any
	if err := yaml.Unmarshal([]byte(pod), &object); err != nil {
		t.Fatalf("Pod of the test: %v\n%s", err, pod)
	}
	metadata, _ := object["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		object["metadata"] = metadata
	}
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	annotations[v1.InterfacesAnnotation] = "[" + strings.Join(entries, ", ") + "]"
	raw, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if raw, err = yaml.YAMLToJSON(raw); err != nil {
		t.Fatal(err)
	}
	got := h.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Namespace: "ns", Name: "web", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw},
	}})
	if !got.Allowed || (got.PatchType != nil) != (len(got.Patch) > 0) {
		t.Fatalf("got %+v, want it allowed, with the type of a patch if there is one", got)
	}
	return string(got.Patch)
}

func TestDevicesAreRequested(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, networks, pod, want string }{
		"Nothing": {reason: "No network has a device pool.", networks: "all", pod: `{spec: {containers: [{name: a}]}}`},
		"Bare": {reason: "The container has no resources.", networks: "fast", pod: `{spec: {containers: [{name: a}, {name: b}]}}`,
			want: `[{"op":"add","path":"/spec/containers/0/resources","value":{"limits":{"a.b/fast":"1"},"requests":{"a.b/fast":"1"}}}]`},
		"Empty": {reason: "So the API server sends a container without resources.", networks: "fast", pod: `{spec: {containers: [{name: a, resources: {}}]}}`,
			want: `[{"op":"add","path":"/spec/containers/0/resources/requests","value":{"a.b/fast":"1"}},{"op":"add","path":"/spec/containers/0/resources/limits","value":{"a.b/fast":"1"}}]`},
		"Null": {reason: "A null has the same meaning as a field that is not there.", networks: "fast", pod: `{spec: {containers: [{name: a, resources: {requests: null, limits: {}}}]}}`,
			want: `[{"op":"add","path":"/spec/containers/0/resources/requests","value":{"a.b/fast":"1"}},{"op":"add","path":"/spec/containers/0/resources/limits/a.b~1fast","value":"1"}]`},
		"Kept": {reason: "The container's other resources stay.", networks: "fast", pod: `{spec: {containers: [{name: a, resources: {requests: {cpu: 1}}}]}}`,
			want: `[{"op":"add","path":"/spec/containers/0/resources/requests/a.b~1fast","value":"1"},{"op":"add","path":"/spec/containers/0/resources/limits","value":{"a.b/fast":"1"}}]`},
		"Sum": {reason: "Several interfaces on one pool need several devices, and each pool is a resource.", networks: "fast all other fast", pod: `{spec: {containers: [{name: a, resources: {requests: {cpu: 1}, limits: {cpu: 1}}}]}}`,
			want: `[{"op":"add","path":"/spec/containers/0/resources/requests/a.b~1fast","value":"2"},{"op":"add","path":"/spec/containers/0/resources/requests/a.b~1other","value":"1"},` +
				`{"op":"add","path":"/spec/containers/0/resources/limits/a.b~1fast","value":"2"},{"op":"add","path":"/spec/containers/0/resources/limits/a.b~1other","value":"1"}]`},
		"Again":     {reason: "The webhook has added it in an earlier call.", networks: "fast fast", pod: `{spec: {containers: [{name: a, resources: {requests: {a.b/fast: 2}, limits: {a.b/fast: 2}}}]}}`},
		"Author":    {reason: "The author has written a number, which podValidator checks.", networks: "fast fast", pod: `{spec: {containers: [{name: a}, {name: b, resources: {requests: {a.b/fast: 1}, limits: {a.b/fast: 1}}}]}}`},
		"AuthorOne": {reason: "Each pool is considered by itself.", networks: "fast other", pod: `{spec: {containers: [{name: a, resources: {requests: {a.b/fast: 3}, limits: {a.b/fast: 3}}}]}}`, want: `[{"op":"add","path":"/spec/containers/0/resources/requests/a.b~1other","value":"1"},{"op":"add","path":"/spec/containers/0/resources/limits/a.b~1other","value":"1"}]`},
		"Sidecar":   {reason: "A sidecar keeps its devices, and kubelet reports them.", networks: "fast", pod: `{spec: {initContainers: [{name: i, restartPolicy: Always, resources: {requests: {a.b/fast: 1}}}], containers: [{name: a}]}}`},
		"Init": {reason: "kubelet gives the devices of an init container to the containers, and reports only those of the latter.", networks: "fast", pod: `{spec: {initContainers: [{name: i, resources: {requests: {a.b/fast: 1}}}], containers: [{name: a}]}}`,
			want: `[{"op":"add","path":"/spec/containers/0/resources","value":{"limits":{"a.b/fast":"1"},"requests":{"a.b/fast":"1"}}}]`},
		"PodLevel": {reason: "Resources of a whole Pod are processor time and memory only.", networks: "fast", pod: `{spec: {resources: {requests: {cpu: 1}}, containers: [{name: a, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]}]}}`,
			want: `[{"op":"add","path":"/spec/containers/0/resources","value":{"limits":{"a.b/fast":"1"},"requests":{"a.b/fast":"1"}}}]`},
		"Mirror":       {reason: "kubelet reads the Pod from a file.", networks: "fast some", pod: `{metadata: {annotations: {kubernetes.io/config.mirror: x}}, spec: {containers: [{name: a}]}}`},
		"HostNetwork":  {reason: "The Pod gets no interface.", networks: "fast some", pod: `{spec: {hostNetwork: true, containers: [{name: a}]}}`},
		"NoContainer":  {reason: "The API server rejects the Pod.", networks: "fast", pod: `{spec: {containers: []}}`},
		"NoResource":   {reason: "podValidator rejects the Pod, and names the network.", networks: "bad", pod: `{spec: {containers: [{name: a}]}}`},
		"NodeName":     {reason: "kubelet allocates devices to a Pod that the scheduler has not seen.", networks: "fast", pod: `{spec: {nodeName: node-2, containers: [{name: a}]}}`, want: `[{"op":"add","path":"/spec/containers/0/resources","value":{"limits":{"a.b/fast":"1"},"requests":{"a.b/fast":"1"}}}]`},
		"NoAnnotation": {reason: "There is no default network.", networks: "", pod: `{spec: {containers: [{name: a}]}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := mutate(t, mutator(), tc.networks, tc.pod); got != tc.want {
				t.Errorf("%s\ngot  %s\nwant %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestNodeAffinityIsAdded(t *testing.T) {
	t.Parallel()
	const (
		ens4 = `{"key":"nics.danm.io/ens4","operator":"Exists"}`
		ens5 = `{"key":"nics.danm.io/ens5","operator":"Exists"}`
		list = `/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/`
	)
	required := func(terms string) string {
		return `{spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [` + terms + `]}}}, containers: [{name: a}]}}`
	}
	cases := map[string]struct{ reason, networks, pod, want string }{
		"All":     {reason: "Every node has the NIC.", networks: "all", pod: `{}`},
		"Nowhere": {reason: "Without the NIC on any node the Pod gets an error of a node, which names the NIC.", networks: "none", pod: `{}`},
		"Some": {reason: "One node lacks the NIC.", networks: "all some", pod: `{}`,
			want: `[{"op":"add","path":"/spec/affinity","value":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[` + ens4 + `]}]}}}}]`},
		"Both": {reason: "The node needs both NICs.", networks: "some2 some some", pod: `{spec: {affinity: {}}}`,
			want: `[{"op":"add","path":"/spec/affinity/nodeAffinity","value":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[` + ens4 + `,` + ens5 + `]}]}}}]`},
		"Null": {reason: "A null has the same meaning as a field that is not there.", networks: "some", pod: `{spec: {affinity: null}}`,
			want: `[{"op":"add","path":"/spec/affinity","value":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[` + ens4 + `]}]}}}}]`},
		"Preferred": {reason: "What the author prefers stays.", networks: "some", pod: `{spec: {affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}}}`,
			want: `[{"op":"add","path":"/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution","value":{"nodeSelectorTerms":[{"matchExpressions":[` + ens4 + `]}]}}]`},
		"Terms": {reason: "A node must match one term only, so each gets the requirement.", networks: "some", pod: required(`{matchExpressions: [{key: zone, operator: In, values: [a]}]}, {matchExpressions: [{key: zone, operator: In, values: [b]}]}`),
			want: `[{"op":"add","path":"` + list + `0/matchExpressions/-","value":` + ens4 + `},{"op":"add","path":"` + list + `1/matchExpressions/-","value":` + ens4 + `}]`},
		"EmptyTerm": {reason: "An empty term matches no node, and would match some with a requirement.", networks: "some", pod: required(`{}, {matchExpressions: [{key: zone, operator: Exists}]}, {matchExpressions: []}`),
			want: `[{"op":"add","path":"` + list + `1/matchExpressions/-","value":` + ens4 + `}]`},
		"EmptyTerms": {reason: "The Pod matches no node, and still does not.", networks: "some", pod: required(`{}, {matchExpressions: []}`)},
		"NoTerms":    {reason: "The API server rejects the Pod.", networks: "some", pod: required(``)},
		"Again": {reason: "The webhook has added it in an earlier call, and another one has added a term.", networks: "some some2", pod: required(`{matchExpressions: [` + ens4 + `, ` + ens5 + `]}, {matchExpressions: [` + ens5 + `]}`),
			want: `[{"op":"add","path":"` + list + `1/matchExpressions/-","value":` + ens4 + `}]`},
		"OtherOperator": {reason: "A requirement of the author with the same key is another one.", networks: "some", pod: required(`{matchExpressions: [{key: nics.danm.io/ens4, operator: DoesNotExist}]}`),
			want: `[{"op":"add","path":"` + list + `0/matchExpressions/-","value":` + ens4 + `}]`},
		"DaemonSet": {reason: "The Pod is for one node, whose error names the NIC.", networks: "some", pod: required(`{matchFields: [{key: metadata.name, operator: In, values: [node-2]}]}`)},
		"DaemonSetWithAffinity": {reason: "A term with the name of a node is for that node, whatever else it requires.", networks: "some",
			pod: required(`{matchExpressions: [{key: zone, operator: Exists}], matchFields: [{key: metadata.name, operator: In, values: [node-2]}]}`)},
		"FieldOrLabel": {reason: "The Pod may go to other nodes than the one of the field.", networks: "some", pod: required(`{matchFields: [{key: metadata.name, operator: In, values: [node-2]}]}, {matchExpressions: [{key: zone, operator: Exists}]}`),
			want: `[{"op":"add","path":"` + list + `0/matchExpressions","value":[` + ens4 + `]},{"op":"add","path":"` + list + `1/matchExpressions/-","value":` + ens4 + `}]`},
		"NodeName": {reason: "kubelet would end the Pod at once if its node lacks the NIC.", networks: "some", pod: `{spec: {nodeName: node-2}}`},
		"OptOut":   {reason: "The author schedules the Pod in another way.", networks: "some", pod: `{metadata: {annotations: {danm.io/node-affinity: none}}}`},
		"Missing":  {reason: "Nothing is known of a network that does not exist.", networks: "later", pod: `{}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := mutator()
			if name == "Missing" { // waits, on a clock of its own
				synctest.Test(t, func(t *testing.T) {
					if got := mutate(t, h, tc.networks, tc.pod); got != tc.want {
						t.Errorf("%s\ngot  %s\nwant %s", tc.reason, got, tc.want)
					}
				})
				return
			}
			if got := mutate(t, h, tc.networks, tc.pod); got != tc.want {
				t.Errorf("%s\ngot  %s\nwant %s", tc.reason, got, tc.want)
			}
		})
	}
}

// Each term gets the NICs, so that a Pod with many terms and networks would become huge.
func TestTermsWithNICsAreBounded(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason      string
		terms, want int
	}{
		"Most": {reason: "Each term gets both NICs.", terms: network.MaxAffinityTerms, want: 2 * network.MaxAffinityTerms},
		"More": {reason: "podValidator rejects the Pod.", terms: network.MaxAffinityTerms + 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			terms := strings.Repeat("{matchExpressions: [{key: zone, operator: Exists}]}, ", tc.terms)
			pod := "{spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [" + terms + "]}}}}}"
			if got := strings.Count(mutate(t, mutator(), "some some2", pod), v1.NICLabelPrefix); got != tc.want {
				t.Errorf("%s\ngot %d requirements of NICs, want %d", tc.reason, got, tc.want)
			}
		})
	}
}

// A file may have a network and a Pod that uses it, and the cache is behind the API server. A Pod without its
// request would have to be created again.
func TestMutatorWaitsForNetwork(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, kind string
		patched      bool
		takes        time.Duration
	}{
		"Author":     {reason: "The cache gets the network a moment later.", patched: true, takes: 3 * cacheInterval},
		"Controller": {reason: "The template has waited.", kind: "ReplicaSet"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start, found := time.Now(), &network.Network{Type: v1.TypeSRIOV, DevicePool: "a.b/c"}
				h := &podMutator{nodes: newNodeIndex(nil), checker: network.PodChecker{NetworkOf: func(network.Ref) *network.Network {
					if time.Since(start) < 3*cacheInterval {
						return nil
					}
					return found
				}}}
				r := podRequest(t, "team-a", "apps/v1", tc.kind, "uid", v1.InterfacesAnnotation, `[{"clusterNetwork": "backend"}]`)
				r.Object.Raw = []byte(strings.Replace(string(r.Object.Raw), `"containers":null`, `"containers":[{"name":"a"}]`, 1))
				got := h.Handle(t.Context(), r)
				if !got.Allowed || (len(got.Patch) > 0) != tc.patched {
					t.Errorf("%s\ngot %v with patch %s, want a patch: %t", tc.reason, got.Result, got.Patch, tc.patched)
				}
				if took := time.Since(start); took != tc.takes {
					t.Errorf("%s\nit took %s, want %s", tc.reason, took, tc.takes)
				}
			})
		})
	}
}

func TestNodeIndex(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		events func(*nodeIndex)
		nics   []string
		want   []string
	}{
		"None": {reason: "There is no Node.", events: func(*nodeIndex) {}, nics: []string{"ens4"}},
		"All":  {reason: "All Nodes have it.", events: func(x *nodeIndex) { x.put(nodeWithNICs("a", "ens4")); x.put(nodeWithNICs("b", "ens4")) }, nics: []string{"ens4"}},
		"Some": {reason: "One Node lacks it.", events: func(x *nodeIndex) { x.put(nodeWithNICs("a", "ens4")); x.put(nodeWithNICs("b", "ens5")) }, nics: []string{"ens4"}, want: []string{"ens4"}},
		"FirstRollout": {reason: "The first Node has its labels, and the others will have theirs: the Pod may run there, too.", events: func(x *nodeIndex) {
			x.put(nodeWithNICs("a", "ens4"))
			x.put(nodeWithNICs("b"))
			x.put(nodeWithNICs("c"))
		}, nics: []string{"ens4"}},
		"SomeAndUnknown": {reason: "A Node that is known lacks it.", events: func(x *nodeIndex) {
			x.put(nodeWithNICs("a", "ens4"))
			x.put(nodeWithNICs("b", "ens5"))
			x.put(nodeWithNICs("c"))
		}, nics: []string{"ens4"}, want: []string{"ens4"}},
		"Nowhere": {reason: "The label would match no Node.", events: func(x *nodeIndex) { x.put(nodeWithNICs("a", "ens5")); x.put(nodeWithNICs("b")) }, nics: []string{"ens4"}},
		"NowhereAndSome": {reason: "The node's error names the NIC that no Node has.", events: func(x *nodeIndex) {
			x.put(nodeWithNICs("a", "ens4"))
			x.put(nodeWithNICs("b", "ens5"))
		}, nics: []string{"ens4", "ens9"}, want: []string{"ens4"}},
		"Together": {reason: "One Node has both.", events: func(x *nodeIndex) {
			x.put(nodeWithNICs("a", "ens4"))
			x.put(nodeWithNICs("b", "ens5"))
			x.put(nodeWithNICs("c", "ens4", "ens5"))
		}, nics: []string{"ens4", "ens5"}, want: []string{"ens4", "ens5"}},
		"NeverTogether": {reason: "No Node would match, and the Pod would wait without a message that names a NIC.", events: func(x *nodeIndex) {
			x.put(nodeWithNICs("a", "ens4"))
			x.put(nodeWithNICs("b", "ens5"))
		}, nics: []string{"ens4", "ens5"}},
		"Installed": {reason: "The last Node gets it.", events: func(x *nodeIndex) {
			x.put(nodeWithNICs("a", "ens4"))
			x.put(nodeWithNICs("b", "ens5"))
			x.put(nodeWithNICs("b", "ens4", "ens5"))
		}, nics: []string{"ens4"}},
		"Removed": {reason: "A Node loses it.", events: func(x *nodeIndex) {
			x.put(nodeWithNICs("a", "ens4", "ens5"))
			x.put(nodeWithNICs("b", "ens4"))
			x.put(nodeWithNICs("a", "ens5"))
		}, nics: []string{"ens4"}, want: []string{"ens4"}},
		"Deleted": {reason: "The only Node without it is deleted.", events: func(x *nodeIndex) {
			x.put(nodeWithNICs("a", "ens4"))
			x.put(nodeWithNICs("b", "ens5"))
			x.remove(nodeWithNICs("b"))
		}, nics: []string{"ens4"}},
		"Unsynced": {reason: "More Nodes may be there.", events: func(x *nodeIndex) {
			x.synced = false
			x.put(nodeWithNICs("a", "ens4"))
			x.put(nodeWithNICs("b", "ens5"))
		}, nics: []string{"ens4"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newNodeIndex(nil)
			x.synced = true
			tc.events(x)
			if diff := cmp.Diff(tc.want, x.nicsToRequire(tc.nics)); diff != "" {
				t.Errorf("%s\nnicsToRequire (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
