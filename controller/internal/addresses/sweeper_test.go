// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// listedCluster is a fake API server that lists ClusterNetworks and DanmEps, too.
type listedCluster struct {
	*cluster
	networks []v1.ClusterNetwork
	eps      []v1.DanmEp
}

func (c listedCluster) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	switch into := list.(type) {
	case *v1.ClusterNetworkList:
		into.Items = c.networks
	case *v1.DanmEpList:
		for i := range c.eps {
			ref := kube.NetworkKeyOf(&c.eps[i]).Ref.String()
			if want := o.FieldSelector; want == nil || want.String() == byNetwork+"="+ref {
				into.Items = append(into.Items, c.eps[i])
			}
		}
	default:
		return c.cluster.List(ctx, list, opts...)
	}
	return nil
}

// A DanmEp that cannot be read, which an earlier version or DANM wrote, stops no other network's work.
func TestSweepWithUnreadableDanmEp(t *testing.T) {
	t.Parallel()
	b := newBench(false)
	of := func(name string) v1.ClusterNetwork {
		return v1.ClusterNetwork{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u"},
			Spec:       v1.NetworkSpec{NetworkID: name, NetworkType: "macvlan", Options: v1.NetworkOptions{Device: "ens4", CIDR: "10.9.0.0/29"}},
			Status:     v1.NetworkStatus{Pools: []v1.PoolStatus{{Family: "IPv4", Capacity: 6, InUse: 4, Free: 2}}},
		}
	}
	all := listedCluster{cluster: b.cluster, networks: []v1.ClusterNetwork{of("bad"), of("good")}, eps: []v1.DanmEp{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "unreadable"},
		Spec:       v1.DanmEpSpec{NetworkName: "bad", APIType: v1.KindClusterNetwork, Interface: v1.DanmEpInterface{Address: "10.9.0/29"}},
	}}}
	b.Controller.cluster.cached, b.client = all, all
	var queued []string
	s := b.newSweeper(func(_ context.Context, ref network.Ref) { queued = append(queued, ref.Name) })
	if err := s.sweep(t.Context()); err != nil {
		t.Errorf("the sweep returned %v, want no error: the reconciliation of the network returns it", err)
	}
	if diff := cmp.Diff([]string{"bad", "good"}, queued); diff != "" {
		t.Errorf("the networks that are reconciled, -want +got:\n%s", diff)
	}
	if got := testutil.ToFloat64(b.metrics.poolAddresses.WithLabelValues(v1.KindClusterNetwork, "", "bad", "IPv4", "in_use")); got != 4 {
		t.Errorf("the metric has %v addresses in use, want those of status.pools: 4", got)
	}
}

func TestGoneSince(t *testing.T) {
	t.Parallel()
	const grace = 15 * time.Minute
	a, b := incarnation{"a", "1"}, incarnation{"b", "2"}
	type step struct {
		minute   int
		suspects []incarnation
	}
	cases := map[string]struct {
		reason string
		steps  []step
		want   []incarnation
	}{
		"First":       {reason: "A new leader has no memory.", steps: []step{{0, []incarnation{a}}}},
		"Early":       {reason: "A reboot that registers the Node again takes minutes.", steps: []step{{0, []incarnation{a}}, {14, []incarnation{a}}}},
		"Late":        {reason: "The Node was gone for the whole grace period.", steps: []step{{0, []incarnation{a}}, {7, []incarnation{a}}, {15, []incarnation{a}}}, want: []incarnation{a}},
		"Interrupted": {reason: "The Node was back in between, so the machine was not off.", steps: []step{{0, []incarnation{a}}, {10, nil}, {12, []incarnation{a}}, {20, []incarnation{a}}}},
		"Each":        {reason: "Each Node has a grace period of its own.", steps: []step{{0, []incarnation{a}}, {10, []incarnation{a, b}}, {16, []incarnation{a, b}}}, want: []incarnation{a}},
		"SameName":    {reason: "A second incarnation of the name has a grace period of its own.", steps: []step{{0, []incarnation{a}}, {16, []incarnation{{"a", "2"}}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := goneSince{}
			start := time.Now()
			var got []incarnation
			for _, s := range tc.steps {
				suspects := map[incarnation]bool{}
				for _, l := range s.suspects {
					suspects[l] = true
				}
				got = seen.observe(start.Add(time.Duration(s.minute)*time.Minute), grace, suspects)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(incarnation{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
