// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/objects"
)

// event queues a network, and says where its metadata is.
func (n *Networks) event(kind string, obj any) {
	o, ok := obj.(client.Object)
	if !ok {
		return
	}
	n.queue.Add(objects.RefOf(kind, o))
	if n.moves == nil {
		return
	}
	net := keyOf(kind, o)
	n.moves.Look(net, o.GetResourceVersion())
	since := o.GetAnnotations()[v1.RecoveringAnnotation]
	if since == "" {
		n.recoveries.Delete(net)
	} else if last, _ := n.recoveries.Swap(net, since); last != since {
		n.moves.Reassert(net)
	}
}

// removed queues a network that was deleted, and says so.
func (n *Networks) removed(kind string, obj any) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	o, ok := obj.(client.Object)
	if !ok {
		return
	}
	n.queue.Add(objects.RefOf(kind, o))
	n.recoveries.Delete(keyOf(kind, o))
	if n.moves != nil {
		n.moves.Gone(keyOf(kind, o))
	}
}

// keyOf names one life of a network of a kind.
func keyOf(kind string, o client.Object) claims.Key {
	return claims.Key{Ref: objects.RefOf(kind, o), UID: string(o.GetUID())}
}
