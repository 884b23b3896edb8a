// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/objects"
)

// recoveringMark is an annotation that only the cache has, on networks that recover.
const recoveringMark = "danm.io/recovering"

// slimNetwork keeps of a network's managedFields whether it is recovering. A node that
// has nothing to do with the network has to report to the recovery all the same, and
// is sent metadata only. But that names the conditions that are set, and the
// controller sets one while it waits for nodes.
func slimNetwork(obj any) (any, error) {
	o, ok := obj.(metav1.Object)
	if !ok {
		return obj, nil
	}
	annotations := maps.Clone(o.GetAnnotations())
	delete(annotations, recoveringMark)
	if slices.ContainsFunc(o.GetManagedFields(), recovers) {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[recoveringMark] = "true"
	}
	o.SetAnnotations(annotations)
	return objects.Slim(obj)
}

// recovers reports whether somebody set the condition. A field is named after its key
// in the list, as JSON inside of JSON.
func recovers(f metav1.ManagedFieldsEntry) bool {
	const condition = `"k:{\"type\":\"` + v1.ConditionRecovering + `\"}"`
	return f.Subresource == "status" && f.FieldsV1 != nil && bytes.Contains(f.FieldsV1.GetRawBytes(), []byte(condition))
}

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
	if o.GetAnnotations()[recoveringMark] == "" {
		n.recoveries.Delete(net)
	} else if _, told := n.recoveries.LoadOrStore(net, nil); !told {
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
