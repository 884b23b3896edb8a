// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/objects"
)

// recoveringAnnotation is on a network while its status says that it is recovering,
// with the time at which that began. The controller sets it, because a node that has
// nothing to do with the network just then sees metadata only, and has to report
// all the same.
const recoveringAnnotation = "danm.io/recovering"

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
	since := o.GetAnnotations()[recoveringAnnotation]
	if since == "" {
		n.recoveries.Delete(net)
	} else if before, told := n.recoveries.Swap(net, since); !told || before != since {
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
