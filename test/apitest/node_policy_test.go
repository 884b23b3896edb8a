// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// daemonWrite is one write of node-1's daemon.
type daemonWrite struct {
	reason string
	write  func(ctx context.Context, c client.Client) error
	// refused is a part of the message; empty means accepted.
	refused string
}

func runWrites(t *testing.T, c client.Client, cases map[string]daemonWrite) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tc.write(t.Context(), c)
			switch {
			case tc.refused == "" && err != nil:
				t.Errorf("%s\nwrite: %v", tc.reason, err)
			case tc.refused != "" && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err):
				t.Errorf("%s\nwrite: got %v, want it refused", tc.reason, err)
			case tc.refused != "" && !strings.Contains(err.Error(), tc.refused):
				t.Errorf("%s\nwrite: got %q, want it to say %q", tc.reason, err, tc.refused)
			}
		})
	}
}

func endpoint(namespace, host string) *v1.DanmEp {
	return &v1.DanmEp{
		ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("ep"), Namespace: namespace, Finalizers: []string{v1.NodeFinalizer}},
		Spec: v1.DanmEpSpec{
			NetworkName: "n", EndpointID: "e", Host: host, HostUID: "uid", Pod: "p", CID: "c", Interface: v1.DanmEpInterface{Name: "eth0"},
		},
	}
}

// jsonPatch is a patch that touches nothing but what it names.
func jsonPatch(text string) client.Patch { return client.RawPatch(types.JSONPatchType, []byte(text)) }

func TestNodeWritesItsOwnEndpoints(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		ns := env.Namespace(t)
		own, others := endpoint(ns, "node-1"), endpoint(ns, "node-2")
		kept, bare := endpoint(ns, "node-1"), endpoint(ns, "node-1")
		bare.Spec.HostUID, bare.Finalizers = "", nil
		for _, ep := range []*v1.DanmEp{own, others, kept, bare} {
			if err := env.Client.Create(t.Context(), ep); err != nil {
				t.Fatal(err)
			}
		}
		takeFinalizer := jsonPatch(`[{"op": "remove", "path": "/metadata/finalizers"}]`)
		runWrites(t, env.As(t, apitest.NodeDaemon("node-1")), map[string]daemonWrite{
			"CreateOwn": {reason: "Its Pods' interfaces.", write: func(ctx context.Context, c client.Client) error {
				return c.Create(ctx, endpoint(ns, "node-1"))
			}},
			"CreateOther": {reason: "Another node's.", refused: "node-2", write: func(ctx context.Context, c client.Client) error {
				return c.Create(ctx, endpoint(ns, "node-2"))
			}},
			"ReleaseOwn": {reason: "Its interface is gone.", write: func(ctx context.Context, c client.Client) error {
				return c.Patch(ctx, own.DeepCopy(), takeFinalizer)
			}},
			"ReleaseOther": {reason: "The address would be free while in use.", refused: "leave DanmEps of other nodes to their daemons", write: func(ctx context.Context, c client.Client) error {
				return c.Patch(ctx, others.DeepCopy(), takeFinalizer)
			}},
			"DeleteOwn": {reason: "Its Pod is gone.", write: func(ctx context.Context, c client.Client) error {
				return c.Delete(ctx, own.DeepCopy(), client.DryRunAll)
			}},
			"DeleteOther": {reason: "DANM's have no finalizer: the address would be free while in use.", refused: "leave DanmEps of other nodes to their daemons", write: func(ctx context.Context, c client.Client) error {
				return c.Delete(ctx, others.DeepCopy(), client.DryRunAll)
			}},
			"MoveOther": {reason: "Taking it over first does not help.", refused: "node-2", write: func(ctx context.Context, c client.Client) error {
				return c.Patch(ctx, others.DeepCopy(), jsonPatch(`[{"op": "replace", "path": "/spec/Host", "value": "node-1"}]`))
			}},
			"Finalizer": {reason: "No program removes the finalizer, so the namespace could not be deleted.", refused: "no other entry than danm.io/node", write: func(ctx context.Context, c client.Client) error {
				ep := endpoint(ns, "node-1")
				ep.Finalizers = append(ep.Finalizers, "example.com/never")
				return c.Create(ctx, ep)
			}},
			"LateFinalizer": {reason: "The same afterwards.", refused: "no other entry than danm.io/node", write: func(ctx context.Context, c client.Client) error {
				return c.Patch(ctx, own.DeepCopy(), mergePatch(`{"metadata": {"finalizers": ["danm.io/node", "example.com/never"]}}`), client.DryRunAll)
			}},
			"NoHostUID": {reason: "Nothing would remove it when its Node is deleted.", refused: "spec.HostUID must be", write: func(ctx context.Context, c client.Client) error {
				ep := endpoint(ns, "node-1")
				ep.Spec.HostUID = ""
				return c.Create(ctx, ep)
			}},
			"LateHostUID": {reason: "The same afterwards.", refused: "spec.HostUID must be", write: func(ctx context.Context, c client.Client) error {
				return c.Patch(ctx, kept.DeepCopy(), mergePatch(`{"spec": {"HostUID": null}}`))
			}},
			"NoHostUIDNorFinalizer": {reason: "Its address would be taken for ever.", refused: "spec.HostUID must be", write: func(ctx context.Context, c client.Client) error {
				ep := endpoint(ns, "node-1")
				ep.Spec.HostUID, ep.Finalizers = "", nil
				return c.Create(ctx, ep)
			}},
			"FinalizerWithoutHostUID": {reason: "Made in two steps.", refused: "spec.HostUID must be", write: func(ctx context.Context, c client.Client) error {
				return c.Patch(ctx, bare.DeepCopy(), mergePatch(`{"metadata": {"finalizers": ["danm.io/node"]}}`))
			}},
			"Owner": {reason: "The garbage collector would delete it.", refused: "metadata.ownerReferences must get no entry", write: func(ctx context.Context, c client.Client) error {
				ep := endpoint(ns, "node-1")
				ep.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "never-was", UID: "0"}}
				return c.Create(ctx, ep)
			}},
			"LinksFinalizer": {reason: "It would outlive its Node.", refused: "metadata.finalizers must get no entry", write: func(ctx context.Context, c client.Client) error {
				return c.Create(ctx, &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Finalizers: []string{"example.com/never"}}}, client.DryRunAll)
			}},
			"LinksOwner": {reason: "It goes with its Node, and with nothing else.", refused: "the daemon's own Node only", write: func(ctx context.Context, c client.Client) error {
				return c.Create(ctx, &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: "node-1", OwnerReferences: []metav1.OwnerReference{
					{APIVersion: "v1", Kind: "Node", Name: "node-2", UID: "0"},
				}}}, client.DryRunAll)
			}},
			"LinksOwnNode": {reason: "So the daemon makes it.", write: func(ctx context.Context, c client.Client) error {
				return c.Create(ctx, &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: "node-1", OwnerReferences: []metav1.OwnerReference{
					{APIVersion: "v1", Kind: "Node", Name: "node-1", UID: "0"},
				}}}, client.DryRunAll)
			}},
			"LinksOwn": {reason: "Its own links.", write: func(ctx context.Context, c client.Client) error {
				return c.Create(ctx, &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, client.DryRunAll)
			}},
			"LinksOther": {reason: "Another's would move the ends of VXLANs.", refused: "node-2", write: func(ctx context.Context, c client.Client) error {
				return c.Create(ctx, &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}, client.DryRunAll)
			}},
		})
		unbound := apitest.NodeDaemon("node-1")
		unbound.Extra = nil
		runWrites(t, env.As(t, unbound), map[string]daemonWrite{
			"NoClaim": {reason: "A token from elsewhere.", refused: "must name its node", write: func(ctx context.Context, c client.Client) error {
				return c.Create(ctx, endpoint(ns, "node-1"))
			}},
		})
	})
}

// networkWithWarmAddresses stores a network on which node-1 and node-2 hold addresses.
func networkWithWarmAddresses(t *testing.T, env *apitest.Env) *v1.ClusterNetwork {
	t.Helper()
	meta := metav1.ObjectMeta{Name: apitest.Name("held"), Finalizers: []string{"example.com/other"}}
	n := &v1.ClusterNetwork{ObjectMeta: meta, Spec: v1.NetworkSpec{NetworkID: "n", Options: v1.NetworkOptions{CIDR: "10.0.0.0/24"}}}
	n.Status.IPAM = &v1.IPAMStatus{Held: map[string]v1.HeldAddresses{
		"node-1": {UID: "1", Seq: 1, V4: "10.0.0.1"}, "node-2": {UID: "2", Seq: 1, V4: "10.0.0.2"},
	}}
	return store(t, env, n)
}

func TestNodeWritesItsOwnHeldEntry(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		n := networkWithWarmAddresses(t, env)
		update := func(change func(map[string]v1.HeldAddresses)) func(context.Context, client.Client) error {
			return func(ctx context.Context, c client.Client) error {
				o := n.DeepCopy()
				if err := env.Client.Get(ctx, client.ObjectKeyFromObject(n), o); err != nil {
					return err
				}
				change(o.Status.IPAM.Held)
				return c.Status().Update(ctx, o, client.DryRunAll)
			}
		}
		type held = map[string]v1.HeldAddresses
		runWrites(t, env.As(t, apitest.NodeDaemon("node-1")), map[string]daemonWrite{
			"Own":       {reason: "A claim.", write: update(func(h held) { h["node-1"] = v1.HeldAddresses{UID: "1", Seq: 2, V4: "10.0.0.1,10.0.0.9"} })},
			"RemoveOwn": {reason: "The last release.", write: update(func(h held) { delete(h, "node-1") })},
			"Own quarantine": {reason: "An address answered.", write: update(func(h held) {
				h["node-1"] = v1.HeldAddresses{UID: "1", Seq: 2, V4: "10.0.0.1,10.0.0.9", QuarantinedV4: "10.0.0.9"}
			})},
			"Quarantine": {
				reason: "It is for no node's end.", refused: "!quarantine",
				write: update(func(h held) { h["!quarantine"] = v1.HeldAddresses{V4: "10.0.0.7"} }),
			},
			"Change": {
				reason: "Another node's address.", refused: "node-2",
				write: update(func(h held) { h["node-2"] = v1.HeldAddresses{UID: "2", Seq: 1} }),
			},
			"Remove": {reason: "Another node's addresses.", refused: "node-2", write: update(func(h held) { delete(h, "node-2") })},
			"Add":    {reason: "A name for later.", refused: "node-3", write: update(func(h held) { h["node-3"] = v1.HeldAddresses{UID: "3"} })},
			"Conditions": {reason: "They are the controller's.", refused: "leave the others to the controller", write: func(ctx context.Context, c client.Client) error {
				o := n.DeepCopy()
				if err := env.Client.Get(ctx, client.ObjectKeyFromObject(n), o); err != nil {
					return err
				}
				o.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Forged", LastTransitionTime: metav1.Now()}}
				return c.Status().Update(ctx, o, client.DryRunAll)
			}},
			"DropAll": {reason: "All at once.", refused: "status.ipam must not be removed", write: func(ctx context.Context, c client.Client) error {
				o := n.DeepCopy()
				if err := env.Client.Get(ctx, client.ObjectKeyFromObject(n), o); err != nil {
					return err
				}
				o.Status.IPAM = nil
				return c.Status().Update(ctx, o, client.DryRunAll)
			}},
		})
	})
}

// What a node writes can be read by the Go types of all others, and is the same when they
// write it back: else one node's status stops everybody who lists, or writes, the network.
func TestNodeWritesWhatOthersRead(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		n := networkWithWarmAddresses(t, env)
		links := &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("node")}}
		if err := env.Client.Create(t.Context(), links); err != nil {
			t.Fatal(err)
		}
		status := func(kind string, o client.Object, text string) func(context.Context, client.Client) error {
			return func(ctx context.Context, c client.Client) error {
				raw, changes := &unstructured.Unstructured{}, map[string]any{}
				raw.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind(kind))
				if err := errors.Join(env.Client.Get(ctx, client.ObjectKeyFromObject(o), raw), json.Unmarshal([]byte(text), &changes)); err != nil {
					return err
				}
				merge(raw.Object, map[string]any{"status": changes})
				return c.Status().Update(ctx, raw, client.DryRunAll)
			}
		}
		entry := func(text string) func(context.Context, client.Client) error {
			return status(v1.KindClusterNetwork, n, `{"ipam": {"held": {"node-1": {`+text+`}}}}`)
		}
		condition := func(kind string, o client.Object, time string) func(context.Context, client.Client) error {
			return status(kind, o, `{"conditions": [{"type": "Ready", "status": "True", "reason": "Valid", "message": "", "lastTransitionTime": "`+time+`"}]}`)
		}
		const rollback = `"rollback": {"reason": "OlderResourceVersion", "recoveryStartTime": `
		runWrites(t, env.As(t, apitest.NodeDaemon("node-1")), map[string]daemonWrite{
			"Quarantine":      {reason: "As the daemon writes it.", write: entry(`"quarantinedV4": "10.0.0.1"`)},
			"Rollback":        {reason: "As the daemon writes it.", write: entry(rollback + `"2026-01-01T00:00:00.000000Z"}`)},
			"Pressure":        {reason: "As the daemon writes it.", write: status(v1.KindClusterNetwork, n, `{"ipam": {"reclaimRequestTime": "2026-01-01T00:00:00.000000Z"}}`)},
			"Condition":       {reason: "As the daemon writes it.", write: condition(v1.KindClusterNetwork, n, "2026-01-01T00:00:00Z")},
			"EmptyV4":         {reason: "Others leave it out.", refused: "v4", write: entry(`"v4": ""`)},
			"EmptyV6":         {reason: "Others leave it out.", refused: "v6", write: entry(`"v6": ""`)},
			"EmptyQuarantine": {reason: "Others leave it out.", refused: "quarantinedV6", write: entry(`"quarantinedV6": ""`)},
			"NoUID":           {reason: "It would outlive its Node.", refused: "uid must be", write: entry(`"uid": ""`)},
			"Ranges":          {reason: "As the daemon writes it.", write: entry(`"v4": "10.0.0.1-10.0.0.9,10.0.0.12", "v6": "fd00::5-fd00::9"`)},
			"Words":           {reason: "Nobody could read it.", refused: "v4", write: entry(`"v4": "all"`)},
			"Filled":          {reason: "The object would be full, and no node could claim.", refused: "v6", write: entry(`"v6": "` + strings.Repeat("fd00::5,", 10000) + `fd00::5"`)},
			"LongUID":         {reason: "The same with another field.", refused: "uid", write: entry(`"uid": "` + strings.Repeat("u", 70) + `"`)},
			"Seconds":         {reason: "Go wants six digits.", refused: "recoveryStartTime", write: entry(rollback + `"2026-01-01T00:00:00Z"}`)},
			"Offset":          {reason: "Others write Z.", refused: "recoveryStartTime", write: entry(rollback + `"2026-01-01T00:00:00.000000+00:00"}`)},
			"PressureSeconds": {reason: "Go wants six digits.", refused: "reclaimRequestTime", write: status(v1.KindClusterNetwork, n, `{"ipam": {"reclaimRequestTime": "2026-01-01T00:00:00Z"}}`)},
			"LowerCase":       {reason: "Go wants capitals.", refused: "lastTransitionTime", write: condition(v1.KindClusterNetwork, n, "2026-01-01t00:00:00z")},
		})
		link := func(text string) func(context.Context, client.Client) error {
			return status("NodeNetwork", links, `{"links": [{"name": "a.5", "identity": "vlan/ens4/5", "state": "Error", `+text+`}]}`)
		}
		long := strings.Repeat("x", 40<<10)
		runWrites(t, env.As(t, apitest.NodeDaemon(links.Name)), map[string]daemonWrite{
			"Links":          {reason: "As the daemon writes it.", write: condition("NodeNetwork", links, "2026-01-01T00:00:00Z")},
			"LinksLowerCase": {reason: "Go wants capitals.", refused: "lastTransitionTime", write: condition("NodeNetwork", links, "2026-01-01t00:00:00z")},
			"Error":          {reason: "As long as the daemon writes it.", write: link(`"error": "` + strings.Repeat("x", 404) + `"`)},
			"LongError":      {reason: "The condition of each network that repeats it would be refused.", refused: "error", write: link(`"error": "` + long + `"`)},
			"LongNetwork":    {reason: "The same with another field.", refused: "networks", write: link(`"networks": ["` + long + `"]`)},
			"LongRefusal": {
				reason: "The same with another field.", refused: "error",
				write: status("NodeNetwork", links, `{"refused": [{"network": "ClusterNetwork/n", "error": "`+long+`"}]}`),
			},
		})
	})
}

// One DanmEp whose address cannot be read would stop everybody who lists those of a network:
// its recovery, its audits and its deletion.
func TestNodeWritesReadableDanmEps(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		ns := env.Namespace(t)
		create := func(change func(*v1.DanmEpSpec)) func(context.Context, client.Client) error {
			return func(ctx context.Context, c client.Client) error {
				ep := endpoint(ns, "node-1")
				change(&ep.Spec)
				return c.Create(ctx, ep, client.DryRunAll)
			}
		}
		addresses := func(v4, v6 string) func(context.Context, client.Client) error {
			return create(func(s *v1.DanmEpSpec) { s.Interface.Address, s.Interface.AddressIPv6 = v4, v6 })
		}
		long := strings.Repeat("x", 40<<10)
		runWrites(t, env.As(t, apitest.NodeDaemon("node-1")), map[string]daemonWrite{
			"Both":     {reason: "As the daemon writes it.", write: addresses("10.0.0.5/24", "fd00::5/64")},
			"Bare":     {reason: "As some plugins do.", write: addresses("10.0.0.5", "fd00::5")},
			"None":     {reason: "As DANM writes it.", write: addresses("none", "none")},
			"Empty":    {reason: "An interface without addresses.", write: addresses("", "")},
			"Words":    {reason: "Nobody could read it.", refused: "IPv4 address", write: addresses("all", "")},
			"Mask":     {reason: "Nobody could read it.", refused: "IPv4 address", write: addresses("10.0.0.5/33", "")},
			"Mapped":   {reason: "It would be another address than it looks.", refused: "IPv6 address", write: addresses("", "::ffff:10.0.0.5")},
			"Zone":     {reason: "It would be another address than it looks.", refused: "IPv6 address", write: addresses("", "fe80::1%eth0")},
			"Family":   {reason: "It would be another address than it looks.", refused: "IPv4 address", write: addresses("fd00::5/64", "")},
			"Family6":  {reason: "It would be another address than it looks.", refused: "IPv6 address", write: addresses("", "10.0.0.5/24")},
			"LongPod":  {reason: "The condition that names it would be refused.", refused: "spec.Pod", write: create(func(s *v1.DanmEpSpec) { s.Pod = long })},
			"LongKind": {reason: "The same with another field.", refused: "spec.apiType", write: create(func(s *v1.DanmEpSpec) { s.APIType = long })},
		})
	})
}

// merge puts the changes into an object, as a JSON merge patch without nulls.
func merge(into, changes map[string]any) {
	for k, v := range changes {
		inner, ok := v.(map[string]any)
		if there, both := into[k].(map[string]any); ok && both {
			merge(there, inner)
			continue
		}
		into[k] = v
	}
}

// recoveringNetwork stores a network in recovery.
func recoveringNetwork(t *testing.T, env *apitest.Env, done ...string) *v1.ClusterNetwork {
	t.Helper()
	n := &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("recovering")},
		Spec: v1.NetworkSpec{NetworkID: "n", Options: v1.NetworkOptions{CIDR: "10.0.0.0/24"}}}
	n.Status.IPAM = &v1.IPAMStatus{
		Recovering: &v1.RecoveryStatus{StartTime: metav1.NowMicro(), ReportedNodes: done},
		Held:       map[string]v1.HeldAddresses{"!quarantine": {V4: "10.0.0.7"}},
	}
	return store(t, env, n)
}

// ipamChange tries a write of a network's status.ipam.
func ipamChange(env *apitest.Env, n *v1.ClusterNetwork, change func(*v1.IPAMStatus)) func(context.Context, client.Client) error {
	return ipamWrite(env, n, change, client.DryRunAll)
}

func ipamWrite(env *apitest.Env, n *v1.ClusterNetwork, change func(*v1.IPAMStatus), opts ...client.SubResourceUpdateOption) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		o := n.DeepCopy()
		if err := env.Client.Get(ctx, client.ObjectKeyFromObject(n), o); err != nil {
			return err
		}
		change(o.Status.IPAM)
		return c.Status().Update(ctx, o, opts...)
	}
}

// The numbers in a network's status are the controller's, and a node keeps them in its writes.
func TestNodeLeavesPoolsToTheController(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		n, fresh := networkWithWarmAddresses(t, env), networkWithWarmAddresses(t, env)
		status := func(n *v1.ClusterNetwork, change func(*v1.NetworkStatus)) func(context.Context, client.Client) error {
			return func(ctx context.Context, c client.Client) error {
				o := n.DeepCopy()
				if err := env.Client.Get(ctx, client.ObjectKeyFromObject(n), o); err != nil {
					return err
				}
				change(&o.Status)
				return c.Status().Update(ctx, o, client.DryRunAll)
			}
		}
		pools := []v1.PoolStatus{{Family: "IPv4", Capacity: 254, Warm: 2, Free: 252}, {Family: "IPv6", Capacity: 14, Free: 14}}
		counted := v1.NetworkStatus{Pools: pools}
		apply := func(n *v1.ClusterNetwork) func(context.Context, client.Client) error {
			return func(ctx context.Context, c client.Client) error {
				ref := network.Ref{Kind: v1.KindClusterNetwork, Name: n.Name}
				return kube.ApplyStatus(ctx, c, ref, n.UID, "patchbay-controller-addresses", counted)
			}
		}
		if err := apply(n)(t.Context(), env.As(t, apitest.Controller())); err != nil {
			t.Fatalf("the controller applies status.pools: %v", err)
		}
		const rule = "status.pools must stay the same: leave it to the controller"
		runWrites(t, env.As(t, apitest.NodeDaemon("node-1")), map[string]daemonWrite{
			"Claim": {reason: "The numbers stay.", write: status(n, func(s *v1.NetworkStatus) {
				s.IPAM.Held["node-1"] = v1.HeldAddresses{UID: "1", Seq: 2, V4: "10.0.0.1,10.0.0.3"}
			})},
			"Free":    {reason: "An alert would not fire.", refused: rule, write: status(n, func(s *v1.NetworkStatus) { s.Pools[0].Free++ })},
			"InUse":   {reason: "An alert would fire.", refused: rule, write: status(n, func(s *v1.NetworkStatus) { s.Pools[1].InUse = 14 })},
			"Reorder": {reason: "The columns would show the other family.", refused: rule, write: status(n, func(s *v1.NetworkStatus) { s.Pools[0], s.Pools[1] = s.Pools[1], s.Pools[0] })},
			"Remove":  {reason: "The columns would be empty.", refused: rule, write: status(n, func(s *v1.NetworkStatus) { s.Pools = nil })},
			"First":   {reason: "Before the controller has counted.", refused: rule, write: status(fresh, func(s *v1.NetworkStatus) { s.Pools = pools })},
			"Apply":   {reason: "By server-side apply, as the controller does.", refused: "cannot patch", write: apply(fresh)},
		})
	})
}

func TestNodeReportsToARecoveryAndDoesNotEndIt(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		calm, recovering := networkWithWarmAddresses(t, env), recoveringNetwork(t, env, "node-0", "node-2")
		report := v1.HeldAddresses{UID: "1", Seq: 2, V4: "10.0.0.1", Rollback: &v1.RollbackReport{Reason: v1.RollbackOlderEntry}}
		reported, answered := networkWithWarmAddresses(t, env), recoveringNetwork(t, env)
		for _, n := range []*v1.ClusterNetwork{reported, answered} {
			if err := ipamWrite(env, n, func(s *v1.IPAMStatus) { s.Held["node-1"] = report })(t.Context(), env.Client); err != nil {
				t.Fatal(err)
			}
		}
		runWrites(t, env.As(t, apitest.NodeDaemon("node-1")), map[string]daemonWrite{
			"Rollback": {reason: "It found an older state.", write: ipamChange(env, calm, func(s *v1.IPAMStatus) {
				s.Held["node-1"] = v1.HeldAddresses{UID: "1", Seq: 2, V4: "10.0.0.1", Rollback: &v1.RollbackReport{Reason: v1.RollbackOlderEntry}}
			})},
			"RollbackDuring": {reason: "It found an older state that was in a recovery.", write: ipamChange(env, recovering, func(s *v1.IPAMStatus) {
				s.Held["node-1"] = v1.HeldAddresses{UID: "1", Seq: 2, Rollback: &v1.RollbackReport{Reason: v1.RollbackOlderEntry, RecoveryStartTime: &s.Recovering.StartTime}}
			})},
			"TakeBack": {reason: "It stops the others again and again, and is never counted.", refused: "rollback must stay until the controller has started a recovery", write: ipamChange(env, reported, func(s *v1.IPAMStatus) {
				s.Held["node-1"] = v1.HeldAddresses{UID: "1", Seq: 2}
			})},
			"TakeBackEntry": {reason: "The same.", refused: "rollback must stay until the controller has started a recovery", write: ipamChange(env, reported, func(s *v1.IPAMStatus) {
				delete(s.Held, "node-1")
			})},
			"ClaimNoAnswer": {reason: "The same: no recovery has that start.", refused: "rollback must stay until the controller has started a recovery", write: ipamChange(env, reported, func(s *v1.IPAMStatus) {
				s.Held["node-1"] = v1.HeldAddresses{UID: "1", Seq: 2, Rollback: &v1.RollbackReport{Reason: v1.RollbackOlderEntry, RecoveryStartTime: new(metav1.NowMicro())}}
			})},
			"Keep": {reason: "Its Pods end meanwhile.", write: ipamChange(env, reported, func(s *v1.IPAMStatus) {
				s.Held["node-1"] = v1.HeldAddresses{UID: "1", Seq: 3, Rollback: &v1.RollbackReport{Reason: v1.RollbackOlderResourceVersion}}
			})},
			"Answer": {reason: "A recovery has begun since.", write: ipamChange(env, answered, func(s *v1.IPAMStatus) {
				s.Held["node-1"], s.Recovering.ReportedNodes = v1.HeldAddresses{UID: "1", Seq: 3}, []string{"node-1"}
			})},
			"RollbackOfOther": {reason: "node-2 found nothing.", refused: "leave their entries to their daemons", write: ipamChange(env, calm, func(s *v1.IPAMStatus) {
				s.Held["node-2"] = v1.HeldAddresses{UID: "2", Seq: 1, V4: "10.0.0.2", Rollback: &v1.RollbackReport{Reason: v1.RollbackOlderEntry}}
			})},
			"RollbackUnknown": {reason: "Messages repeat the reason.", refused: "Unsupported value", write: ipamChange(env, calm, func(s *v1.IPAMStatus) {
				s.Held["node-1"] = v1.HeldAddresses{UID: "1", Seq: 2, Rollback: &v1.RollbackReport{Reason: "SomethingElse"}}
			})},
			"Start": {reason: "All would wait for all.", refused: "the controller starts recoveries", write: ipamChange(env, calm, func(s *v1.IPAMStatus) {
				s.Recovering = &v1.RecoveryStatus{StartTime: metav1.NowMicro(), ReportedNodes: []string{"node-1"}}
			})},
			"DeferOther": {reason: "node-2 would not be heard.", refused: "status.ipam.recoveryDeferredUntil", write: ipamChange(env, calm, func(s *v1.IPAMStatus) {
				s.RecoveryDeferredUntil = map[string]metav1.MicroTime{"node-2": metav1.NowMicro()}
			})},
			"Report": {reason: "It said what it uses.", write: ipamChange(env, recovering, func(s *v1.IPAMStatus) {
				s.Recovering.ReportedNodes = []string{"node-0", "node-1", "node-2"}
			})},
			"ReportForOther": {reason: "node-3 has not.", refused: "leave their reports to their daemons", write: ipamChange(env, recovering, func(s *v1.IPAMStatus) {
				s.Recovering.ReportedNodes = append(s.Recovering.ReportedNodes, "node-3")
			})},
			"Withdraw": {reason: "node-2 would be waited for again.", refused: "leave their reports to their daemons", write: ipamChange(env, recovering, func(s *v1.IPAMStatus) {
				s.Recovering.ReportedNodes = s.Recovering.ReportedNodes[:1]
			})},
			"End": {reason: "Others may not have reported.", refused: "controller", write: ipamChange(env, recovering, func(s *v1.IPAMStatus) {
				s.Recovering = nil
			})},
			"RestartWithReports": {reason: "Others have reported to another one.", refused: "the controller starts recoveries", write: ipamChange(env, recovering, func(s *v1.IPAMStatus) {
				s.Recovering.StartTime = metav1.NewMicroTime(s.Recovering.StartTime.Add(1e9))
			})},
			"Restart": {reason: "All would report again, without end.", refused: "the controller starts recoveries", write: ipamChange(env, recovering, func(s *v1.IPAMStatus) {
				s.Recovering = &v1.RecoveryStatus{StartTime: metav1.NewMicroTime(s.Recovering.StartTime.Add(1e9)), ReportedNodes: []string{"node-1"}}
			})},
			"DropAll": {reason: "The recovery would be over.", refused: "controller", write: ipamChange(env, recovering, func(s *v1.IPAMStatus) {
				*s = v1.IPAMStatus{Held: s.Held}
			})},
		})
	})
}

// The rules are evaluated within the API server's limits when thousands of nodes hold
// addresses of one network, and report to its recovery.
func TestNodePoliciesInALargeCluster(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		const nodes = 3000
		n := &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("large")},
			Spec: v1.NetworkSpec{NetworkID: "n", Options: v1.NetworkOptions{CIDR: "10.0.0.0/16"}}}
		n.Status.IPAM = &v1.IPAMStatus{Recovering: &v1.RecoveryStatus{StartTime: metav1.NowMicro()}, Held: map[string]v1.HeldAddresses{}}
		for i := range nodes {
			name := fmt.Sprintf("node-%05d", i)
			n.Status.IPAM.Held[name] = v1.HeldAddresses{UID: name, Seq: 1, V4: fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)}
			n.Status.IPAM.Recovering.ReportedNodes = append(n.Status.IPAM.Recovering.ReportedNodes, name)
		}
		store(t, env, n)
		runWrites(t, env.As(t, apitest.NodeDaemon("node-1")), map[string]daemonWrite{
			"Report": {reason: "One more.", write: ipamChange(env, n, func(s *v1.IPAMStatus) {
				s.Recovering.ReportedNodes = append(s.Recovering.ReportedNodes, "node-1")
				s.Held["node-1"] = v1.HeldAddresses{UID: "1", Seq: 1}
			})},
			"Steal": {reason: "One of thousands.", refused: "node-00007", write: ipamChange(env, n, func(s *v1.IPAMStatus) {
				delete(s.Held, "node-00007")
			})},
		})
	})
}

// Who has applied labels takes them away by the next apply: a node changes nothing about that.
func TestNodeLeavesFieldsToAppliers(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		n := networkWithWarmAddresses(t, env)
		labelled := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"labels": map[string]any{"applied": "yes"}}}}
		labelled.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind(v1.KindClusterNetwork))
		labelled.SetName(n.Name)
		applied := client.ApplyConfigurationFromUnstructured(labelled.DeepCopy())
		if err := env.Client.Apply(t.Context(), applied, client.FieldOwner("gitops")); err != nil {
			t.Fatal(err)
		}
		status := func(change func(*v1.ClusterNetwork)) func(context.Context, client.Client) error {
			return func(ctx context.Context, c client.Client) error {
				o := n.DeepCopy()
				if err := env.Client.Get(ctx, client.ObjectKeyFromObject(n), o); err != nil {
					return err
				}
				change(o)
				return c.Status().Update(ctx, o, client.DryRunAll)
			}
		}
		const rule = "metadata.managedFields"
		runWrites(t, env.As(t, apitest.NodeDaemon("node-1")), map[string]daemonWrite{
			"Finalizer": {reason: "It is in use.", write: func(ctx context.Context, c client.Client) error {
				return c.Patch(ctx, n.DeepCopy(), mergePatch(`{"metadata": {"finalizers": ["danm.io/in-use", "example.com/other"]}}`), client.DryRunAll)
			}},
			"Claim": {reason: "With all metadata.", write: status(func(o *v1.ClusterNetwork) {
				o.Status.IPAM.Held["node-1"] = v1.HeldAddresses{UID: "1", Seq: 2, V4: "10.0.0.1"}
			})},
			"Disown": {reason: "Nobody has applied anything.", refused: rule, write: func(ctx context.Context, c client.Client) error {
				return c.Patch(ctx, n.DeepCopy(), mergePatch(`{"metadata": {"managedFields": [{}]}}`), client.DryRunAll)
			}},
			"Apply": {reason: "The label stays as long as one applies it.", refused: rule, write: func(ctx context.Context, c client.Client) error {
				return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(labelled.DeepCopy()), client.FieldOwner("node"), client.DryRunAll)
			}},
			"StatusUnlabelled": {reason: "The label stays, and is nobody's.", refused: rule, write: status(func(o *v1.ClusterNetwork) { o.Labels = nil })},
		})
	})
}

// A node sets the finalizer of a network, and neither ends its use nor has the garbage
// collector delete it.
func TestNodeOnlyAddsTheFinalizerOfANetwork(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		fresh, used := networkWithWarmAddresses(t, env), networkWithWarmAddresses(t, env)
		marks := mergePatch(`{"metadata": {"finalizers": ["danm.io/in-use", "example.com/other"], "labels": {"a": "b"}, "annotations": {"a": "b"}}}`)
		if err := env.Client.Patch(t.Context(), used, marks); err != nil {
			t.Fatal(err)
		}
		patch := func(n *v1.ClusterNetwork, p client.Patch) func(context.Context, client.Client) error {
			return func(ctx context.Context, c client.Client) error {
				return c.Patch(ctx, n.DeepCopy(), p, client.DryRunAll)
			}
		}
		attack := func(n *v1.ClusterNetwork, p client.Patch) func(context.Context, client.Client) error {
			return func(ctx context.Context, c client.Client) error { return c.Patch(ctx, n.DeepCopy(), p) }
		}
		const (
			rule  = "the network must not be created or changed by a node daemon, except that it adds the finalizer danm.io/in-use"
			owner = `{"apiVersion": "v1", "kind": "ConfigMap", "name": "never-was", "uid": "0"}`
		)
		runWrites(t, env.As(t, apitest.NodeDaemon("node-1")), map[string]daemonWrite{
			"Finalizer": {reason: "It is in use.", write: patch(fresh, jsonPatch(`[{"op": "add", "path": "/metadata/finalizers/-", "value": "danm.io/in-use"}]`))},
			"Nothing":   {reason: "The same once more.", write: patch(used, mergePatch(`{"metadata": {"finalizers": ["danm.io/in-use", "example.com/other"]}}`))},
			"Collected": {
				reason: "The garbage collector would delete it at once.", refused: v1.InUseFinalizer, // by two policies
				write: attack(used, mergePatch(`{"metadata": {"finalizers": null, "ownerReferences": [`+owner+`]}}`)),
			},
			"Owner": {
				reason: "It would when somebody else takes the finalizer off.", refused: rule,
				write: patch(used, mergePatch(`{"metadata": {"ownerReferences": [`+owner+`]}}`)),
			},
			"Applied": {
				reason: "The same by server-side apply.", refused: rule,
				write: func(ctx context.Context, c client.Client) error {
					o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"ownerReferences": []any{
						map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "never-was", "uid": "0"},
					}}}}
					o.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind(v1.KindClusterNetwork))
					o.SetName(used.Name)
					return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("me"), client.ForceOwnership)
				},
			},
			"Release":        {reason: "It cannot see who else uses it.", refused: v1.InUseFinalizer, write: attack(used, mergePatch(`{"metadata": {"finalizers": ["example.com/other"]}}`))},
			"OtherFinalizer": {reason: "Somebody else's.", refused: rule, write: patch(fresh, jsonPatch(`[{"op": "remove", "path": "/metadata/finalizers/0"}]`))},
			"AddFinalizer":   {reason: "Nobody would take it off.", refused: rule, write: patch(fresh, jsonPatch(`[{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/never"}]`))},
			"Spec":           {reason: "A node is no netadmin.", refused: rule, write: patch(fresh, jsonPatch(`[{"op": "add", "path": "/spec/Options/vlan", "value": 5}]`))},
			"Annotation": {
				reason: "An annotation requests a rebuild of the bitmap.", refused: rule,
				write: patch(fresh, mergePatch(`{"metadata": {"annotations": {"danm.io/ipam-rebuild": "true"}}}`)),
			},
			"Label":     {reason: "Others select by them.", refused: rule, write: patch(used, mergePatch(`{"metadata": {"labels": {"a": "c"}}}`))},
			"DropLabel": {reason: "The same.", refused: rule, write: patch(used, mergePatch(`{"metadata": {"labels": null}}`))},
			"StatusOwner": {reason: "The subresource takes no metadata.", refused: "", write: func(ctx context.Context, c client.Client) error {
				o := &v1.ClusterNetwork{}
				if err := env.Client.Get(ctx, client.ObjectKeyFromObject(used), o); err != nil {
					return err
				}
				o.Finalizers, o.OwnerReferences = nil, []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "never-was", UID: "0"}}
				if err := c.Status().Update(ctx, o, client.DryRunAll); err != nil {
					return err
				}
				if len(o.Finalizers) != 2 || len(o.OwnerReferences) != 0 {
					return fmt.Errorf("a write of status changed metadata: %+v", o.ObjectMeta)
				}
				return nil
			}},
			"Replace":   {reason: "Without the right.", refused: "cannot update", write: func(ctx context.Context, c client.Client) error { return c.Update(ctx, used.DeepCopy()) }},
			"Delete":    {reason: "Without the right.", refused: "cannot delete", write: func(ctx context.Context, c client.Client) error { return c.Delete(ctx, used.DeepCopy()) }},
			"DeleteAll": {reason: "Without the right.", refused: "cannot deletecollection", write: func(ctx context.Context, c client.Client) error { return c.DeleteAllOf(ctx, &v1.ClusterNetwork{}) }},
		})
		now := &v1.ClusterNetwork{}
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(used), now); err != nil || len(now.Finalizers) != 2 || len(now.OwnerReferences) > 0 {
			t.Errorf("after the attack the network has finalizers %v and owners %v (%v)", now.Finalizers, now.OwnerReferences, err)
		}
	})
}
