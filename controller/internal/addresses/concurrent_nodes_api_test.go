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
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// worker is a node's daemon that attaches and detaches Pods.
type worker struct {
	*claims.Allocator
	f         *fixture
	net       *network.Network
	node      string
	namespace string
	users     *sync.Map // netip.Addr → node
}

// pod claims an address, makes its DanmEp, and gives all of it back, in the order of
// the design.
func (w *worker) pod(ctx context.Context) error {
	key := claims.KeyOf(w.net)
	a, _, err := w.Claim(ctx, w.net, claims.Want{Dynamic: true}, claims.Want{})
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
	w.Published(key, ep.Name, a, netip.Addr{})
	if err := w.Return(ctx, key, ep.Name, a, netip.Addr{}); err != nil {
		return fmt.Errorf("return %s: %w", a, err)
	}
	if err := w.f.env.Client.Delete(ctx, ep); err != nil {
		return fmt.Errorf("delete DanmEp of %s: %w", a, err)
	}
	w.users.Delete(a)
	return w.Free(ctx, key, ep.Name, a, netip.Addr{})
}

// A controller that suspects every network all the time finds nothing to correct while
// nodes are at work: each step of theirs leaves every bit covered, and every address with
// one owner.
func TestNothingIsWrongWhileNodesWork(t *testing.T) {
	const nodes, each, pods = 3, 3, 15
	env := apitest.New(t) // alone, since the drift of all networks is counted
	f := startWith(t, env, func(cfg *Config) {
		cfg.SweepInterval, cfg.MinInterval = 30*time.Millisecond, 30*time.Millisecond
		cfg.NeedsRepair = func(*claims.Object, []claims.Endpoint) (bool, error) { return true, nil }
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
		a := claims.New(kube.NewStore(env.Client), claims.Config{
			Node: node.Name, NodeUID: string(node.UID), Life: 1, Cool: 50 * time.Millisecond, Rest: time.Second, Nodes: func() int { return nodes },
		})
		t.Cleanup(a.Close)
		w := &worker{Allocator: a, f: f, net: net, node: node.Name, namespace: ns, users: users}
		for range each {
			all.Go(func() {
				for done := 0; done < pods; done++ {
					if err := w.pod(ctx); errors.Is(err, claims.ErrExhausted) {
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
	want := "# HELP patchbay_ipam_drift_total Bits of networks' bitmaps that were wrong, by kind: freed had nobody who covers them, marked were clear and in use. Above zero is worth a look.\n" +
		"# TYPE patchbay_ipam_drift_total counter\npatchbay_ipam_drift_total{kind=\"freed\"} 0\npatchbay_ipam_drift_total{kind=\"marked\"} 0\n"
	if err := testutil.GatherAndCompare(f.metrics, strings.NewReader(want), "patchbay_ipam_drift_total"); err != nil {
		t.Errorf("bits were nobody's for a moment: %v", err)
	}
	if n, err := testutil.GatherAndCount(f.metrics, "patchbay_address_conflicts"); n != 0 || err != nil {
		t.Errorf("%d networks have conflicts, %v", n, err)
	}
	if events := f.duplicates(t.Context()); len(events) > 0 {
		t.Errorf("addresses had two owners for a moment: %s", events[0].Message)
	}
}
