// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// primePage is how many networks are in memory in full at a time: each may
// carry a bitmap of 11 KiB.
const primePage = 100

// prime reads all networks once, in pages, instead of one by one as their
// metadata arrives. One whose assignment cannot be confirmed now, since a TenantConfig
// is damaged or not served, is left to the queue's workers: the others need not wait.
func (n *Networks) prime(ctx context.Context) error {
	return n.each(ctx, func(obj client.Object, ref network.Ref, read time.Time) {
		m, err := n.modelOf(ctx, obj, read)
		if err != nil {
			n.queue.Add(ref)
			m = objects.ModelOf(obj)
		} else {
			n.models.set(ref, m)
		}
		n.seen(obj, m.Network, m.Err)
	})
}

// Reread reads all networks, for those who look into objects. The models are left to
// the queue's workers: one of these may be older than what they have.
func (n *Networks) Reread(ctx context.Context) error {
	return n.each(ctx, func(obj client.Object, _ network.Ref, _ time.Time) {
		m := objects.ModelOf(obj)
		n.seen(obj, m.Network, m.Err)
	})
}

// visit takes one network that was read at that time.
type visit func(obj client.Object, ref network.Ref, read time.Time)

// each reads all networks in pages.
func (n *Networks) each(ctx context.Context, do visit) error {
	for _, kind := range objects.Kinds() {
		if err := n.eachOf(ctx, kind, do); err != nil {
			return err
		}
	}
	return nil
}

// eachOf reads all objects of one kind.
func (n *Networks) eachOf(ctx context.Context, kind string, do visit) error {
	for next := ""; ; {
		// Each page gets a list of its own. Decoding JSON into a used one leaves what the
		// object before had in the same place, where this one has nothing; only
		// controller-runtime's own decoder empties it first.
		list, err := objects.NewList(kind)
		if err != nil {
			return err
		}
		if err := n.conn.Direct.List(ctx, list, client.Limit(primePage), client.Continue(next)); err != nil {
			return fmt.Errorf("list %ss: %w", kind, err)
		}
		read := time.Now()
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			obj, ok := item.(client.Object)
			if !ok {
				return errors.New("list item is no object")
			}
			do(obj, objects.RefOf(kind, obj), read)
			return nil
		}); err != nil {
			return fmt.Errorf("list %ss: %w", kind, err)
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}
