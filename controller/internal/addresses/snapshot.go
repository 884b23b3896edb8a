// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// networkSnapshot is a network object as it was read once.
type networkSnapshot struct {
	*claims.Object
	// obj is the object itself; nobody changes it.
	obj client.Object
}

// newNetworkSnapshot makes a reading of an object.
func newNetworkSnapshot(ref network.Ref, obj client.Object) networkSnapshot {
	return networkSnapshot{Object: kube.ObjectOf(ref, obj), obj: obj}
}

// key names this life of the network.
func (r networkSnapshot) key() claims.Key { return claims.Key{Ref: r.Ref, UID: r.UID} }

// recovery returns the state of the recovery that the network is in, or nil.
func (r networkSnapshot) recovery() *v1.RecoveryStatus {
	if r.IPAM == nil {
		return nil
	}
	return r.IPAM.Recovering
}

// deferredNodes returns the nodes whose reports of rollbacks start no recovery, and until when.
func (r networkSnapshot) deferredNodes() map[string]metav1.MicroTime {
	if r.IPAM == nil {
		return nil
	}
	return r.IPAM.RecoveryDeferredUntil
}

// incarnations returns whose entries the network has.
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

// rebuildRequest returns the value of the annotation that asks for a new bitmap.
func (r networkSnapshot) rebuildRequest() (string, bool) {
	value, ok := r.obj.GetAnnotations()[v1.RebuildAnnotation]
	return value, ok
}

// skipRequest returns the value of the annotation that names nodes to skip.
func (r networkSnapshot) skipRequest() (string, bool) {
	value, ok := r.obj.GetAnnotations()[v1.SkipAnnotation]
	return value, ok
}
