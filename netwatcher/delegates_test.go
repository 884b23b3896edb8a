// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// NodeConfiguration returns a file with the name of the plugin "node", and an error without that plugin.
func (p installedPlugins) NodeConfiguration() (file, name string, err error) {
	if p["node"] {
		return "10-node.conflist", "node", nil
	}
	return "", "", errors.New("folder is empty")
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

// The condition names what Pods without an annotation get on this node.
func TestDefaultNetworkCondition(t *testing.T) {
	t.Parallel()
	byDefault := network.Ref{Kind: v1.KindClusterNetwork, Name: v1.DefaultNetworkName}
	cases := map[string]struct {
		reason   string
		networks []*network.Network
		plugins  installedPlugins
		want     metav1.Condition
	}{
		"ClusterNetwork": {
			"The node's configuration does not matter.", []*network.Network{{Ref: byDefault}}, installedPlugins{},
			metav1.Condition{Status: metav1.ConditionTrue, Reason: v1.ReasonDefaultNetworkExists, Message: "Pods without annotation danm.io/interfaces get ClusterNetwork/default"},
		},
		"Deleting": {
			"It takes no new Pods.", []*network.Network{{Ref: byDefault, Deleting: true}}, installedPlugins{"node": true},
			metav1.Condition{Status: metav1.ConditionTrue, Reason: v1.ReasonNodeConfigurationUsed, Message: "there is no ClusterNetwork/default: Pods without annotation danm.io/interfaces get the node's CNI configuration 10-node.conflist"},
		},
		"OtherKind": {
			"It is for the Pods of its namespace only.", []*network.Network{{Ref: network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: v1.DefaultNetworkName}}}, installedPlugins{"node": true},
			metav1.Condition{Status: metav1.ConditionTrue, Reason: v1.ReasonNodeConfigurationUsed, Message: "there is no ClusterNetwork/default: Pods without annotation danm.io/interfaces get the node's CNI configuration 10-node.conflist"},
		},
		"Nothing": {
			"Such Pods do not start.", nil, installedPlugins{},
			metav1.Condition{Status: metav1.ConditionFalse, Reason: v1.ReasonNoDefaultNetwork, Message: "folder is empty"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.want.Type = "DefaultNetwork"
			if diff := cmp.Diff(tc.want, defaultNetworkCondition(tc.networks, nodeConfiguration(tc.plugins))); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// The status names the configuration, and nothing without a checker.
func TestNodeConfigurationOfStatus(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff(&v1.NodeConfiguration{File: "10-node.conflist", Name: "node"}, nodeConfiguration(installedPlugins{"node": true})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if c := nodeConfiguration(nil); c != nil {
		t.Errorf("without a checker: got %v, want nothing", c)
	}
}
