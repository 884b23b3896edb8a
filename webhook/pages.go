// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pageSize is how many objects are in memory at a time; all pages are of one snapshot.
const pageSize = 500

// eachPage lists consistently, page by page, and calls f for each object. Each page
// needs a list of its own: decoding into a used one can leave fields of before.
func eachPage(ctx context.Context, c client.Reader, fresh func() client.ObjectList, f func(client.Object), opts ...client.ListOption) error {
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
