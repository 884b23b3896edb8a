// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package hostile

import (
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// tenants are an attacker and a victim, who share a device.
type tenants struct {
	env                  *apitest.Env
	ns, victim           string
	config               *unstructured.Unstructured
	attacker, bystanders client.Client
}

func startTenants(t *testing.T) *tenants {
	t.Helper()
	env := start(t)
	w := &tenants{env: env, ns: env.Namespace(t), victim: env.Namespace(t)}
	device := apitest.Name("d")
	w.config = tenantConfig(t, env, w.ns+", "+w.victim, "d"+device[len(device)-8:])
	w.attacker, w.bystanders = tenantOf(t, env, w.ns), tenantOf(t, env, w.victim)
	return w
}

// network is one that Pods are attached to.
func (w *tenants) network(t *testing.T, ns string) *unstructured.Unstructured {
	t.Helper()
	name := apitest.Name("net")
	u := create(t, w.env, fmt.Sprintf(`{apiVersion: danm.io/v1, kind: TenantNetwork, metadata: {name: %s, namespace: %s, finalizers: [danm.io/in-use]},
		spec: {NetworkID: n%s}}`, name, ns, name[len(name)-8:]))
	create(t, w.env, fmt.Sprintf(`{apiVersion: danm.io/v1, kind: DanmEp, metadata: {name: %s, namespace: %s, finalizers: [danm.io/node]},
		spec: {NetworkName: %[1]s, NetworkUID: %[3]s, apiType: TenantNetwork, EndpointID: e, Host: node, Pod: p, CID: c, Interface: {Name: eth1}}}`, name, ns, u.GetUID()))
	return u
}

// reservations are what a TenantConfig says that it has given.
func (w *tenants) reservations(t *testing.T) any {
	t.Helper()
	u := w.config.DeepCopy()
	if err := w.env.Client.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
		t.Fatal(err)
	}
	status, _, err := unstructured.NestedMap(u.Object, "status", "reservations")
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// With the role edit a tenant changes and deletes nothing but its own.
func TestTenantAgainstOthers(t *testing.T) {
	t.Parallel()
	w := startTenants(t)
	none := func(text string, args ...any) target {
		return target{create(t, w.env, fmt.Sprintf(text, args...)), nil}
	}
	name := apitest.Name("x")
	for what, x := range map[string]target{
		"Network": {w.network(t, w.victim), map[string]change{"VLAN": {"The victim would be elsewhere.", setField(int64(7), "spec", "Options", "vlan")}}},
		"ClusterNetwork": none(`{apiVersion: danm.io/v1, kind: ClusterNetwork, metadata: {name: %s, labels: {a: b}},
			spec: {NetworkID: n%[2]s, Options: {host_device: d%[2]s}}}`, name, name[len(name)-8:]),
		"DanmNet": none(`{apiVersion: danm.io/v1, kind: DanmNet, metadata: {name: %s, namespace: %s, labels: {a: b}}, spec: {NetworkID: m%[3]s, Options: {host_device: e%[3]s}}}`,
			name, w.ns, name[len(name)-8:]),
		"DanmEp": none(`{apiVersion: danm.io/v1, kind: DanmEp, metadata: {name: %s, namespace: %s, labels: {a: b}},
			spec: {NetworkName: net, EndpointID: e, Host: node, Pod: p, CID: c, Interface: {Name: eth1}}}`, name, w.ns),
		"NodeNetwork":  none(`{apiVersion: danm.io/v1, kind: NodeNetwork, metadata: {name: %s, labels: {a: b}}}`, name),
		"TenantConfig": {w.config, map[string]change{"Selected": {"Everything would be for it.", setField(map[string]any{}, "namespaceSelector")}}},
		"Node":         none(`{apiVersion: v1, kind: Node, metadata: {name: %s}}`, name),
		"EndpointSlice": none(`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: %s, namespace: %s, labels: {a: b}}, addressType: IPv4, endpoints: []}`,
			name, w.ns),
		"Controller": none(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: %s, namespace: %s}}`, name, system),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			x.attack(t, w.env, w.attacker)
		})
	}
}

// The namespace's labels say which TenantConfig is the tenant's: they are not its own.
func TestTenantMovesNoNamespace(t *testing.T) {
	t.Parallel()
	w := startTenants(t)
	ns := &unstructured.Unstructured{}
	ns.SetAPIVersion("v1")
	ns.SetKind("Namespace")
	ns.SetName(w.ns)
	if err := w.env.Client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns); err != nil {
		t.Fatal(err)
	}
	target{ns, map[string]change{
		"Moved": {"Another tenant's ranges.", setField(w.victim, "metadata", "labels", "kubernetes.io/metadata.name")},
	}}.attack(t, w.env, w.attacker)
}

// ownNetworkFields is what a tenant may not change of its own network, while Pods are attached.
func ownNetworkFields(u *unstructured.Unstructured) map[string]any {
	options, _, _ := unstructured.NestedMap(u.Object, "spec", "Options")
	marks := u.GetAnnotations()
	return map[string]any{
		"device": options["host_device"], "pool": options["device_pool"], "vlan": options["vlan"], "vxlan": options["vxlan"], "type": u.Object["spec"].(map[string]any)["NetworkType"], //nolint:forcetypeassert // every network has a spec
		"assigned": marks[v1.AssignedAnnotation], "recovering": marks[v1.RecoveringAnnotation], "status": u.Object["status"],
		"used": strings.Contains(strings.Join(u.GetFinalizers(), " "), v1.InUseFinalizer),
	}
}

// A tenant may change its own network, and gets nothing by it: not another's VLAN, nor the
// one that it has for the next tenant while Pods are attached. Nor does it by the garbage
// collector, which asks for the deletion of what has no owner.
func TestTenantAgainstItsOwnAssignment(t *testing.T) {
	t.Parallel()
	w := startTenants(t)
	victim := w.network(t, w.victim)
	vlan, _, err := unstructured.NestedInt64(victim.Object, "spec", "Options", "vlan")
	if err != nil || vlan == 0 {
		t.Fatalf("the victim has VLAN %d (%v)", vlan, err)
	}
	all := metadataChanges()
	maps.Copy(all, map[string]change{
		"VLAN":       {"The victim's.", setField(vlan, "spec", "Options", "vlan")},
		"Untagged":   {"All VLANs of the NIC.", func(o *unstructured.Unstructured) { unstructured.RemoveNestedField(o.Object, "spec", "Options") }},
		"Device":     {"The NIC of the nodes.", setField("eth0", "spec", "Options", "host_device")},
		"Plugin":     {"Root executes it.", setField("bridge", "spec", "NetworkType")},
		"Assigned":   {"The victim's reservation.", setField(victim.GetAnnotations()[v1.AssignedAnnotation], "metadata", "annotations", v1.AssignedAnnotation)},
		"Recovering": {"Every node reads it.", setField("now", "metadata", "annotations", v1.RecoveringAnnotation)},
		"Status":     {"Addresses of others.", setField(int64(7), "status", "allocated")},
	})
	for what, change := range all {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			net := w.network(t, w.ns)
			before := w.reservations(t)
			for how, way := range writeMethods() {
				from := net.DeepCopy()
				if err := w.env.Client.Get(t.Context(), client.ObjectKeyFromObject(net), from); err != nil {
					t.Fatal(err)
				}
				to := from.DeepCopy()
				change.apply(to)
				if err := way(t.Context(), w.attacker, from, to); err == nil && !reflect.DeepEqual(ownNetworkFields(to), ownNetworkFields(net)) {
					t.Errorf("%s: accepted\n%s\ngot %v\nwant %v", how, change.reason, ownNetworkFields(to), ownNetworkFields(net))
				}
			}
			target{net, nil}.delete(t, client.NewDryRunClient(w.attacker), "dry run")
			target{net, nil}.delete(t, w.attacker, "write")
			awaitGarbageCollector(t, w.env, net)
			now := net.DeepCopy()
			if err := w.env.Client.Get(t.Context(), client.ObjectKeyFromObject(net), now); err != nil || now.GetUID() != net.GetUID() || now.GetDeletionTimestamp() != nil {
				t.Fatalf("the network of attached Pods: got %v (%v), want it to stay", now.Object["metadata"], err)
			}
			if !reflect.DeepEqual(ownNetworkFields(now), ownNetworkFields(net)) {
				t.Errorf("got %v, want %v", ownNetworkFields(now), ownNetworkFields(net))
			}
			if assigned := net.GetAnnotations()[v1.AssignedAnnotation]; !strings.Contains(fmt.Sprint(before), assigned[strings.LastIndex(assigned, " ")+1:]) {
				t.Errorf("reservation %s is not in %v", assigned, before)
			}
		})
	}
}

// Two tenants create networks at once, delete them and create them again with what was
// assigned before: no two are ever on one VLAN.
func TestTenantsAtOnce(t *testing.T) {
	t.Parallel()
	w := startTenants(t)
	const each = 3
	assigned := map[string]*v1.TenantNetwork{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for ns, c := range map[string]client.Client{w.ns: w.attacker, w.victim: w.bystanders} {
		for i := range each {
			wg.Go(func() {
				tn := &v1.TenantNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "net" + strconv.Itoa(i)}, Spec: v1.NetworkSpec{NetworkID: "n" + ns[len(ns)-8:]}}
				replay := tn.DeepCopy()
				if err := c.Create(t.Context(), tn); err != nil {
					if !strings.Contains(err.Error(), "reservations wait for their networks") { // at most two at once
						t.Errorf("create: %v", err)
					}
					return
				}
				if i%2 == 0 { // the same name, with another UID and the old assignment
					if err := c.Delete(t.Context(), tn); err != nil {
						t.Errorf("delete: %v", err)
					}
					replay.Annotations = map[string]string{v1.AssignedAnnotation: tn.Annotations[v1.AssignedAnnotation]}
					if tn = replay; c.Create(t.Context(), tn) != nil {
						return
					}
				}
				mu.Lock()
				defer mu.Unlock()
				key := fmt.Sprint(tn.Spec.Options.Device, " ", tn.Spec.Options.VLAN)
				if other := assigned[key]; other != nil || tn.Spec.Options.VLAN == 0 {
					t.Errorf("%s/%s and %v are on %s", ns, tn.Name, other, key)
				}
				assigned[key] = tn
			})
		}
	}
	wg.Wait()
	if len(assigned) < 2 {
		t.Errorf("%d networks were assigned, so the test says nothing", len(assigned))
	}
}

// A Pod's annotation is checked when it is created; other ways to the same Pod have it
// checked again or do not change it.
func TestTenantChangesAPodLater(t *testing.T) {
	t.Parallel()
	w := startTenants(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "pod", Annotations: map[string]string{v1.InterfacesAnnotation: `[{"tenantNetwork": "none"}]`}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	eventually(t, "the Pod is there", func() error { return w.attacker.Create(t.Context(), pod) })
	before := pod.Annotations[v1.InterfacesAnnotation]
	attached := fmt.Sprintf(`{"metadata": {"annotations": {%q: "[{\"clusterNetwork\": \"x\"}]"}}}`, v1.InterfacesAnnotation)
	patch := client.RawPatch("application/merge-patch+json", []byte(attached))
	for _, sub := range []string{"status", "ephemeralcontainers", "resize"} {
		changed := pod.DeepCopy()
		err := w.attacker.SubResource(sub).Patch(t.Context(), changed, patch)
		if err == nil && changed.Annotations[v1.InterfacesAnnotation] != before {
			t.Errorf("%s changes the annotation", sub)
		}
	}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1.InterfacesAnnotation: "x"}}, Target: corev1.ObjectReference{Kind: "Node", Name: "x"}}
	if err := w.attacker.SubResource("binding").Create(t.Context(), pod, binding); !apierrors.IsForbidden(err) {
		t.Errorf("bind the Pod to a node of its choice: got %v, want it forbidden", err)
	}
}
