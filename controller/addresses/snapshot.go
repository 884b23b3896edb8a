// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// reading is a network object as it was read once.
type reading struct {
	*claims.Object
	// obj is the object itself; nobody changes it.
	obj client.Object
}

// read makes a reading of an object.
func read(ref network.Ref, obj client.Object) reading {
	return reading{Object: objects.ObjectOf(ref, obj), obj: obj}
}

// key names this life of the network.
func (r reading) key() claims.Key { return claims.Key{Ref: r.Ref, UID: r.UID} }

// recovery returns the state of the recovery that the network is in, or nil.
func (r reading) recovery() *v1.Recovering {
	if r.IPAM == nil {
		return nil
	}
	return r.IPAM.Recovering
}

// deferred returns the nodes whose reports of rollbacks start no recovery, and until when.
func (r reading) deferred() map[string]metav1.MicroTime {
	if r.IPAM == nil {
		return nil
	}
	return r.IPAM.Deferred
}

// lives returns whose entries the network has.
func (r reading) lives() []life {
	if r.IPAM == nil {
		return nil
	}
	var all []life
	for name, held := range r.IPAM.Held {
		if l := (life{name, held.UID}); l.ofNode() {
			all = append(all, l)
		}
	}
	return all
}

// rebuild returns the value of the annotation that asks for a new bitmap.
func (r reading) rebuild() (string, bool) {
	value, ok := r.obj.GetAnnotations()[v1.RebuildAnnotation]
	return value, ok
}

// skip returns the value of the annotation that names nodes to skip.
func (r reading) skip() (string, bool) {
	value, ok := r.obj.GetAnnotations()[v1.SkipAnnotation]
	return value, ok
}
