// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/objects"
)

// primePage is how many networks are in memory in full at a time: each may
// carry a bitmap of 11 KiB.
const primePage = 100

// prime reads all networks once, in pages, instead of one by one as their
// metadata arrives.
func (n *Networks) prime(ctx context.Context) error {
	for _, kind := range objects.Kinds() {
		if err := n.primeKind(ctx, kind); err != nil {
			return err
		}
	}
	return nil
}

// primeKind stores the models of all objects of one kind.
func (n *Networks) primeKind(ctx context.Context, kind string) error {
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
				m := objects.ModelOf(obj)
				n.models.set(objects.RefOf(kind, obj), m)
				n.seen(obj, m.Network, m.Err)
			}
			return nil
		})
		if next = list.GetContinue(); err != nil || next == "" {
			return err
		}
	}
}
