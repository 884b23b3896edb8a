// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"cmp"
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
	type key struct{ plugin, id string }
	users := map[key][]string{}
	for _, n := range networks {
		if n.Delegates() && !n.Deleting && n.Ref.Kind != network.KindNetworkAttachmentDefinition {
			k := key{n.Type, n.ID}
			users[k] = append(users[k], n.Ref.String())
		}
	}
	rows := make([]v1.DelegateReport, 0, len(users))
	for k, refs := range users {
		slices.Sort(refs)
		rows = append(rows, v1.DelegateReport{NetworkType: k.plugin, NetworkID: k.id, Networks: refs})
	}
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
