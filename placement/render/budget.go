// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Budget of the Customizations of one namespace, whose authors are not the hub's admins:
// compiling and running them takes the hub's time, which all namespaces share. What they
// may cost when they run is maxCost.
const (
	maxCustomizations  = 32
	maxExpressionBytes = 16 << 10
)

// overBudget says by index in the list which Customizations are not carried out, and why:
// the youngest ones. Those of the hub's own namespace are its admins'.
func overBudget(list []v1alpha1.Customization) map[int]error {
	byAge := make([]int, len(list))
	for i := range byAge {
		byAge[i] = i
	}
	slices.SortFunc(byAge, func(i, j int) int {
		a, b := &list[i], &list[j]
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	over := map[int]error{}
	count, bytes := map[string]int{}, map[string]int{}
	for _, i := range byAge {
		c := &list[i]
		size := 0
		for j := range c.Spec.Rules {
			size += len(c.Spec.Rules[j].CEL)
		}
		switch {
		case c.Namespace == v1alpha1.SystemNamespace:
		case count[c.Namespace] == maxCustomizations:
			over[i] = fmt.Errorf("namespace %s must have at most %d Customizations, and this one is among the youngest: delete some, "+
				"or bring their rules together", c.Namespace, maxCustomizations)
		case bytes[c.Namespace]+size > maxExpressionBytes:
			over[i] = fmt.Errorf("spec.rules[*].cel: the expressions in namespace %s must have at most %d bytes together, and these %d go beyond: "+
				"make them shorter, or delete other Customizations", c.Namespace, maxExpressionBytes, size)
		default:
			count[c.Namespace]++
			bytes[c.Namespace] += size
		}
	}
	return over
}

// Check says what is wrong with a Customization among all of its namespace.
func Check(c *v1alpha1.Customization, namespace []v1alpha1.Customization) error {
	only := []v1alpha1.Customization{*c}
	for i, over := range overBudget(namespace) {
		if namespace[i].UID == c.UID {
			return (&customization{namespace: c.Namespace, name: c.Name}).wrong(-1, "", over)
		}
	}
	if _, errs := Compile(only); len(errs) > 0 {
		return errs[0]
	}
	return nil
}
