// SPDX-License-Identifier: Apache-2.0

package networkviews

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// maxNetworks is how many networks a view has at most; the definition has the same limit.
const maxNetworks = 100

// viewable is a network with what a tenant may know of it.
type viewable struct {
	network *network.Network
	view    v1.ViewedNetwork
}

// newViewable returns false for a network that no Pod may join: an invalid one, and one in deletion.
func newViewable(obj client.Object) (viewable, bool) {
	n := kube.ParseNetwork(obj).Network
	if n == nil || n.Deleting {
		return viewable{}, false
	}
	status := kube.NetworkStatusOf(obj)
	view := v1.ViewedNetwork{Kind: n.Ref.Kind, Name: n.Ref.Name, Type: n.Type, Ready: metav1.ConditionUnknown}
	if n.V4 != nil {
		view.CIDR = n.V4.CIDR.String()
	}
	if n.V6 != nil {
		view.Net6 = n.V6.CIDR.String()
	}
	for _, p := range status.Pools {
		view.Pools = append(view.Pools, v1.ViewedPool{Family: p.Family, Capacity: p.Capacity, Free: p.Free})
	}
	if ready := meta.FindStatusCondition(status.Conditions, v1.ConditionReady); ready != nil {
		view.Ready = ready.Status
	}
	return viewable{n, view}, true
}

// viewOf returns the view of a namespace.
func viewOf(namespace string, all []viewable) *v1.NetworkView {
	view := &v1.NetworkView{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1.NetworkViewName}}
	for i := range all {
		if all[i].network.Allows(namespace) {
			view.Networks = append(view.Networks, all[i].view)
		}
	}
	slices.SortFunc(view.Networks, func(a, b v1.ViewedNetwork) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	view.Count = int64(len(view.Networks))
	view.Networks = view.Networks[:min(len(view.Networks), maxNetworks)]
	return view
}

// change is a view to write; before is nil for a new one.
type change struct{ before, want *v1.NetworkView }

// plan returns the views to write, those first whose networks differ and not only numbers. A namespace
// in deletion gets none.
func plan(namespaces []metav1.PartialObjectMetadata, existing map[string]*v1.NetworkView, all []viewable) []change {
	var networks, numbers []change
	for i := range namespaces {
		ns := &namespaces[i]
		if !ns.DeletionTimestamp.IsZero() {
			continue
		}
		c := change{existing[ns.Name], viewOf(ns.Name, all)}
		switch {
		case c.before == nil || !sameNetworks(c.before, c.want):
			networks = append(networks, c)
		case numbersDiffer(c.before, c.want):
			numbers = append(numbers, c)
		}
	}
	return append(networks, numbers...)
}

// sameNetworks reports whether two views are equal apart from the numbers of free addresses.
func sameNetworks(a, b *v1.NetworkView) bool {
	return a.Count == b.Count && slices.EqualFunc(a.Networks, b.Networks, func(a, b v1.ViewedNetwork) bool {
		samePools := slices.EqualFunc(a.Pools, b.Pools, func(a, b v1.ViewedPool) bool {
			return a.Family == b.Family && a.Capacity == b.Capacity
		})
		a.Pools, b.Pools = nil, nil
		return samePools && equality.Semantic.DeepEqual(a, b)
	})
}

// freeTolerance is the part of a pool's capacity by which the free addresses in a view may be wrong, as
// 1/n: each Pod on a shared network would otherwise change the views of all namespaces.
const freeTolerance = 20

// numbersDiffer reports whether free addresses of two views with the same networks differ by more
// than the tolerance, or only one of them has any.
func numbersDiffer(a, b *v1.NetworkView) bool {
	for i := range a.Networks {
		for j, was := range a.Networks[i].Pools {
			now := b.Networks[i].Pools[j]
			moved := max(was.Free, now.Free) - min(was.Free, now.Free)
			if moved > was.Capacity/freeTolerance || (was.Free > 0) != (now.Free > 0) {
				return true
			}
		}
	}
	return false
}
