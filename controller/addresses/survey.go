// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// survey is what one look at all networks found.
type survey struct {
	// holders are the networks in which a life has an entry.
	holders map[life][]network.Ref
	// pools are their numbers.
	pools map[network.Ref]pool
	// due are the networks with work that needs no Node to be gone.
	due []network.Ref
	// recovering counts the networks in recovery.
	recovering int
}

// survey reads all networks of a kind from the API server's watch cache, in one
// page: the watch cache knows no smaller ones.
func (s *sweeper) survey(ctx context.Context, kind string, found *survey) error {
	list, err := objects.NewList(kind)
	if err != nil {
		return err
	}
	opts := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
	if err := s.direct.List(ctx, list, opts); err != nil {
		return fmt.Errorf("list %ss: %w", kind, err)
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		obj, ok := item.(client.Object)
		if !ok {
			return nil
		}
		r := read(objects.RefOf(kind, obj), obj)
		found.pools[r.Ref] = pool{r.Allocated, r.Capacity}
		for _, l := range r.lives() {
			found.holders[l] = append(found.holders[l], r.Ref)
		}
		if r.Recovering() {
			found.recovering++
		}
		if s.due(ctx, r) {
			found.due = append(found.due, r.Ref)
		}
		return nil
	})
}

// due reports whether a network needs work. When that cannot be told, it does: the
// error is told with that work.
func (s *sweeper) due(ctx context.Context, r reading) bool {
	_, rebuild := r.rebuild()
	_, skip := r.skip()
	_, marked := r.obj.GetAnnotations()[v1.RecoveringAnnotation]
	if rebuild || skip || marked || r.Recovering() || len(r.deferred()) > 0 || conflicting(r) || r.Deleting && r.Protected {
		return true
	}
	suspect, err := s.suspect(ctx, r)
	if suspect || err != nil {
		return true
	}
	before := objectConditions(r)
	return !r.Deleting && !same(before, desired(before, r.Generation, usesOf(r.Object, s.reserved(ctx, r.Network)), waiting{}, conflicts{}))
}
