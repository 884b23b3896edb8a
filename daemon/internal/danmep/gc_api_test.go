// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package danmep

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubetest"
	"github.com/patchbay-cni/patchbay/daemon/internal/nodestate"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// recordingCollector records its calls.
type recordingCollector struct {
	keys []network.Key
	// freed has the owners of the freed addresses.
	freed map[string]bool
	err   error
}

func (c *recordingCollector) Free(_ context.Context, _ network.Key, owner string, _, _ netip.Addr) error {
	c.freed[owner] = true
	return nil
}

func (c *recordingCollector) Forget(network.Key, string, netip.Addr, netip.Addr) {}

func (c *recordingCollector) CollectGarbage(_ context.Context, key network.Key) (int64, error) {
	c.keys = append(c.keys, key)
	return 0, c.err
}

// GC deletes the orphans of its node whose network namespace is gone, and frees their addresses.
func TestOrphansAreRemoved(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	ns := env.Namespace(t)
	own := apitest.Name("node")
	conn := kubetest.Connect(t, env)
	add := func(node, netns string, change func(*v1.DanmEp)) *v1.DanmEp {
		rec := newRecord(ns)
		rec.Netns = netns
		ep := newDanmEp(rec, &rec.Interfaces[0], nodestate.Identity{Name: node})
		change(ep)
		if err := env.Client.Create(t.Context(), ep); err != nil {
			t.Fatal(err)
		}
		return ep
	}
	unchanged := func(*v1.DanmEp) {}
	cases := map[string]struct {
		reason string
		ep     *v1.DanmEp
		stays  bool
	}{
		"Gone":    {reason: "No record has it, and its network namespace is gone.", ep: add(own, "/gone", unchanged)},
		"Running": {reason: "The sandbox runs although the journal was lost.", ep: add(own, "/running", unchanged), stays: true},
		"Unknown": {reason: "It has no network namespace, so that its sandbox may run.", ep: add(own, "", unchanged), stays: true},
		"Journal": {reason: "A record of the journal has it.", ep: add(own, "/gone", unchanged), stays: true},
		"Moved": {reason: "A record has it under the name before the move.", stays: true,
			ep: add(own, "/gone", func(ep *v1.DanmEp) {
				ep.Annotations = map[string]string{v1.MovedFromAnnotation: ns + "/before"}
			})},
		"MovedGone": {reason: "No record has it under the name before the move.",
			ep: add(own, "/gone", func(ep *v1.DanmEp) {
				ep.Annotations = map[string]string{v1.MovedFromAnnotation: ns + "/unknown"}
			})},
		"OtherNode": {reason: "The daemon of its node decides.", ep: add(kubetest.Node, "/gone", unchanged), stays: true},
		"Foreign": {reason: "DANM created it, without the finalizer of the node.", stays: true,
			ep: add(own, "/gone", func(ep *v1.DanmEp) { ep.Finalizers = nil })},
		"Released": {reason: "A forced uninstallation has removed its finalizer.",
			ep: add(own, "/gone", func(ep *v1.DanmEp) { ep.Finalizers, ep.Spec.HostUID = nil, "node-uid" })},
		"OtherIncarnation": {reason: "The controller removes it.", stays: true,
			ep: add(own, "/gone", func(ep *v1.DanmEp) { ep.Finalizers, ep.Spec.HostUID = nil, "other-uid" })},
		"Terminating": {reason: "Another client deleted it before.", ep: add(own, "/gone", unchanged)},
	}
	if err := env.Client.Delete(t.Context(), cases["Terminating"].ep); err != nil {
		t.Fatal(err)
	}
	collector := &recordingCollector{freed: map[string]bool{}}
	gc := &GC{
		// Admission policies let a daemon write only the DanmEps of its own node.
		Client: env.As(t, apitest.NodeDaemon(own)), Node: own, Addresses: collector,
		Identity:    func() (nodestate.Identity, bool) { return nodestate.Identity{Name: own, UID: "node-uid"}, true },
		NetnsExists: func(path string) (bool, error) { return path == "/running", nil },
		Records: func() ([]*attach.Record, error) {
			return []*attach.Record{{PodNamespace: ns, Interfaces: []attach.Interface{{EndpointName: cases["Journal"].ep.Name}, {EndpointName: "before"}}}}, nil
		},
	}
	if err := gc.Sweep(kubetest.LogContext(t)); err != nil {
		t.Fatal(err)
	}
	for name, tc := range cases {
		err := conn.Direct.Get(t.Context(), client.ObjectKeyFromObject(tc.ep), &v1.DanmEp{})
		if stays := err == nil; stays != tc.stays {
			t.Errorf("%s: %s: got stays %t, want %t (%v)", name, tc.reason, stays, tc.stays, err)
		}
	}
	freed := map[string]bool{}
	for _, tc := range cases {
		if !tc.stays {
			freed[tc.ep.Name] = true
		}
	}
	if diff := cmp.Diff(freed, collector.freed); diff != "" {
		t.Errorf("owners of freed addresses (-want +got):\n%s", diff)
	}
	want := []network.Key{{Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "n"}, UID: "net-uid"}}
	if diff := cmp.Diff(want, collector.keys); diff != "" {
		t.Errorf("collected networks (-want +got):\n%s", diff)
	}
}

// A corrupt journal may have a record of any DanmEp, so that GC deletes none.
func TestUnreadableJournalStopsTheSweep(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	ns, own := env.Namespace(t), apitest.Name("node")
	rec := newRecord(ns)
	ep := newDanmEp(rec, &rec.Interfaces[0], nodestate.Identity{Name: own})
	if err := env.Client.Create(t.Context(), ep); err != nil {
		t.Fatal(err)
	}
	corrupt := errors.New("corrupt")
	gc := &GC{
		Client: env.Client, Node: own, Addresses: &recordingCollector{},
		Identity:    func() (nodestate.Identity, bool) { return nodestate.Identity{}, false },
		NetnsExists: func(string) (bool, error) { return false, nil },
		Records:     func() ([]*attach.Record, error) { return nil, corrupt },
	}
	if err := gc.Sweep(kubetest.LogContext(t)); !errors.Is(err, corrupt) {
		t.Errorf("got error %v, want the journal's", err)
	}
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(ep), &v1.DanmEp{}); err != nil {
		t.Errorf("the DanmEp after the sweep: %v", err)
	}
}
