// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package addresses

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// pools waits until the network's status has these numbers.
func (f *fixture) pools(reason string, cn *v1.ClusterNetwork, want ...v1.PoolStatus) {
	f.Helper()
	f.eventually("status.pools", func(ctx context.Context) error {
		if diff := cmp.Diff(want, f.get(ctx, cn).Status.Pools); diff != "" {
			return fmt.Errorf("%s\npools, -want +got:\n%s", reason, diff)
		}
		return nil
	})
}

// changeSpec changes the spec of a network.
func (f *fixture) changeSpec(cn *v1.ClusterNetwork, change func(*v1.NetworkOptions)) {
	f.Helper()
	f.eventually("a write of spec", func(ctx context.Context) error {
		fresh := f.get(ctx, cn)
		change(&fresh.Spec.Options)
		return f.env.Client.Update(ctx, fresh)
	})
}

// The numbers follow the network from its creation to its last Pod, without a sweep.
func TestPoolsFollowTheNetwork(t *testing.T) {
	env := apitest.Start(t)
	f := startWith(t, env, func(cfg *Config) { cfg.SweepInterval, cfg.PoolInterval = time.Hour, 200*time.Millisecond })
	ns, node := env.Namespace(t), f.node(apitest.Name("node"))
	cn := f.network(nil)
	f.pools("The numbers are known before the first use.", cn, v1.PoolStatus{Family: "IPv4", Capacity: 6, Free: 6})
	ep := f.endpoint(ns, cn, node, "10.9.0.1/29")
	f.write(cn, func(s *v1.NetworkStatus) {
		s.IPAM = &v1.IPAMStatus{V4: bitmap(1, 2, 3), Held: map[string]v1.HeldAddresses{
			node.Name: {UID: string(node.UID), Seq: 1, V4: "10.9.0.2-10.9.0.3", QuarantinedV4: "10.9.0.3"},
		}}
	})
	f.pools("A Pod has one address, a node one, and one is in quarantine.", cn,
		v1.PoolStatus{Family: "IPv4", Capacity: 6, InUse: 1, Warm: 1, Cooldown: 1, Free: 3})
	f.changeSpec(cn, func(o *v1.NetworkOptions) { o.CIDR = "10.9.0.0/28" })
	f.pools("A wider subnet counts before its first claim.", cn,
		v1.PoolStatus{Family: "IPv4", Capacity: 14, InUse: 1, Warm: 1, Cooldown: 1, Free: 11})
	ep.Finalizers = nil
	if err := env.Client.Update(t.Context(), ep); err != nil {
		t.Fatal(err)
	}
	if err := env.Client.Delete(t.Context(), ep); err != nil {
		t.Fatal(err)
	}
	f.pools("The Pod is gone.", cn, v1.PoolStatus{Family: "IPv4", Capacity: 14, Warm: 1, Cooldown: 1, Free: 12})
}

// The columns of kubectl show the first family, which is IPv4 if the network has both.
func TestPoolsAreIPv4First(t *testing.T) {
	env := apitest.Start(t)
	f := start(t, env)
	cn := f.network(nil)
	v4, v6 := v1.PoolStatus{Family: "IPv4", Capacity: 6, Free: 6}, v1.PoolStatus{Family: "IPv6", Capacity: 254, Free: 254, Reserved: 2}
	f.changeSpec(cn, func(o *v1.NetworkOptions) { o.CIDR, o.Net6 = "", "fd00::/120" })
	f.pools("IPv6 alone is first.", cn, v6)
	f.changeSpec(cn, func(o *v1.NetworkOptions) { o.CIDR = "10.9.0.0/29" })
	f.pools("IPv4 comes later, and is first.", cn, v4, v6)
	f.changeSpec(cn, func(o *v1.NetworkOptions) { o.Net6 = "" })
	f.pools("IPv6 is gone.", cn, v4)
}

// A first claim by a daemon of this version finds no number of bits in the bitmap of an earlier one,
// whose status.allocated the API server has dropped. The numbers of the pool do not depend on it.
func TestPoolsOfAnEarlierVersion(t *testing.T) {
	env := apitest.Start(t)
	f := start(t, env)
	node := f.node(apitest.Name("node"))
	earlier := bitmap(1, 2)
	earlier.Allocated = 0
	cn := f.network(&v1.IPAMStatus{V4: earlier, Held: map[string]v1.HeldAddresses{node.Name: {UID: string(node.UID), Seq: 1, V4: "10.9.0.1-10.9.0.2"}}})
	f.pools("Two addresses are warm.", cn, v1.PoolStatus{Family: "IPv4", Capacity: 6, Warm: 2, Free: 4})
	f.condition(cn, v1.ConditionAddressesAvailable, metav1.ConditionTrue, v1.ReasonAddressesSufficient, "2 of 6 IPv4")
}

// A Pod that comes and goes within the interval causes no write, which claims would conflict with.
func TestPoolsWaitForFurtherChanges(t *testing.T) {
	env := apitest.Start(t)
	f := startWith(t, env, func(cfg *Config) { cfg.PoolInterval = time.Hour })
	ns, node := env.Namespace(t), f.node(apitest.Name("node"))
	cn := f.network(nil)
	f.pools("The first numbers do not wait.", cn, v1.PoolStatus{Family: "IPv4", Capacity: 6, Free: 6})
	f.endpoint(ns, cn, node, "10.9.0.1/29")
	time.Sleep(2 * time.Second) // ten sweeps
	if got := f.get(t.Context(), cn).Status.Pools[0].InUse; got != 0 {
		t.Errorf("%d addresses in use were written before the interval", got)
	}
}
