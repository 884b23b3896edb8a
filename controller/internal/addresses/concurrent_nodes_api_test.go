// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package addresses

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// worker is a node daemon that attaches and detaches Pods.
type worker struct {
	*allocator.Allocator
	f         *fixture
	net       *network.Network
	node      string
	namespace string
	users     *sync.Map // netip.Addr → node
}

// pod claims an address, creates its DanmEp, and releases both, in the order of the design.
func (w *worker) pod(ctx context.Context) error {
	key := network.KeyOf(w.net)
	a, _, err := w.Claim(ctx, w.net, allocator.AddressRequest{Dynamic: true}, allocator.AddressRequest{})
	if err != nil {
		return fmt.Errorf("claim on %s: %w", w.node, err)
	}
	if other, twice := w.users.LoadOrStore(a, w.node); twice {
		return fmt.Errorf("%s got %s, which %v has", w.node, a, other)
	}
	ep := &v1.DanmEp{
		ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("ep"), Namespace: w.namespace},
		Spec: v1.DanmEpSpec{
			NetworkName: w.net.Ref.Name, NetworkUID: w.net.UID, APIType: w.net.Ref.Kind, EndpointID: "e", CID: "c", Pod: "p",
			Host: w.node, Interface: v1.DanmEpInterface{Name: "eth0", Address: netip.PrefixFrom(a, 24).String()},
		},
	}
	if err := w.f.env.Client.Create(ctx, ep); err != nil {
		return fmt.Errorf("create DanmEp of %s: %w", a, err)
	}
	w.MarkPublished(key, ep.Name, a, netip.Addr{})
	if err := w.ReturnToEntry(ctx, key, ep.Name, a, netip.Addr{}); err != nil {
		return fmt.Errorf("return %s: %w", a, err)
	}
	if err := w.f.env.Client.Delete(ctx, ep); err != nil {
		return fmt.Errorf("delete DanmEp of %s: %w", a, err)
	}
	w.users.Delete(a)
	return w.Free(ctx, key, ep.Name, a, netip.Addr{})
}

// A controller that suspects every network all the time has nothing to correct while nodes claim
// and release: each of their steps leaves every bit covered, and every address with one owner.
func TestNothingIsWrongWhileNodesWork(t *testing.T) {
	const nodes, each, pods = 3, 3, 15
	env := apitest.New(t) // alone, since the drift of all networks is counted
	f := startWith(t, env, func(cfg *Config) {
		cfg.SweepInterval, cfg.MinInterval = 30*time.Millisecond, 30*time.Millisecond
		cfg.NeedsRepair = func(*status.Object, []status.Endpoint) (bool, error) { return true, nil }
	})
	cn := f.network(nil)
	net, err := network.FromObject(f.get(t.Context(), cn))
	if err != nil {
		t.Fatal(err)
	}
	ns, users := env.Namespace(t), &sync.Map{}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for i := range nodes {
		node := f.node(fmt.Sprint("node-", i))
		a := allocator.New(kube.NewStore(env.Client), allocator.Config{
			Node: node.Name, NodeUID: string(node.UID), Incarnation: 1, Cooldown: 50 * time.Millisecond, WarmPoolIdleTimeout: time.Second, NodeCount: func() int { return nodes },
		})
		t.Cleanup(a.Close)
		w := &worker{Allocator: a, f: f, net: net, node: node.Name, namespace: ns, users: users}
		for range each {
			all.Go(func() {
				for done := 0; done < pods; done++ {
					if err := w.pod(ctx); errors.Is(err, allocator.ErrExhausted) {
						done-- // six addresses for nine workers: kubelet would try again
					} else if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	want := "# HELP patchbay_ipam_drift_total Wrong bits of networks' bitmaps that were corrected, by kind: freed bits had no owner, marked bits were clear though the address was in use. Investigate values above zero.\n" +
		"# TYPE patchbay_ipam_drift_total counter\npatchbay_ipam_drift_total{kind=\"freed\"} 0\npatchbay_ipam_drift_total{kind=\"marked\"} 0\n"
	if err := testutil.GatherAndCompare(f.metrics, strings.NewReader(want), "patchbay_ipam_drift_total"); err != nil {
		t.Errorf("bits had no owner for a moment: %v", err)
	}
	if n, err := testutil.GatherAndCount(f.metrics, "patchbay_address_conflicts"); n != 0 || err != nil {
		t.Errorf("%d networks have conflicts, %v", n, err)
	}
	if events := f.duplicates(t.Context()); len(events) > 0 {
		t.Errorf("addresses had two owners for a moment: %s", events[0].Message)
	}
}
