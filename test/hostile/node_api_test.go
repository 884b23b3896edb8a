// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package hostile

import (
	"fmt"
	"reflect"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// attackedNodes are two, of which the first was taken over, with the name of their victim's namespace.
type attackedNodes struct {
	env            *apitest.Env
	evil, good, ns string
	daemon         client.Client
	daemonPod      *unstructured.Unstructured
}

func startNodes(t *testing.T) *attackedNodes {
	t.Helper()
	env := start(t)
	n := &attackedNodes{env: env, evil: apitest.Name("evil"), good: apitest.Name("good"), ns: env.Namespace(t)}
	for _, name := range []string{n.evil, n.good} {
		create(t, env, fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: %s}}`, name))
	}
	n.daemon, n.daemonPod = daemonOf(t, env, n.evil)
	return n
}

// network is one that both nodes use, and that somebody has applied.
func (n *attackedNodes) network(t *testing.T, kind string) *unstructured.Unstructured {
	t.Helper()
	name := apitest.Name("net")
	text := `{apiVersion: danm.io/v1, kind: %s, metadata: {name: %s, namespace: %q, labels: {team: blue},
		annotations: {example.com/owner: blue}, finalizers: [danm.io/in-use, example.com/other]},
		spec: {NetworkID: "n` + name[len(name)-8:] + `", NetworkType: %s, Options: {cidr: 10.77.0.0/24, %s}},
		status: {ipam: {recovering: {startTime: "2026-01-01T00:00:00.000000Z"}, held: {%s: {uid: "1", seq: 1, v4: 10.77.0.1}, %s: {uid: "2", seq: 1, v4: 10.77.0.2}}}}}`
	ns, device, delegate := n.ns, "host_device: d"+name[len(name)-8:], "ipvlan"
	if kind == v1.KindClusterNetwork {
		ns = ""
	}
	if kind == v1.KindTenantNetwork {
		tenantConfig(t, n.env, n.ns, "d"+name[len(name)-8:])
		device = ""
	}
	u := create(t, n.env, fmt.Sprintf(text, kind, name, ns, delegate, device, n.evil, n.good))
	mark := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"applied": "yes"}, "annotations": map[string]any{"applied": "yes"}},
		"spec":     map[string]any{"Options": map[string]any{"cidr": "10.77.0.0/24"}},
	}}
	mark.SetGroupVersionKind(u.GroupVersionKind())
	mark.SetName(name)
	mark.SetNamespace(ns)
	if err := n.env.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(mark), client.FieldOwner("gitops")); err != nil {
		t.Fatal(err)
	}
	return u
}

// tenantConfig gives namespaces 50 VLANs of a device of theirs.
func tenantConfig(t *testing.T, env *apitest.Env, ns, device string) *unstructured.Unstructured {
	t.Helper()
	return create(t, env, fmt.Sprintf(`{apiVersion: danm.io/v1, kind: TenantConfig, metadata: {name: %s}, hostDevices: [{name: %s, vniType: vlan, vniRange: 100-149}],
		namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [%s]}]}}`, apitest.Name("tc"), device, ns))
}

// endpoint is a DanmEp of a node for a Pod; DANM's have no finalizer.
func (n *attackedNodes) endpoint(t *testing.T, finalizers string) *unstructured.Unstructured {
	t.Helper()
	return create(t, n.env, fmt.Sprintf(`{apiVersion: danm.io/v1, kind: DanmEp, metadata: {name: %s, namespace: %s, finalizers: [%s], labels: {app: a}},
		spec: {NetworkName: net, EndpointID: e, Host: %s, Pod: p, CID: c, Interface: {Name: eth1, Address: 10.77.0.2/24}}}`, apitest.Name("ep"), n.ns, finalizers, n.good))
}

// networkChanges are changes of a network, which a node may patch, with its status.
func (n *attackedNodes) networkChanges() map[string]change {
	return map[string]change{
		"OtherVLAN":  {"It was somebody else's.", setField(int64(7), "spec", "Options", "vlan")},
		"OtherPool":  {"Addresses of others.", setField("10.78.0.0/24", "spec", "Options", "cidr")},
		"Assigned":   {"A reservation of somebody else.", setField("vlan/d/7 0123456789abcdef", "metadata", "annotations", "danm.io/assigned")},
		"Recovering": {"All nodes would read it.", setField("now", "metadata", "annotations", "danm.io/recovering")},
		"NoHeld":     {"All addresses would be free.", func(o *unstructured.Unstructured) { unstructured.RemoveNestedField(o.Object, "status", "ipam", "held") }},
		"NotHeld": {"The other node's would be free.", func(o *unstructured.Unstructured) {
			unstructured.RemoveNestedField(o.Object, "status", "ipam", "held", n.good)
		}},
		"HeldByMore": {"A node that is none has them.", setField("10.77.0.9", "status", "ipam", "held", "nobody", "v4")},
		"NoStatus":   {"It would count as restored.", func(o *unstructured.Unstructured) { delete(o.Object, "status") }},
		"Recovered": {"Others have not reported.", func(o *unstructured.Unstructured) {
			unstructured.RemoveNestedField(o.Object, "status", "ipam", "recovering")
		}},
		"Restarted":   {"Everybody reports again.", setField("2026-01-02T00:00:00.000000Z", "status", "ipam", "recovering", "startTime")},
		"DoneForGood": {"The other node has not reported.", setField([]any{n.good}, "status", "ipam", "recovering", "reportedNodes")},
		"Miscounted": {"An exhausted pool would look free.", setField([]any{map[string]any{
			"family": "IPv4", "capacity": int64(254), "inUse": int64(0), "warm": int64(0), "cooldown": int64(0), "reserved": int64(0), "free": int64(254),
		}}, "status", "pools")},
		"Deferred": {"The other node is not heard.", setField("2030-01-01T00:00:00.000000Z", "status", "ipam", "recoveryDeferredUntil", n.good)},
	}
}

// With the token of a node's daemon nobody changes or deletes what belongs to others, and
// has the garbage collector do so.
func TestCompromisedNode(t *testing.T) {
	t.Parallel()
	n := startNodes(t)
	moved := map[string]change{
		"Moved":     {"It would be the attacker's from then on.", setField(n.evil, "spec", "Host")},
		"Readdress": {"Its Pod's Service would lead elsewhere.", setField("10.77.0.9/24", "spec", "Interface", "Address")},
		"NotReady":  {"So would no Service.", setField([]any{map[string]any{"type": "Ready", "status": "False", "reason": "X", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}}, "status", "conditions")},
	}
	own := func(name string) *unstructured.Unstructured {
		return create(t, n.env, fmt.Sprintf(`{apiVersion: danm.io/v1, kind: NodeNetwork, metadata: {name: %s, labels: {a: b}}, status: {nics: [{name: ens3, addresses: [192.0.2.1/24]}]}}`, name))
	}
	read := func(text string) *unstructured.Unstructured { return create(t, n.env, text) }
	targets := map[string]target{
		"ClusterNetwork": {n.network(t, v1.KindClusterNetwork), n.networkChanges()},
		"TenantNetwork":  {n.network(t, v1.KindTenantNetwork), n.networkChanges()},
		"DanmNet":        {n.network(t, v1.KindDanmNet), n.networkChanges()},
		"DanmEp":         {n.endpoint(t, v1.NodeFinalizer), moved},
		"DanmEpOfDANM":   {n.endpoint(t, ""), moved},
		"NodeNetwork": {own(n.good), map[string]change{
			"VTEP": {"Others would send to it.", setField([]any{map[string]any{"name": "ens3", "addresses": []any{"192.0.2.66/24"}}}, "status", "nics")},
		}},
		"TenantConfig": {tenantConfig(t, n.env, n.ns, "dx"), map[string]change{
			"Emptied": {"What is taken would be free.", setField(map[string]any{}, "status", "reservations")},
			"Widened": {"More VLANs.", setField([]any{map[string]any{"name": "dx", "vniType": "vlan", "vniRange": "1-4000"}}, "hostDevices")},
		}},
		"Node":      {read(fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: %s}}`, apitest.Name("node"))), nil},
		"Pod":       {podOn(t, n.env, n.ns, "default", n.good), nil},
		"DaemonPod": {podOn(t, n.env, system, "patchbayd", n.good), nil},
	}
	for name, x := range targets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x.attack(t, n.env, n.daemon)
			if x.object.GroupVersionKind().Group == v1.GroupName && x.object.GetKind() != "TenantConfig" {
				awaitGarbageCollector(t, n.env, targets["ClusterNetwork"].object)
				now := x.object.DeepCopy()
				if err := n.env.Client.Get(t.Context(), client.ObjectKeyFromObject(now), now); err != nil || now.GetDeletionTimestamp() != nil || now.GetUID() != x.object.GetUID() {
					t.Errorf("the garbage collector has been: got %v, %v, want it to stay", now.Object["metadata"], err)
				}
			}
		})
	}
}

// A namespace with DanmEps goes: the controller of namespaces is no node.
func TestNamespaceGoes(t *testing.T) {
	t.Parallel()
	n := startNodes(t)
	n.endpoint(t, "")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.ns}}
	if err := n.env.Client.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace goes", func() error {
		if err := n.env.Client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns); !apierrors.IsNotFound(err) {
			return fmt.Errorf("get: %w; conditions %v", err, ns.Status.Conditions)
		}
		return nil
	})
}

// A daemon's claims leave to others what they have applied, else their next apply would not
// take away what they have removed.
func TestClaimsLeaveFieldsToAppliers(t *testing.T) {
	t.Parallel()
	n := startNodes(t)
	for _, kind := range []string{v1.KindClusterNetwork, v1.KindTenantNetwork, v1.KindDanmNet} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			u := n.network(t, kind)
			get := func() map[string]any {
				if err := n.env.Client.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
					t.Fatal(err)
				}
				return protectedFields(u)
			}
			before, store := get(), kube.NewStore(n.daemon)
			o, err := store.Get(t.Context(), kube.NetworkRefOf(kind, u))
			if err != nil {
				t.Fatal(err)
			}
			entry := o.IPAM.Held[n.evil]
			entry.Seq++
			o.IPAM.Held[n.evil] = entry
			if _, err := store.Update(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			if after := get(); !reflect.DeepEqual(after["appliers"], before["appliers"]) {
				t.Errorf("after a claim the appliers are %v, want %v", after["appliers"], before["appliers"])
			}
		})
	}
}

// attempt is what a kubelet tries, to be more than its node.
type attempt struct {
	reason string
	try    func(c client.Client) error
}

// tokenAttempts are those that a kubelet asks for in vain, and Pods that would have them.
func (n *attackedNodes) tokenAttempts(t *testing.T, elsewhere, controller *unstructured.Unstructured) map[string]attempt {
	t.Helper()
	token := func(pod *unstructured.Unstructured) func(client.Client) error {
		return func(c client.Client) error { _, err := requestProjectedToken(t.Context(), c, pod); return err }
	}
	bound := func(ref *authenticationv1.BoundObjectReference) func(client.Client) error {
		return func(c client.Client) error {
			of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "patchbayd"}}
			return c.SubResource("token").Create(t.Context(), of, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: ref}})
		}
	}
	pod := func(marks map[string]string, account, on string) func(client.Client) error {
		return func(c client.Client) error {
			return c.Create(t.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: apitest.Name("mirror"), Annotations: marks,
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.evil, UID: "0"}}},
				Spec: corev1.PodSpec{NodeName: on, ServiceAccountName: account, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			}, client.DryRunAll)
		}
	}
	recreated, mirror := n.daemonPod.DeepCopy(), map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	recreated.SetUID("00000000-0000-0000-0000-000000000000")
	return map[string]attempt{
		"DaemonElsewhere": {"It would be the other node's.", token(elsewhere)},
		"Controller":      {"It runs on the other node.", token(controller)},
		"Recreated":       {"A Pod of the same name that is none.", token(recreated)},
		"Unbound":         {"A token that no node is in.", bound(nil)},
		"BoundToNode":     {"The other node, directly.", bound(&authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: n.good})},
		"MirrorPod":       {"A static Pod with the controller's account.", pod(mirror, "patchbay-controller", n.evil)},
		"MirrorElsewhere": {"A static Pod of the other node.", pod(mirror, "", n.good)},
		"OrdinaryPod":     {"A Pod of the controller's account.", pod(nil, "patchbay-controller", n.evil)},
	}
}

// objectAttempts are those that a kubelet may not write.
func (n *attackedNodes) objectAttempts(t *testing.T) map[string]attempt {
	t.Helper()
	patch := func(text string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(text)) }
	node := func(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	return map[string]attempt{
		"OwnLabels": {"Which Pods it gets is for others to say.", func(c client.Client) error {
			return c.Patch(t.Context(), node(n.evil), patch(`{"metadata": {"labels": {"node-restriction.kubernetes.io/team": "blue"}}}`))
		}},
		"OtherNode": {"Its addresses are reserved.", func(c client.Client) error {
			return c.Status().Patch(t.Context(), node(n.good), patch(`{"status": {"addresses": []}}`))
		}},
		"DeleteOther": {"A Node that is gone gives back what it had.", func(c client.Client) error { return c.Delete(t.Context(), node(n.good)) }},
		"DanmEp":      {"The daemon's, not the kubelet's.", func(c client.Client) error { return c.List(t.Context(), &v1.DanmEpList{}) }},
		"Network":     {"The same.", func(c client.Client) error { return c.List(t.Context(), &v1.ClusterNetworkList{}) }},
	}
}

// A kubelet gets tokens of Pods of its own node only, and has no rights on networks. Its
// daemon's token ends with the Pod, and takes nobody else's name.
func TestTokensOfANode(t *testing.T) {
	t.Parallel()
	n := startNodes(t)
	elsewhere, controller := podOn(t, n.env, system, "patchbayd", n.good), podOn(t, n.env, system, "patchbay-controller", n.good)
	// The authorizer of nodes learns of Pods a moment later; until then it refuses all.
	for _, pod := range []*unstructured.Unstructured{elsewhere, controller} {
		eventually(t, "the other kubelet gets its token", func() error {
			_, err := requestProjectedToken(t.Context(), kubelet(t, n.env, n.good), pod)
			return err
		})
	}
	for _, cases := range []map[string]attempt{n.tokenAttempts(t, elsewhere, controller), n.objectAttempts(t)} {
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				err := tc.try(kubelet(t, n.env, n.evil))
				if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) {
					t.Errorf("%s\ngot %v, want it refused", tc.reason, err)
				}
			})
		}
	}
	n.testDaemonToken(t, elsewhere)
}

// testDaemonToken tries to be somebody else with the daemon's token, and to use it when its
// Pod is gone.
func (n *attackedNodes) testDaemonToken(t *testing.T, elsewhere *unstructured.Unstructured) {
	t.Helper()
	raw, err := requestProjectedToken(t.Context(), kubelet(t, n.env, n.evil), n.daemonPod)
	if err != nil {
		t.Fatal(err)
	}
	for reason, who := range map[string]rest.ImpersonationConfig{
		"another node":   apitest.NodeDaemon(n.good),
		"the controller": apitest.Controller(),
		"only the claim": {UserName: apitest.NodeDaemon(n.evil).UserName, Extra: apitest.NodeDaemon(n.good).Extra},
	} {
		config := rest.AnonymousClientConfig(n.env.Config)
		config.BearerToken, config.Impersonate = raw, who
		if err := clientOf(t, n.env, config).List(t.Context(), &v1.DanmEpList{}); !apierrors.IsForbidden(err) {
			t.Errorf("the daemon acts as %s: got %v, want it forbidden", reason, err)
		}
	}
	if _, err := requestProjectedToken(t.Context(), n.daemon, elsewhere); !apierrors.IsForbidden(err) {
		t.Errorf("the daemon asks for the other's token: got %v, want it forbidden", err)
	}
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere.GetNamespace(), Name: elsewhere.GetName()}}
	for sub, body := range map[string]client.Object{
		"binding":  &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: n.evil}},
		"eviction": &policyv1.Eviction{},
	} {
		if err := n.daemon.SubResource(sub).Create(t.Context(), other, body); !apierrors.IsForbidden(err) {
			t.Errorf("%s of the other node's Pod: got %v, want it forbidden", sub, err)
		}
	}
	if err := n.env.Client.Delete(t.Context(), n.daemonPod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the token ends with its Pod", func() error { // the API server remembers it for some seconds
		if err := n.daemon.List(t.Context(), &v1.DanmEpList{}); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("list: got %w, want it unauthorized", err)
		}
		return nil
	})
}
