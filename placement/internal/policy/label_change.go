// SPDX-License-Identifier: Apache-2.0

package policy

import "github.com/patchbay-cni/patchbay/api/placement/v1alpha1"

// DependsOnLabels tells whether a choice of clusters may differ after the labels of one Cluster have changed. In doubt it
// does.
func DependsOnLabels(choice v1alpha1.ClusterChoice, before, after map[string]string) bool {
	selectedBefore, err := selectorMatches(choice.Selector, before)
	if err != nil {
		return true
	}
	selectedAfter, err := selectorMatches(choice.Selector, after)
	if err != nil || selectedBefore != selectedAfter {
		return true
	}
	return choice.Spread != "" && before[choice.Spread] != after[choice.Spread]
}
