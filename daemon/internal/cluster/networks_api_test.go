// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
)

// watchNetworks returns running Networks; reads counts the objects read in full.
func watchNetworks(t *testing.T, env *apitest.Env) (n *NetworkCache, reads *atomic.Int64) {
	t.Helper()
	ctx, conn := logged(t), connect(t, env)
	reads = &atomic.Int64{}
	n = NewNetworkCache(conn, logr.FromContextOrDiscard(ctx), NetworkCacheOptions{
		OnRead: func(client.Object, *network.Network, error) { reads.Add(1) },
	})
	start(ctx, t, conn.Cache.Start)
	start(ctx, t, n.Run)
	wait(t, "networks to be read", func(context.Context) error {
		if !n.Ready() {
			return errors.New("not ready")
		}
		return nil
	})
	return n, reads
}

func TestNetworkMadeThisSecondIsFound(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	n, _ := watchNetworks(t, env)
	for range 20 {
		cn := clusterNetwork(t, env)
		net, err := n.Get(t.Context(), ref(cn))
		if err != nil {
			t.Fatal(err)
		}
		if net.UID != string(cn.UID) {
			t.Errorf("UID %s, want %s", net.UID, cn.UID)
		}
	}
	if _, err := n.Get(t.Context(), network.Ref{Kind: v1.KindClusterNetwork, Name: "nope"}); !errors.Is(err, attach.ErrNotFound) {
		t.Errorf("missing network: got error %v, want ErrNotFound", err)
	}
}

func TestNetworkFollowsItsSpec(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	n, _ := watchNetworks(t, env)
	cn := clusterNetwork(t, env)
	cn.Spec.Options.MTU = 1400
	if err := env.Client.Update(t.Context(), cn); err != nil {
		t.Fatal(err)
	}
	wait(t, "the model to follow", func(ctx context.Context) error {
		if net, err := n.Get(ctx, ref(cn)); err != nil || net.MTU != 1400 {
			return fmt.Errorf("got %+v, %w", net, err)
		}
		return nil
	})
	if err := env.Client.Delete(t.Context(), cn); err != nil {
		t.Fatal(err)
	}
	wait(t, "the model to go", func(ctx context.Context) error {
		for _, net := range n.List() {
			if net.Ref == ref(cn) {
				return errors.New("still listed")
			}
		}
		if _, err := n.Get(ctx, ref(cn)); !errors.Is(err, attach.ErrNotFound) {
			return fmt.Errorf("got error %w, want ErrNotFound", err)
		}
		return nil
	})
}

// A claim must not be sent in full to every node.
func TestStatusWritesAreNotRead(t *testing.T) {
	t.Parallel()
	env := apitest.New(t) // alone, since other tests' networks are read too
	n, reads := watchNetworks(t, env)
	store := kube.NewStore(n.conn.Direct)
	cn := clusterNetwork(t, env)
	wait(t, "the network to be cached", func(context.Context) error {
		if _, ok := n.models.get(ref(cn)); !ok {
			return errors.New("no model")
		}
		return nil
	})
	before := reads.Load()
	o, err := store.Get(t.Context(), ref(cn))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		o.IPAM = &v1.IPAMStatus{Held: map[string]v1.HeldAddresses{node: {UID: "u", Seq: int64(i)}}}
		o.Allocated = int64(i)
		if o, err = store.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	meta := kube.PartialMetadata(v1.KindClusterNetwork)
	wait(t, "the metadata of the last write", func(ctx context.Context) error {
		if err := n.conn.Cache.Get(ctx, kube.ObjectKey(ref(cn)), meta); err != nil || meta.ResourceVersion != o.ResourceVersion {
			return fmt.Errorf("resourceVersion %s, want %s: %w", meta.ResourceVersion, o.ResourceVersion, err)
		}
		return nil
	})
	if _, err := n.Get(t.Context(), ref(cn)); err != nil {
		t.Fatal(err)
	}
	if got := reads.Load() - before; got != 0 {
		t.Errorf("20 writes of status made %d reads of the object, want 0", got)
	}
}

func TestNetworksWithoutTheAPIServer(t *testing.T) {
	t.Parallel()
	env := apitest.New(t)
	n, _ := watchNetworks(t, env)
	cn := clusterNetwork(t, env)
	wait(t, "the network to be cached", func(context.Context) error {
		if _, ok := n.models.get(ref(cn)); !ok {
			return errors.New("no model")
		}
		return nil
	})
	if err := env.ControlPlane.Kill(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Get(t.Context(), ref(cn)); err != nil {
		t.Errorf("a known network while the API server is away: %v", err)
	}
	if _, err := n.Get(t.Context(), network.Ref{Kind: v1.KindClusterNetwork, Name: "nope"}); !errors.Is(err, attach.ErrTryAgain) {
		t.Errorf("an unknown network while the API server is away: got error %v, want ErrTryAgain", err)
	}
	if err := env.ControlPlane.StartPart(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	later := clusterNetwork(t, env)
	wait(t, "the watch to come back", func(context.Context) error {
		if _, ok := n.models.get(ref(later)); !ok {
			return errors.New("no model")
		}
		return nil
	})
}

// What only the status says is seen by reading all networks again: an entry that a
// former life's write brought late changes no generation.
func TestRereadShowsWhatOnlyTheStatusSays(t *testing.T) {
	t.Parallel()
	env, ctx := apitest.Start(t), logged(t)
	conn, holdings := connect(t, env), NewNodeEntries(node)
	n := NewNetworkCache(conn, logr.FromContextOrDiscard(ctx), NetworkCacheOptions{OnRead: holdings.Observe})
	start(ctx, t, conn.Cache.Start)
	start(ctx, t, n.Run)
	cn := clusterNetwork(t, env)
	wait(t, "the network to be read", func(context.Context) error {
		if _, known := n.models.get(ref(cn)); !known || !n.Ready() {
			return errors.New("not yet")
		}
		return nil
	})
	cn.Status.IPAM = &v1.IPAMStatus{Held: map[string]v1.HeldAddresses{node: {UID: "u", V4: "10.9.0.7"}}}
	if err := env.Client.Status().Update(t.Context(), cn); err != nil {
		t.Fatal(err)
	}
	if err := n.ReadAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := claims.Key{Ref: ref(cn), UID: string(cn.UID)}
	if !slices.Contains(holdings.Keys(), want) {
		t.Errorf("holdings %v, want %v among them", holdings.Keys(), want)
	}
}

// More networks than a page holds are read as they are: what the object in the same
// place of the page before had is not in them.
func TestPagesOfNetworks(t *testing.T) {
	t.Parallel()
	env := apitest.New(t) // alone, so that the pages are these networks'
	conn, ns := connect(t, env), env.Namespace(t)
	want := map[claims.Key]client.Object{}
	for i := range listPageSize + 50 {
		for _, kind := range kube.NetworkKinds() {
			obj := shaped(t, kind, ns, i)
			if err := env.Client.Create(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
			want[networkKey(kind, obj)] = obj
		}
	}
	count := 0
	n := NewNetworkCache(conn, logr.Discard(), NetworkCacheOptions{OnRead: func(obj client.Object, _ *network.Network, _ error) {
		count++
		kind, _ := kube.NetworkKindOf(obj)
		// An object of a list has no kind of its own.
		if diff := cmp.Diff(want[networkKey(kind, obj)], obj, cmpopts.IgnoreTypes(metav1.TypeMeta{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s %s: -stored +read\n%s", kind, obj.GetName(), diff)
		}
	}})
	for what, read := range map[string]func(context.Context) error{"prime": n.loadAll, "reread": n.ReadAll} {
		count = 0
		if err := read(t.Context()); err != nil || count != len(want) {
			t.Errorf("%s: %v, %d networks, want %d", what, err, count, len(want))
		}
	}
}

// shaped is a network of one of three shapes, which differ at a distance of a page.
func shaped(t *testing.T, kind, ns string, i int) client.Object {
	t.Helper()
	obj, err := kube.NewNetwork(kind)
	if err != nil {
		t.Fatal(err)
	}
	text := []string{
		`{metadata: {labels: {a: b}, annotations: {c: d}}, spec: {NetworkType: ipvlan, AllowedTenants: [x],
		  Options: {host_device: ens4, vlan: 5, cidr: 10.0.0.0/24, routes: {10.1.0.0/16: 10.0.0.1}, mtu: 1400}}}`,
		`{spec: {NetworkType: flannel}}`,
		`{metadata: {finalizers: [example.com/a]}, spec: {NetworkType: sriov, Options: {device_pool: x/y, net6: "fd00::/64"}}}`,
	}[i%3]
	if kind != v1.KindClusterNetwork {
		text = strings.Replace(text, "AllowedTenants: [x],", "", 1)
	}
	if err := yaml.Unmarshal([]byte(text), obj); err != nil {
		t.Fatal(err)
	}
	if kind != v1.KindClusterNetwork {
		obj.SetNamespace(ns)
	}
	obj.SetName(fmt.Sprintf("net-%04d", i))
	setID(obj, fmt.Sprintf("n%04d", i))
	return obj
}

func setID(obj client.Object, id string) {
	switch o := obj.(type) {
	case *v1.ClusterNetwork:
		o.Spec.NetworkID = id
	case *v1.TenantNetwork:
		o.Spec.NetworkID = id
	case *v1.DanmNet:
		o.Spec.NetworkID = id
	}
}
