// SPDX-License-Identifier: Apache-2.0

package networkcache

import (
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Observer receives the events of the metadata watch, in order. Its methods must not block.
type Observer interface {
	// ObserveVersion reports that the metadata of a network is at that resourceVersion.
	ObserveVersion(net network.Key, resourceVersion string)
	// NetworkDeleted reports that the network was deleted.
	NetworkDeleted(net network.Key)
	// ReportToRecovery reports that a recovery of the network has begun. This node must report its
	// addresses of the network, even if it has none.
	ReportToRecovery(net network.Key)
}

// observerNotifier turns events of metadata into calls of an Observer. It reports each
// recovery once, although each node's report to it changes the network's metadata.
type observerNotifier struct {
	observer Observer // may be nil
	// recoveries has the value of the annotation danm.io/recovering that was reported last,
	// by network.Key.
	recoveries sync.Map
}

// networkChanged reports that a network was added or changed.
func (o *observerNotifier) networkChanged(net network.Key, obj client.Object) {
	if o.observer == nil {
		return
	}
	o.observer.ObserveVersion(net, obj.GetResourceVersion())
	since := obj.GetAnnotations()[v1.RecoveringAnnotation]
	if since == "" {
		o.recoveries.Delete(net)
	} else if last, _ := o.recoveries.Swap(net, since); last != since {
		o.observer.ReportToRecovery(net)
	}
}

// networkDeleted reports that a network was deleted.
func (o *observerNotifier) networkDeleted(net network.Key) {
	o.recoveries.Delete(net)
	if o.observer != nil {
		o.observer.NetworkDeleted(net)
	}
}

// networkKey returns the key of one incarnation of a network.
func networkKey(kind string, o client.Object) network.Key {
	return network.Key{Ref: kube.NetworkRefOf(kind, o), UID: string(o.GetUID())}
}
