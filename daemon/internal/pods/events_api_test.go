// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package pods

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubetest"
	"github.com/patchbay-cni/patchbay/daemon/internal/nodestate"
	"github.com/patchbay-cni/patchbay/netwatcher"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// `kubectl describe nodenetwork` selects Events by the object's UID, so that an Event about links
// must carry it.
func TestLinkEventsAreOnTheNodeNetwork(t *testing.T) {
	env := apitest.New(t)
	ctx, name := kubetest.LogContext(t), apitest.Name("node")
	if err := env.Client.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
	conn := kubetest.ConnectAs(t, env, name)
	nodes, err := nodestate.WatchNodeNetworks(ctx, conn, func() {})
	if err != nil {
		t.Fatal(err)
	}
	kubetest.Start(ctx, t, conn.Cache.Start)
	if err := nodes.WriteStatus(ctx, v1.NodeNetworkStatus{}); err != nil {
		t.Fatal(err)
	}
	own := &v1.NodeNetwork{}
	if err := env.Client.Get(ctx, client.ObjectKey{Name: name}, own); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "the own object to be cached", func(ctx context.Context) error {
		if ref := nodes.Reference(ctx); ref.UID != own.UID {
			return fmt.Errorf("UID %q", ref.UID)
		}
		return nil
	})
	events, err := NewEventRecorder(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	events.ReportLinkEvent(nodes.Reference(ctx), netwatcher.LinkEvent{Reason: "LinkFailed", Warning: true, Message: "a.5: ens9: NIC not found on this node"})
	kubetest.Eventually(t, "the Event", func(ctx context.Context) error {
		var list corev1.EventList
		if err := env.Client.List(ctx, &list); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.InvolvedObject.UID == own.UID && e.Type == corev1.EventTypeWarning && e.Reason == "LinkFailed" && e.Source.Host == name {
				return nil
			}
		}
		return fmt.Errorf("not among %d Events", len(list.Items))
	})
}
