// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

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

// CheckOwnFirst returns an error without the plugin "patchbay".
func (p installedPlugins) CheckOwnFirst() error {
	if p["patchbay"] {
		return nil
	}
	return errors.New("05-cilium.conflist comes first")
}

// NodeConfiguration returns a file with the name of the plugin "node", and an error without that plugin.
func (p installedPlugins) NodeConfiguration(context.Context) (file, name string, err error) {
	if p["node"] {
		return "10-node.conflist", "node", nil
	}
	return "", "", errors.New("folder is empty")
}

// DefaultNetwork returns no network.
func (p installedPlugins) DefaultNetwork() (*network.Network, error) { return nil, nil }

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
	node, nothing := v1.NodeConfiguration{File: "10-node.conflist"}, v1.NodeConfiguration{Error: "folder is empty"}
	cases := map[string]struct {
		reason  string
		network *network.Network
		invalid error
		node    v1.NodeConfiguration
		want    metav1.Condition
	}{
		"ClusterNetwork": {
			reason: "The node's configuration does not matter.", network: &network.Network{Ref: byDefault}, node: nothing,
			want: metav1.Condition{Status: metav1.ConditionTrue, Reason: v1.ReasonDefaultNetworkExists, Message: "Pods without annotation danm.io/interfaces get ClusterNetwork/default"},
		},
		"AllowedTenants": {
			reason: "Pods of other namespaces do not start.", network: &network.Network{Ref: byDefault, AllowedTenants: []string{"a", "b"}}, node: node,
			want: metav1.Condition{Status: metav1.ConditionTrue, Reason: v1.ReasonDefaultNetworkExists, Message: "Pods without annotation danm.io/interfaces get ClusterNetwork/default, which is for these namespaces only: a, b"},
		},
		"Invalid": {
			reason: "ADD fails with the same error.", invalid: errors.New("spec.NetworkID: must be set"), node: node,
			want: metav1.Condition{Status: metav1.ConditionFalse, Reason: v1.ReasonNetworkInvalid, Message: "Pods without annotation danm.io/interfaces do not start: spec.NetworkID: must be set"},
		},
		"Deleting": {
			reason: "It takes no new Pods.", network: &network.Network{Ref: byDefault, Deleting: true}, node: node,
			want: metav1.Condition{Status: metav1.ConditionTrue, Reason: v1.ReasonNodeConfigurationUsed, Message: "there is no ClusterNetwork/default: Pods without annotation danm.io/interfaces get the node's CNI configuration 10-node.conflist"},
		},
		"None": {
			reason: "There is no default network.", node: node,
			want: metav1.Condition{Status: metav1.ConditionTrue, Reason: v1.ReasonNodeConfigurationUsed, Message: "there is no ClusterNetwork/default: Pods without annotation danm.io/interfaces get the node's CNI configuration 10-node.conflist"},
		},
		"Nothing": {
			reason: "Such Pods do not start.", node: nothing,
			want: metav1.Condition{Status: metav1.ConditionFalse, Reason: v1.ReasonNoDefaultNetwork, Message: "folder is empty"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.want.Type = "DefaultNetwork"
			if diff := cmp.Diff(tc.want, defaultNetworkCondition(tc.network, tc.invalid, &tc.node)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// longName is a checker whose configuration has a name that the API does not accept.
type longName struct{ installedPlugins }

func (longName) NodeConfiguration(context.Context) (file, name string, err error) {
	return "10-node.conflist", strings.Repeat("n", 300), nil
}

// The status names the configuration, in the length that the API accepts.
func TestNodeConfigurationOfStatus(t *testing.T) {
	t.Parallel()
	status := &v1.NodeNetworkStatus{}
	addNodeConfiguration(t.Context(), status, installedPlugins{"node": true})
	if diff := cmp.Diff(&v1.NodeConfiguration{File: "10-node.conflist", Name: "node"}, status.NodeConfiguration); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	addNodeConfiguration(t.Context(), status, longName{})
	if got := utf8.RuneCountInString(status.NodeConfiguration.Name); got < 200 || got > 255 {
		t.Errorf("long name: got %d characters, want about 255 and no more", got)
	}
}

// A node whose runtime does not call Patchbay is not ready: Pods start there without their networks.
func TestReadyIfRuntimeCallsPatchbay(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		checker DelegateChecker
		want    metav1.Condition
	}{
		"First":  {"Patchbay's file is the first.", installedPlugins{"patchbay": true}, metav1.Condition{Status: metav1.ConditionTrue, Reason: v1.ReasonLinksUp, Message: "links up: 0"}},
		"Other":  {"The runtime uses another file.", installedPlugins{}, metav1.Condition{Status: metav1.ConditionFalse, Reason: v1.ReasonPluginNotCalled, Message: "05-cilium.conflist comes first"}},
		"NoNode": {"Nothing is known of the node's files.", nil, metav1.Condition{Status: metav1.ConditionTrue, Reason: v1.ReasonLinksUp, Message: "links up: 0"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.want.Type = "Ready"
			if diff := cmp.Diff(tc.want, readyCondition(&v1.NodeNetworkStatus{}, checkOwnFirst(tc.checker))); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}
