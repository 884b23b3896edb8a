// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

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
// metadata arrives.
func (n *Networks) prime(ctx context.Context) error {
	return n.each(ctx, func(ref network.Ref, obj client.Object) error {
		m, err := n.modelOf(ctx, obj)
		if err == nil {
			n.models.set(ref, m)
			n.seen(obj, m.Network, m.Err)
		}
		return err
	})
}

// Reread reads all networks, for those who look into objects. The models are left to
// the queue's workers: one of these may be older than what they have.
func (n *Networks) Reread(ctx context.Context) error {
	return n.each(ctx, func(_ network.Ref, obj client.Object) error {
		m := objects.ModelOf(obj)
		n.seen(obj, m.Network, m.Err)
		return nil
	})
}

// each reads all networks in pages.
func (n *Networks) each(ctx context.Context, do func(network.Ref, client.Object) error) error {
	for _, kind := range objects.Kinds() {
		if err := n.eachOf(ctx, kind, do); err != nil {
			return err
		}
	}
	return nil
}

// eachOf reads all objects of one kind.
func (n *Networks) eachOf(ctx context.Context, kind string, do func(network.Ref, client.Object) error) error {
	list, err := objects.NewList(kind)
	if err != nil {
		return err
	}
	for next := ""; ; {
		if err := n.conn.Direct.List(ctx, list, client.Limit(primePage), client.Continue(next)); err != nil {
			return fmt.Errorf("list %ss: %w", kind, err)
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			if obj, ok := item.(client.Object); ok {
				return do(objects.RefOf(kind, obj), obj)
			}
			return nil
		})
		if next = list.GetContinue(); err != nil || next == "" {
			return err
		}
	}
}
