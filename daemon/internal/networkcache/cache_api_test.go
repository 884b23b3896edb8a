// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package networkcache

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
	"github.com/patchbay-cni/patchbay/daemon/internal/kubetest"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
)

// startCache returns a running Cache with all networks; reads counts the objects read in full.
func startCache(t *testing.T, env *apitest.Env) (c *Cache, reads *atomic.Int64) {
	t.Helper()
	ctx, conn := kubetest.LogContext(t), kubetest.Connect(t, env)
	reads = &atomic.Int64{}
	c = New(conn, logr.FromContextOrDiscard(ctx), Options{
		OnRead: func(client.Object, *network.Network, error) { reads.Add(1) },
	})
	kubetest.Start(ctx, t, conn.Cache.Start)
	kubetest.Start(ctx, t, c.Run)
	kubetest.Eventually(t, "networks to be read", func(context.Context) error {
		if !c.Ready() {
			return errors.New("not ready")
		}
		return nil
	})
	return c, reads
}

// Get finds a network that the watch has not delivered yet.
func TestNewNetworkIsFound(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	c, _ := startCache(t, env)
	for range 20 {
		cn := kubetest.ClusterNetwork(t, env)
		net, err := c.Get(t.Context(), kubetest.Ref(cn))
		if err != nil {
			t.Fatal(err)
		}
		if net.UID != string(cn.UID) {
			t.Errorf("UID %s, want %s", net.UID, cn.UID)
		}
	}
	if _, err := c.Get(t.Context(), network.Ref{Kind: v1.KindClusterNetwork, Name: "nope"}); !errors.Is(err, attach.ErrNotFound) {
		t.Errorf("missing network: got error %v, want ErrNotFound", err)
	}
}

// A daemon that has just started must not give a Pod the file of a network for other namespaces: until its cache is
// filled, it asks the API server.
func TestForbiddenIDsBeforeTheCacheIsFilled(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	cn := kubetest.ClusterNetwork(t, env)
	cn.Spec.NetworkType, cn.Spec.Options, cn.Spec.AllowedTenants = "bridge", v1.NetworkOptions{}, []string{"infra"}
	if err := env.Client.Update(t.Context(), cn); err != nil {
		t.Fatal(err)
	}
	c := New(kubetest.Connect(t, env), logr.Discard(), Options{})
	for namespace, want := range map[string]bool{"ns": true, "infra": false, "": true} {
		if got, err := c.ForbiddenIDs(t.Context(), namespace); err != nil || got[cn.Spec.NetworkID] != want {
			t.Errorf("namespace %q: got %v and error %v, want %q forbidden: %t", namespace, got, err, cn.Spec.NetworkID, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := c.ForbiddenIDs(ctx, "ns"); !errors.Is(err, attach.ErrTryAgain) {
		t.Errorf("without an answer: got %v and error %v, want %v", got, err, attach.ErrTryAgain)
	}
}

// A model follows the spec of its network, and goes with it.
func TestModelFollowsSpec(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	c, _ := startCache(t, env)
	cn := kubetest.ClusterNetwork(t, env)
	cn.Spec.Options.MTU = 1400
	if err := env.Client.Update(t.Context(), cn); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "the model to have the new MTU", func(ctx context.Context) error {
		if net, err := c.Get(ctx, kubetest.Ref(cn)); err != nil || net.MTU != 1400 {
			return fmt.Errorf("got %+v, %w", net, err)
		}
		return nil
	})
	kubetest.Eventually(t, "the cache to have the network", func(context.Context) error { // Get may have read it before
		if net := c.Known(kubetest.Ref(cn)); net == nil || net.UID != string(cn.UID) {
			return fmt.Errorf("Known: got %+v", net)
		}
		return nil
	})
	if err := env.Client.Delete(t.Context(), cn); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "the model to be deleted", func(ctx context.Context) error {
		if net := c.Known(kubetest.Ref(cn)); net != nil {
			return errors.New("still known")
		}
		for _, net := range c.List() {
			if net.Ref == kubetest.Ref(cn) {
				return errors.New("still listed")
			}
		}
		if _, err := c.Get(ctx, kubetest.Ref(cn)); !errors.Is(err, attach.ErrNotFound) {
			return fmt.Errorf("got error %w, want ErrNotFound", err)
		}
		return nil
	})
}

// A write of the status must not make any node read the object.
func TestStatusWritesAreNotRead(t *testing.T) {
	t.Parallel()
	env := apitest.New(t) // an environment of its own, because the networks of other tests are read too
	c, reads := startCache(t, env)
	store := kube.NewStore(c.conn.Direct)
	cn := kubetest.ClusterNetwork(t, env)
	kubetest.Eventually(t, "the network to be cached", func(context.Context) error {
		if _, ok := c.models.get(kubetest.Ref(cn)); !ok {
			return errors.New("no model")
		}
		return nil
	})
	before := reads.Load()
	o, err := store.Get(t.Context(), kubetest.Ref(cn))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		o.IPAM = &v1.IPAMStatus{Held: map[string]v1.HeldAddresses{kubetest.Node: {UID: "u", Seq: int64(i)}}}
		if o, err = store.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	meta := kube.PartialMetadata(v1.KindClusterNetwork)
	kubetest.Eventually(t, "the metadata of the last write", func(ctx context.Context) error {
		if err := c.conn.Cache.Get(ctx, kube.ObjectKey(kubetest.Ref(cn)), meta); err != nil || meta.ResourceVersion != o.ResourceVersion {
			return fmt.Errorf("resourceVersion %s, want %s: %w", meta.ResourceVersion, o.ResourceVersion, err)
		}
		return nil
	})
	if _, err := c.Get(t.Context(), kubetest.Ref(cn)); err != nil {
		t.Fatal(err)
	}
	if got := reads.Load() - before; got != 0 {
		t.Errorf("20 writes of status made %d reads of the object, want 0", got)
	}
}

// Get returns known networks while the API server is unreachable, and the watch resumes after it.
func TestCacheWithoutAPIServer(t *testing.T) {
	t.Parallel()
	env := apitest.New(t)
	c, _ := startCache(t, env)
	cn := kubetest.ClusterNetwork(t, env)
	kubetest.Eventually(t, "the network to be cached", func(context.Context) error {
		if _, ok := c.models.get(kubetest.Ref(cn)); !ok {
			return errors.New("no model")
		}
		return nil
	})
	if err := env.ControlPlane.Kill(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), kubetest.Ref(cn)); err != nil {
		t.Errorf("a known network while the API server is down: %v", err)
	}
	if _, err := c.Get(t.Context(), network.Ref{Kind: v1.KindClusterNetwork, Name: "nope"}); !errors.Is(err, attach.ErrTryAgain) {
		t.Errorf("an unknown network while the API server is down: got error %v, want ErrTryAgain", err)
	}
	if err := env.ControlPlane.StartPart(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	later := kubetest.ClusterNetwork(t, env)
	kubetest.Eventually(t, "the watch to resume", func(context.Context) error {
		if _, ok := c.models.get(kubetest.Ref(later)); !ok {
			return errors.New("no model")
		}
		return nil
	})
}

// ReadAll shows a change of the status alone, such as an entry from a late write of an earlier
// daemon. Such a change has no new generation.
func TestReadAllShowsStatus(t *testing.T) {
	t.Parallel()
	env, ctx := apitest.Start(t), kubetest.LogContext(t)
	conn, entries := kubetest.Connect(t, env), NewNodeEntries(kubetest.Node)
	c := New(conn, logr.FromContextOrDiscard(ctx), Options{OnRead: entries.Observe})
	kubetest.Start(ctx, t, conn.Cache.Start)
	kubetest.Start(ctx, t, c.Run)
	cn := kubetest.ClusterNetwork(t, env)
	kubetest.Eventually(t, "the network to be read", func(context.Context) error {
		if _, known := c.models.get(kubetest.Ref(cn)); !known || !c.Ready() {
			return errors.New("not yet")
		}
		return nil
	})
	cn.Status.IPAM = &v1.IPAMStatus{Held: map[string]v1.HeldAddresses{kubetest.Node: {UID: "u", V4: "10.9.0.7"}}}
	if err := env.Client.Status().Update(t.Context(), cn); err != nil {
		t.Fatal(err)
	}
	if err := c.ReadAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := network.Key{Ref: kubetest.Ref(cn), UID: string(cn.UID)}
	if !slices.Contains(entries.Keys(), want) {
		t.Errorf("got entries %v, want %v among them", entries.Keys(), want)
	}
}

// Networks on several pages are read unchanged. No field of an object comes from the object in the
// same position of the previous page.
func TestReadsSeveralPages(t *testing.T) {
	t.Parallel()
	env := apitest.New(t) // an environment of its own, so that the pages have only these networks
	conn, ns := kubetest.Connect(t, env), env.Namespace(t)
	want := map[network.Key]client.Object{}
	for i := range listPageSize + 50 {
		for _, kind := range kube.NetworkKinds() {
			obj := sampleNetwork(t, kind, ns, i)
			if err := env.Client.Create(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
			want[networkKey(kind, obj)] = obj
		}
	}
	count := 0
	c := New(conn, logr.Discard(), Options{OnRead: func(obj client.Object, _ *network.Network, _ error) {
		count++
		kind, _ := kube.NetworkKindOf(obj)
		// An item of a list has no TypeMeta.
		if diff := cmp.Diff(want[networkKey(kind, obj)], obj, cmpopts.IgnoreTypes(metav1.TypeMeta{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s %s: -stored +read\n%s", kind, obj.GetName(), diff)
		}
	}})
	for name, read := range map[string]func(context.Context) error{"loadAll": c.loadAll, "ReadAll": c.ReadAll} {
		count = 0
		if err := read(t.Context()); err != nil || count != len(want) {
			t.Errorf("%s: got error %v and %d networks, want %d", name, err, count, len(want))
		}
	}
}

// sampleNetwork returns a network in one of three shapes. Networks that are a page apart have
// different shapes.
func sampleNetwork(t *testing.T, kind, ns string, i int) client.Object {
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

// setID sets the NetworkID of a network.
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
