// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// pageSize is the size of a list's pages. All pages are of one consistent snapshot.
const pageSize = 500

// eachListItem lists consistently, page by page, and calls f for each object. Each page is decoded
// into a new list, because decoding into a used one can leave old fields.
func eachListItem(ctx context.Context, c client.Reader, fresh func() client.ObjectList, f func(client.Object), opts ...client.ListOption) error {
	lo := client.ListOptions{Limit: pageSize}
	lo.ApplyOptions(opts)
	for {
		list := fresh()
		if err := c.List(ctx, list, &lo); err != nil {
			return err
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			obj, ok := o.(client.Object)
			if !ok {
				return fmt.Errorf("list item is a %T", o)
			}
			f(obj)
			return nil
		})
		if err != nil {
			return err
		}
		if lo.Continue = list.GetContinue(); lo.Continue == "" {
			return nil
		}
	}
}

// eachNetwork lists the networks of all kinds, as eachListItem does.
func eachNetwork(ctx context.Context, c client.Reader, f func(network.Ref, client.Object)) error {
	for _, kind := range kube.NetworkKinds() {
		fresh := func() client.ObjectList {
			list, _ := kube.NewNetworkList(kind) // kind is one of kube.NetworkKinds
			return list
		}
		err := eachListItem(ctx, c, fresh, func(obj client.Object) { f(kube.NetworkRefOf(kind, obj), obj) })
		if err != nil {
			return fmt.Errorf("list networks of kind %s: %w", kind, err)
		}
	}
	return nil
}

// namespaceLabels reads a namespace's labels, which decide which TenantConfigs apply, from the API
// server.
func namespaceLabels(ctx context.Context, from client.Reader, namespace string) (map[string]string, error) {
	var ns corev1.Namespace
	if err := from.Get(ctx, client.ObjectKey{Name: namespace}, &ns); err != nil {
		return nil, fmt.Errorf("read labels of namespace %s: %w", namespace, err)
	}
	return ns.Labels, nil
}
