// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/text"
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

// checkOwnFirst returns why the container runtime does not call Patchbay; nil without a checker.
func checkOwnFirst(checker DelegateChecker) error {
	if checker == nil {
		return nil
	}
	return checker.CheckOwnFirst()
}

// addNodeConfiguration adds to a status what Pods without a network get on this node.
func addNodeConfiguration(ctx context.Context, s *v1.NodeNetworkStatus, checker DelegateChecker) {
	file, name, err := checker.NodeConfiguration(ctx)
	s.NodeConfiguration = &v1.NodeConfiguration{File: file, Name: text.Truncate(name, maxConfigurationName)}
	if err != nil {
		s.NodeConfiguration.Error = truncate(err.Error())
	}
	byDefault, invalid := checker.DefaultNetwork()
	s.Conditions = append(s.Conditions, defaultNetworkCondition(byDefault, invalid, s.NodeConfiguration))
}

// maxConfigurationName bounds the name in the status, without the "…" of a longer one: the API server rejects a
// status with a name of more than 255 characters, and CNI has no such limit.
const maxConfigurationName = 252
