// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package cluster

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// collector notes what is collected.
type collector struct {
	keys []claims.Key
	// freed are the owners of addresses, in any order.
	freed map[string]bool
	err   error
}

func (c *collector) Free(_ context.Context, _ claims.Key, owner string, _, _ netip.Addr) error {
	c.freed[owner] = true
	return nil
}

func (c *collector) Forget(claims.Key, string, netip.Addr, netip.Addr) {}

func (c *collector) Collect(_ context.Context, key claims.Key) (int64, error) {
	c.keys = append(c.keys, key)
	return 0, c.err
}

// Settle implements Settler.
func (c *collector) Settle(_ context.Context, keys ...claims.Key) error {
	c.keys = append(c.keys, keys...)
	return c.err
}

func TestOrphansAreRemoved(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	ns := env.Namespace(t)
	host := apitest.Name("node")
	conn := connect(t, env)
	add := func(host, netns string, change func(*v1.DanmEp)) *v1.DanmEp {
		rec := sandbox(ns)
		rec.Netns = netns
		ep := newDanmEp(rec, &rec.Interfaces[0], NodeIdentity{Name: host})
		change(ep)
		if err := env.Client.Create(t.Context(), ep); err != nil {
			t.Fatal(err)
		}
		return ep
	}
	nothing := func(*v1.DanmEp) {}
	cases := map[string]struct {
		reason string
		ep     *v1.DanmEp
		stays  bool
	}{
		"Gone":    {reason: "no record names it, and its namespace is gone", ep: add(host, "/gone", nothing)},
		"Alive":   {reason: "the sandbox runs although the journal was lost", ep: add(host, "/alive", nothing), stays: true},
		"Unknown": {reason: "its namespace is not recorded", ep: add(host, "", nothing), stays: true},
		"Journal": {reason: "the journal answers for it", ep: add(host, "/gone", nothing), stays: true},
		"Moved": {reason: "the journal answers for it under the name that it had", stays: true,
			ep: add(host, "/gone", func(ep *v1.DanmEp) {
				ep.Annotations = map[string]string{v1.MovedFromAnnotation: ns + "/before"}
			})},
		"MovedGone": {reason: "no record names the DanmEp that it was before",
			ep: add(host, "/gone", func(ep *v1.DanmEp) {
				ep.Annotations = map[string]string{v1.MovedFromAnnotation: ns + "/unknown"}
			})},
		"OtherNode": {reason: "another node's daemon decides", ep: add(node, "/gone", nothing), stays: true},
		"Foreign": {reason: "DANM wrote it, without our finalizer", stays: true,
			ep: add(host, "/gone", func(ep *v1.DanmEp) { ep.Finalizers = nil })},
		"Terminating": {reason: "somebody deleted it before", ep: add(host, "/gone", nothing)},
	}
	if err := env.Client.Delete(t.Context(), cases["Terminating"].ep); err != nil {
		t.Fatal(err)
	}
	collected := &collector{freed: map[string]bool{}}
	o := &DanmEpGC{
		// The policies let a daemon write its own node's only.
		Client: env.As(t, apitest.NodeDaemon(host)), Node: host, Addresses: collected,
		NetnsExists: func(path string) (bool, error) { return path == "/alive", nil },
		Records: func() ([]*attach.Record, error) {
			return []*attach.Record{{PodNamespace: ns, Interfaces: []attach.Interface{{EndpointName: cases["Journal"].ep.Name}, {EndpointName: "before"}}}}, nil
		},
	}
	if err := o.Sweep(logged(t)); err != nil {
		t.Fatal(err)
	}
	for name, tc := range cases {
		err := conn.Direct.Get(t.Context(), client.ObjectKeyFromObject(tc.ep), &v1.DanmEp{})
		if stays := err == nil; stays != tc.stays {
			t.Errorf("%s: %s: stays is %t, want %t (%v)", name, tc.reason, stays, tc.stays, err)
		}
	}
	freed := map[string]bool{}
	for _, tc := range cases {
		if !tc.stays {
			freed[tc.ep.Name] = true
		}
	}
	if diff := cmp.Diff(freed, collected.freed); diff != "" {
		t.Errorf("whose addresses were freed (-want +got):\n%s", diff)
	}
	want := []claims.Key{{Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "n"}, UID: "net-uid"}}
	if diff := cmp.Diff(want, collected.keys); diff != "" {
		t.Errorf("networks that were collected (-want +got):\n%s", diff)
	}
}

// A journal that cannot be read knows of every DanmEp there may be.
func TestUnreadableJournalStopsTheSweep(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	ns, host := env.Namespace(t), apitest.Name("node")
	rec := sandbox(ns)
	ep := newDanmEp(rec, &rec.Interfaces[0], NodeIdentity{Name: host})
	if err := env.Client.Create(t.Context(), ep); err != nil {
		t.Fatal(err)
	}
	damaged := errors.New("damaged")
	o := &DanmEpGC{
		Client: env.Client, Node: host, Addresses: &collector{},
		NetnsExists: func(string) (bool, error) { return false, nil },
		Records:     func() ([]*attach.Record, error) { return nil, damaged },
	}
	if err := o.Sweep(logged(t)); !errors.Is(err, damaged) {
		t.Errorf("got error %v, want the journal's", err)
	}
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(ep), &v1.DanmEp{}); err != nil {
		t.Errorf("the DanmEp: %v", err)
	}
}

func TestFinalizersSettleOnlyNetworksInDeletion(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	protect := func(cn *v1.ClusterNetwork) *v1.ClusterNetwork {
		cn.Finalizers = []string{v1.InUseFinalizer}
		if err := env.Client.Update(t.Context(), cn); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cn.Finalizers, cn.ResourceVersion = nil, ""
			_ = env.Client.Patch(context.Background(), cn, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
		})
		return cn
	}
	deleting, living := protect(clusterNetwork(t, env)), protect(clusterNetwork(t, env))
	if err := env.Client.Delete(t.Context(), deleting, &client.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &deleting.UID}}); err != nil {
		t.Fatal(err)
	}
	collected := &collector{}
	d := NewFinalizers(env.Client, collected)
	if err := d.sync(t.Context(), ref(living)); err != nil || len(collected.keys) > 0 {
		t.Errorf("a network that stays was given back: %v, %v", collected.keys, err)
	}
	for range 2 { // its Pods' addresses go back with their Pods: once is enough
		if err := d.sync(t.Context(), ref(deleting)); err != nil {
			t.Errorf("give back: %v", err)
		}
	}
	want := []claims.Key{{Ref: ref(deleting), UID: string(deleting.UID)}}
	if diff := cmp.Diff(want, collected.keys); diff != "" {
		t.Errorf("gave back (-want +got):\n%s", diff)
	}
	if err := d.sync(t.Context(), network.Ref{Kind: v1.KindClusterNetwork, Name: "nope"}); err != nil {
		t.Errorf("a network that is gone: %v", err)
	}
}
