// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// networkSnapshot is a network object as it was read.
type networkSnapshot struct {
	*status.Object
	// obj is the object itself, which must not be modified.
	obj client.Object
}

// newNetworkSnapshot returns the snapshot of an object.
func newNetworkSnapshot(ref network.Ref, obj client.Object) networkSnapshot {
	return networkSnapshot{Object: kube.ObjectOf(ref, obj), obj: obj}
}

// key names the network and its UID.
func (r networkSnapshot) key() network.Key { return network.Key{Ref: r.Ref, UID: r.UID} }

// recovery returns the state of the network's recovery, or nil.
func (r networkSnapshot) recovery() *v1.RecoveryStatus {
	if r.IPAM == nil {
		return nil
	}
	return r.IPAM.Recovering
}

// deferredNodes returns the nodes whose rollback reports start no recovery, and until when.
func (r networkSnapshot) deferredNodes() map[string]metav1.MicroTime {
	if r.IPAM == nil {
		return nil
	}
	return r.IPAM.RecoveryDeferredUntil
}

// incarnations returns the Nodes that have an entry in the network's status.
func (r networkSnapshot) incarnations() []incarnation {
	if r.IPAM == nil {
		return nil
	}
	var all []incarnation
	for name, held := range r.IPAM.Held {
		if l := (incarnation{name, held.UID}); l.isNode() {
			all = append(all, l)
		}
	}
	return all
}

// rebuildRequest returns the value of the annotation that requests a rebuild of the bitmap.
func (r networkSnapshot) rebuildRequest() (string, bool) {
	value, ok := r.obj.GetAnnotations()[v1.RebuildAnnotation]
	return value, ok
}

// skipRequest returns the value of the annotation that names nodes to skip.
func (r networkSnapshot) skipRequest() (string, bool) {
	value, ok := r.obj.GetAnnotations()[v1.SkipAnnotation]
	return value, ok
}

// metadata returns an object that names the network, for patches.
func (r networkSnapshot) metadata() *metav1.PartialObjectMetadata {
	obj := kube.PartialMetadata(r.Ref.Kind)
	obj.Namespace, obj.Name = r.Ref.Namespace, r.Ref.Name
	return obj
}
