// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// delegateRows returns a row for each plugin and configuration that networks need on this node, at
// most v1.MaxDelegates. Equal input gives equal output.
func delegateRows(networks []*network.Network, checker DelegateChecker) []v1.DelegateReport {
	if checker == nil {
		return nil
	}
	needed := map[v1.DelegateReport]bool{}
	for _, n := range networks {
		if n.Delegates() && !n.Deleting && n.Ref.Kind != network.KindNetworkAttachmentDefinition {
			needed[v1.DelegateReport{NetworkType: n.Type, NetworkID: n.ID}] = true
		}
	}
	rows := slices.Collect(maps.Keys(needed))
	slices.SortFunc(rows, func(a, b v1.DelegateReport) int {
		return cmp.Or(strings.Compare(a.NetworkType, b.NetworkType), strings.Compare(a.NetworkID, b.NetworkID))
	})
	rows = rows[:min(len(rows), v1.MaxDelegates)]
	for i := range rows {
		if err := checker.Check(rows[i].NetworkType, rows[i].NetworkID); err != nil {
			rows[i].Error = truncate(err.Error())
		}
	}
	return rows
}

// nodeConfiguration returns the CNI configuration that Pods without a network get on this node; nil without a
// checker.
func nodeConfiguration(checker DelegateChecker) *v1.NodeConfiguration {
	if checker == nil {
		return nil
	}
	file, name, err := checker.NodeConfiguration()
	c := &v1.NodeConfiguration{File: file, Name: name}
	if err != nil {
		c.Error = truncate(err.Error())
	}
	return c
}
