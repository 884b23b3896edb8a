// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package cluster

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/netwatcher"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// What happened to a node's links is seen with kubectl describe nodenetwork, which
// asks for Events by the object's UID.
func TestLinkEventsAreOnTheNodeNetwork(t *testing.T) {
	env := apitest.New(t)
	ctx, name := logged(t), apitest.Name("node")
	if err := env.Client.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
	conn, err := Connect(env.ConfigAs(apitest.NodeDaemon(name)), name)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := WatchNodeNetworks(ctx, conn, func() {})
	if err != nil {
		t.Fatal(err)
	}
	start(ctx, t, conn.Cache.Start)
	if err := nodes.WriteStatus(ctx, v1.NodeNetworkStatus{}); err != nil {
		t.Fatal(err)
	}
	own := &v1.NodeNetwork{}
	if err := env.Client.Get(ctx, client.ObjectKey{Name: name}, own); err != nil {
		t.Fatal(err)
	}
	wait(t, "the own object to be cached", func(ctx context.Context) error {
		if uid := nodes.ownUID(ctx); uid != own.UID {
			return fmt.Errorf("UID %q", uid)
		}
		return nil
	})
	events, err := NewEvents(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	events.ReportLinkEvent(ctx, nodes, netwatcher.LinkEvent{Reason: netwatcher.ReasonLinkFailed, Warning: true, Message: "a.5: ens9: NIC not found on this node"})
	wait(t, "the Event", func(ctx context.Context) error {
		var list corev1.EventList
		if err := env.Client.List(ctx, &list); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.InvolvedObject.UID == own.UID && e.Type == corev1.EventTypeWarning && e.Reason == netwatcher.ReasonLinkFailed && e.Source.Host == name {
				return nil
			}
		}
		return fmt.Errorf("not among %d", len(list.Items))
	})
}

// Others' links, and what a heartbeat would change, wake nobody.
func TestSameNICs(t *testing.T) {
	t.Parallel()
	at := func(address string, links int) *v1.NodeNetwork {
		nn := &v1.NodeNetwork{Status: v1.NodeNetworkStatus{NICs: []v1.NIC{{Name: "ens4", Addresses: []string{address}}}}}
		nn.Status.Links = make([]v1.HostLink, links)
		return nn
	}
	other := at("a", 1)
	other.UID = "another"
	for reason, tc := range map[string]struct {
		now  any
		same bool
	}{
		"links only":     {at("a", 7), true},
		"an address":     {at("b", 1), false},
		"another object": {other, false},
		"no object":      {nil, false},
	} {
		if got := sameNICs(at("a", 1), tc.now); got != tc.same {
			t.Errorf("%s: same is %v", reason, got)
		}
	}
}
