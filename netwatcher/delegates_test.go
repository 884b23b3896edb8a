// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// installedPlugins implements DelegateChecker.
type installedPlugins map[string]bool

func (p installedPlugins) Check(plugin, networkID string) error {
	if p[plugin] {
		return nil
	}
	return errors.New(plugin + " of " + networkID + " is missing")
}

// The status has a row for each plugin and configuration of the networks on this node, however many
// networks share them.
func TestDelegateRows(t *testing.T) {
	t.Parallel()
	networks := []*network.Network{
		{Ref: ref("own"), Type: v1.TypeIPVLAN, ID: "own"},
		{Ref: ref("typo"), Type: "ipvlam", ID: "x"},
		{Ref: ref("b"), Type: "flannel", ID: "f"},
		{Ref: ref("a"), Type: "flannel", ID: "f"},
		{Ref: ref("going"), Type: "flannel", ID: "f", Deleting: true},
		{Ref: network.Ref{Kind: network.KindNetworkAttachmentDefinition, Namespace: "ns", Name: "other"}, Type: "bridge"},
	}
	want := []v1.DelegateReport{
		{NetworkType: "flannel", NetworkID: "f"},
		{NetworkType: "ipvlam", NetworkID: "x", Error: "ipvlam of x is missing"},
	}
	if diff := cmp.Diff(want, delegateRows(networks, installedPlugins{"flannel": true})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if rows := delegateRows(networks, nil); rows != nil {
		t.Errorf("without a checker: got %v, want none", rows)
	}
}

// The API server rejects a status with more rows, and then no link would be reported.
func TestDelegateRowsAreBounded(t *testing.T) {
	t.Parallel()
	var networks []*network.Network
	for i := range v1.MaxDelegates + 5 {
		networks = append(networks, &network.Network{Ref: ref(fmt.Sprint(i)), Type: "flannel", ID: fmt.Sprint(i)})
	}
	if rows := delegateRows(networks, installedPlugins{}); len(rows) != v1.MaxDelegates {
		t.Errorf("got %d rows, want %d", len(rows), v1.MaxDelegates)
	}
}
