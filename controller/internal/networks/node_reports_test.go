// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

const (
	storage = "ClusterNetwork/storage"
	red     = "DanmNet/red/storage"
)

// nodeNetwork returns the report of a node: networks that are up, and errors of others.
func nodeNetwork(name string, up []string, wrong map[string]string) *v1.NodeNetwork {
	nn := &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i, n := range up {
		nn.Status.Links = append(nn.Status.Links, v1.HostLink{Name: fmt.Sprint("l", i), Identity: "vlan/ens4/5", State: v1.LinkUp, Networks: []string{n}})
	}
	for n, text := range wrong {
		nn.Status.Links = append(nn.Status.Links, v1.HostLink{Name: "bad", State: v1.LinkError, Error: text, Networks: []string{n}})
	}
	return nn
}

func TestReport(t *testing.T) {
	t.Parallel()
	nn := &v1.NodeNetwork{Status: v1.NodeNetworkStatus{
		Version: "v1", KernelVersion: "6.1",
		NICs: []v1.NIC{{Name: "ens4", MAC: "02:00:00:00:00:01", Addresses: []string{"192.0.2.1/24"}}},
		Links: []v1.HostLink{
			{Name: "a.5", Identity: "vlan/ens4/5", MTU: 1500, State: v1.LinkUp, Networks: []string{storage, red}},
			{Name: "b.6", Identity: "vlan/ens4/6", State: v1.LinkUp, Networks: []string{"ClusterNetwork/b"}},
			{Name: "c.7", State: v1.LinkDown, Networks: []string{"ClusterNetwork/c"}},
			{Name: "d.8", State: v1.LinkChangePending, Error: "mtu stays", Networks: []string{"ClusterNetwork/d"}},
			{Name: "old.9", State: v1.LinkChangePending, Error: "no network uses it"},
		},
		Refused: []v1.RefusedNetwork{{Network: "ClusterNetwork/young", Error: "taken"}},
		Delegates: []v1.DelegateReport{
			{NetworkType: "flannel", NetworkID: "flannel"},
			{NetworkType: "ipvlam", NetworkID: "x", Error: "no ipvlam"},
		},
	}}
	want := &nodeReport{
		delegates: map[delegate]string{{"flannel", "flannel"}: "", {"ipvlam", "x"}: "no ipvlam"},
		up:        map[string]bool{storage: true, red: true, "ClusterNetwork/b": true},
		problems:  map[string]string{"ClusterNetwork/c": "c.7 is down", "ClusterNetwork/d": "mtu stays", "ClusterNetwork/young": "taken"},
	}
	compare := func(when string) {
		t.Helper()
		if diff := cmp.Diff(want, newNodeReport(nn), cmp.AllowUnexported(nodeReport{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	compare("as it is stored")
	for range 2 { // an informer may transform an object again
		if _, err := slimNodeNetwork(nn); err != nil {
			t.Fatal(err)
		}
		compare("as it is cached")
	}
	text, err := json.Marshal(nn.Status)
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"a.5", "6.1", "02:00"} {
		if strings.Contains(string(text), gone) {
			t.Errorf("the cache keeps %s, which is not read:\n%s", gone, text)
		}
	}
	if !strings.Contains(string(text), "192.0.2.1/24") {
		t.Error("the nodes' addresses are needed for pools")
	}
}

func TestChanged(t *testing.T) {
	t.Parallel()
	before := newNodeReport(nodeNetwork("n", []string{"ClusterNetwork/same", "ClusterNetwork/fails", "ClusterNetwork/gone"}, map[string]string{"ClusterNetwork/bad": "x", "ClusterNetwork/other": "x"}))
	after := newNodeReport(nodeNetwork("n", []string{"ClusterNetwork/same", "ClusterNetwork/new"}, map[string]string{"ClusterNetwork/bad": "x", "ClusterNetwork/other": "y", "ClusterNetwork/fails": "x"}))
	want := []string{"ClusterNetwork/fails", "ClusterNetwork/gone", "ClusterNetwork/new", "ClusterNetwork/other"}
	if diff := cmp.Diff(want, changedNetworks(before, after)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestReadyCondition(t *testing.T) {
	t.Parallel()
	good := newNodeReport(nodeNetwork("", []string{storage}, nil))
	bad := func(text string) *nodeReport {
		return newNodeReport(nodeNetwork("", nil, map[string]string{storage: text}))
	}
	cases := map[string]struct {
		reason string
		nodes  map[string]*nodeReport
		status metav1.ConditionStatus
		want   string
	}{
		"NoReports":  {"The daemons do not run.", nil, metav1.ConditionUnknown, "no node has reported its links: check that patchbayd runs"},
		"All":        {"The message must not change when a node joins.", map[string]*nodeReport{"a": good, "b": good}, metav1.ConditionTrue, "ready on all nodes"},
		"One":        {"The message names the node and the cause.", map[string]*nodeReport{"node-7": bad("ens5: NIC not found on this node"), "b": good}, metav1.ConditionFalse, "ready on 1 of 2 nodes; node-7: ens5: NIC not found on this node"},
		"Unreported": {"A node has not seen the network yet.", map[string]*nodeReport{"a": good, "b": {}}, metav1.ConditionFalse, "ready on 1 of 2 nodes; b: the node has not reported on this network yet"},
		"OneCause":   {"Equal causes are named once.", map[string]*nodeReport{"e": bad("taken"), "a": bad("taken"), "d": bad("taken"), "c": bad("taken"), "b": good}, metav1.ConditionFalse, "ready on 1 of 5 nodes; a, c, d and 1 more: taken"},
		"LongNames":  {"An Event has at most 1 KiB.", map[string]*nodeReport{strings.Repeat("a", 253): bad("taken"), strings.Repeat("b", 253): bad("taken"), "c": good}, metav1.ConditionFalse, "ready on 1 of 3 nodes; " + strings.Repeat("a", 253) + " and 1 more: taken"},
		"Causes":     {"The most frequent causes come first, and not all fit.", map[string]*nodeReport{"a": bad("x"), "b": bad("y"), "c": bad("y"), "d": bad("z")}, metav1.ConditionFalse, "ready on 0 of 4 nodes; b, c: y; a: x; and 1 more causes: kubectl get nodenetworks"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := readyCondition(storage, needs{Link: true}, tc.nodes)
			if got.Type != v1.ConditionReady || got.Status != tc.status || got.Message != tc.want {
				t.Errorf("%s: got %s %q, want %s %q", tc.reason, got.Status, got.Message, tc.status, tc.want)
			}
		})
	}
}

// A network of another CNI plugin is ready when all nodes have the plugin, and the link if there is one.
func TestReadyOfDelegates(t *testing.T) {
	t.Parallel()
	report := func(fault string, up ...string) *nodeReport {
		nn := nodeNetwork("", up, nil)
		nn.Status.Delegates = []v1.DelegateReport{{NetworkType: "ipvlam", NetworkID: "x", Error: fault}}
		return newNodeReport(nn)
	}
	needed := delegate{"ipvlam", "x"}
	const missing = "plugin is not installed: there is no /opt/cni/bin/ipvlam: did you mean NetworkType ipvlan?"
	cases := map[string]struct {
		reason  string
		needs   needs
		node    *nodeReport
		status  metav1.ConditionStatus
		because string
		want    string
	}{
		"Installed":  {"All nodes have the plugin.", needs{Delegate: needed}, report(""), metav1.ConditionTrue, v1.ReasonDelegateInstalled, "ready on all nodes"},
		"Missing":    {"The type is misspelt.", needs{Delegate: needed}, report(missing), metav1.ConditionFalse, v1.ReasonDelegateNotInstalled, "ready on 0 of 1 nodes; node-7: " + missing},
		"LinkUp":     {"The link does not replace the plugin.", needs{Link: true, Delegate: needed}, report(missing, storage), metav1.ConditionFalse, v1.ReasonDelegateNotInstalled, "ready on 0 of 1 nodes; node-7: " + missing},
		"NoLink":     {"The plugin does not replace the link.", needs{Link: true, Delegate: needed}, report(""), metav1.ConditionFalse, v1.ReasonDelegateNotInstalled, "ready on 0 of 1 nodes; node-7: " + notReported},
		"Both":       {"The node has both.", needs{Link: true, Delegate: needed}, report("", storage), metav1.ConditionTrue, v1.ReasonDelegateInstalled, "ready on all nodes"},
		"OtherID":    {"The node has another configuration of the plugin.", needs{Delegate: delegate{"ipvlam", "y"}}, report(""), metav1.ConditionFalse, v1.ReasonDelegateNotInstalled, "ready on 0 of 1 nodes; node-7: " + notReported},
		"Unreported": {"An older daemon does not report on plugins.", needs{Delegate: needed}, &nodeReport{}, metav1.ConditionFalse, v1.ReasonDelegateNotInstalled, "ready on 0 of 1 nodes; node-7: " + notReported},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := readyCondition(storage, tc.needs, map[string]*nodeReport{"node-7": tc.node})
			if got.Status != tc.status || got.Reason != tc.because || got.Message != tc.want {
				t.Errorf("%s got %s %s %q, want %s %s %q", tc.reason, got.Status, got.Reason, got.Message, tc.status, tc.because, tc.want)
			}
		})
	}
}

func TestParseRef(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]network.Ref{
		storage:                             {Kind: "ClusterNetwork", Name: "storage"},
		red:                                 {Kind: "DanmNet", Namespace: "red", Name: "storage"},
		"NetworkAttachmentDefinition/red/n": {},
		"ClusterNetwork/":                   {},
		"":                                  {},
	} {
		ref, ok := parseRef(text)
		if ok != (want != network.Ref{}) || ok && (ref != want || ref.String() != text) {
			t.Errorf("parseRef(%q) = %+v, %v, want %+v", text, ref, ok, want)
		}
	}
}
