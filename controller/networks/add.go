// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// workers is how many networks are worked at a time.
const workers = 2

// queue holds networks to look at.
type queue = workqueue.TypedRateLimitingInterface[network.Ref]

// Add makes a manager run a Controller while it leads. The manager's client must
// read from the API server, and its cache be made with Cached.
func Add(m manager.Manager, cfg Config) error {
	c := newController(cfg, &store{cached: m.GetCache(), direct: m.GetClient()})
	ctl, err := controller.NewTyped("networks", m, controller.TypedOptions[network.Ref]{Reconciler: c, MaxConcurrentReconciles: workers})
	if err != nil {
		return fmt.Errorf("make controller: %w", err)
	}
	for _, kind := range objects.Kinds() {
		if err := ctl.Watch(source.TypedKind(m.GetCache(), objects.Metadata(kind), onNetwork(kind))); err != nil {
			return fmt.Errorf("watch %ss: %w", kind, err)
		}
	}
	if err := ctl.Watch(source.TypedKind(m.GetCache(), &v1.NodeNetwork{}, c.onNode())); err != nil {
		return fmt.Errorf("watch NodeNetworks: %w", err)
	}
	return nil
}

// onNetwork queues a network that came, went or was changed; claims are none.
func onNetwork(kind string) handler.TypedEventHandler[*metav1.PartialObjectMetadata, network.Ref] {
	type object = *metav1.PartialObjectMetadata
	return handler.TypedFuncs[object, network.Ref]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[object], q queue) {
			q.Add(objects.RefOf(kind, e.Object))
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[object], q queue) {
			if objects.VersionOf(e.ObjectOld) != objects.VersionOf(e.ObjectNew) {
				q.Add(objects.RefOf(kind, e.ObjectNew))
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[object], q queue) {
			q.Add(objects.RefOf(kind, e.Object))
		},
	}
}

// onNode queues the networks that a node says something new of.
func (c *Controller) onNode() handler.TypedEventHandler[*v1.NodeNetwork, network.Ref] {
	learn := func(nn *v1.NodeNetwork, q queue) {
		refs, joined := c.nodes.learn(nn)
		if joined {
			refs = append(refs, c.networks()...)
		}
		for _, ref := range refs {
			q.Add(ref)
		}
	}
	return handler.TypedFuncs[*v1.NodeNetwork, network.Ref]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*v1.NodeNetwork], q queue) { learn(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*v1.NodeNetwork], q queue) { learn(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*v1.NodeNetwork], q queue) {
			c.nodes.forget(e.Object.Name)
			for _, ref := range c.networks() {
				q.Add(ref)
			}
		},
	}
}
