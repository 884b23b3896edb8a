// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"
	"strings"
	"testing"
)

func goodNode() Node {
	return Node{
		Name: "node-1", OS: "linux", Architecture: "arm64", Kernel: "5.15.0-1-arm64", Kubelet: "v1.34.1", Runtime: "containerd://1.7.2", Ready: "False",
	}
}

func TestCheckCluster(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason   string
		change   func(*Cluster)
		problems []string
	}{
		"good": {
			reason: "a node without a Pod network is not ready, which is no problem",
			change: func(*Cluster) {},
		},
		"newer": {
			reason: "a version that the tests do not run with should work",
			change: func(c *Cluster) { c.Version = "v1.38.0" },
		},
		"older": {
			reason: "1.31 is the oldest supported version",
			change: func(c *Cluster) { c.Version = "v1.30.9"; c.Nodes[0].Kubelet = "v1.30.9" },
			problems: []string{
				"failure Kubernetes: v1.30.9: must be 1.31 or newer", "failure kubelet: v1.30.9: must be 1.31",
			},
		},
		"unknown version": {
			reason:   "a version that cannot be parsed is not called good",
			change:   func(c *Cluster) { c.Version = "main" },
			problems: []string{`warning Kubernetes: version "main" is unknown`},
		},
		"API missing": {
			reason: "without policies, a node could change the objects of another one",
			change: func(c *Cluster) {
				c.MissingResources = []string{"admissionregistration.k8s.io/v1 validatingadmissionpolicies"}
			},
			problems: []string{"failure API: the API server does not serve admissionregistration.k8s.io/v1 validatingadmissionpolicies"},
		},
		"rights": {
			reason:   "an installation would stop in the middle",
			change:   func(c *Cluster) { c.Forbidden = []string{"create clusterroles", "create namespaces"} },
			problems: []string{"failure your rights: you may not create clusterroles, create namespaces"},
		},
		"Cilium": {
			reason:   "Cilium would rename Patchbay's configuration",
			change:   func(c *Cluster) { c.CiliumExclusive = true },
			problems: []string{"failure Cilium: cni-exclusive is true"},
		},
		"one node": {
			reason:   "two replicas of the controller use the same ports",
			change:   func(c *Cluster) { c.AllNodes = 1 },
			problems: []string{"warning nodes: the cluster has one node"},
		},
		"leftovers": {
			reason: "a definition in deletion vanishes under a new installation, and a webhook without a controller rejects all networks",
			change: func(c *Cluster) {
				c.Definitions = map[string]bool{"danmeps.danm.io": false, "clusternetworks.danm.io": true}
				c.Webhooks, c.OtherPreflights = []string{"validatingwebhookconfiguration"}, []string{"patchbay-preflight-x"}
			},
			problems: []string{
				"failure earlier installations: the CustomResourceDefinition clusternetworks.danm.io is being deleted",
				"warning earlier installations: the cluster has the CustomResourceDefinitions danmeps.danm.io",
				"failure earlier installations: the Service of validatingwebhookconfiguration patchbay does not exist",
				"warning earlier installations: namespace patchbay-preflight-x",
			},
		},
		"unreadable": {
			reason:   "what could not be read is named",
			change:   func(c *Cluster) { c.Errors = []string{"failed to read namespaces: forbidden"} },
			problems: []string{"warning API server: failed to read namespaces: forbidden"},
		},
		"Windows": {
			reason:   "nothing else is checked on a node without Linux",
			change:   func(c *Cluster) { c.Nodes[0] = Node{Name: "win", OS: "windows"} },
			problems: []string{"warning operating system: windows"},
		},
		"node is down": {
			reason:   "a node whose kubelet does not report cannot be read",
			change:   func(c *Cluster) { c.Nodes[0].Ready = "Unknown" },
			problems: []string{"failure kubelet: kubelet does not report"},
		},
		"old node": {
			reason: "kernel, runtime and architecture are those of the Node",
			change: func(c *Cluster) {
				c.Nodes[0].Kernel, c.Nodes[0].Runtime, c.Nodes[0].Architecture = "4.19.0-20-amd64", "containerd://1.5.1", "s390x"
			},
			problems: []string{
				"failure architecture: s390x: must be amd64 or arm64", "failure kernel: 4.19.0-20-amd64: must be 5.10", "warning container runtime: containerd://1.5.1: older than 1.6",
			},
		},
		"docker": {
			reason:   "cri-dockerd is not tested",
			change:   func(c *Cluster) { c.Nodes[0].Runtime = "docker://27.0.0"; c.Nodes[0].Kernel = "" },
			problems: []string{`warning kernel: release "" is unknown`, "warning container runtime: docker://27.0.0: not tested"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &Cluster{Version: "v1.35.0", AllNodes: 3, Nodes: []Node{goodNode()}}
			tc.change(c)
			got := notOK(t, CheckCluster(c))
			if !slices.EqualFunc(got, tc.problems, strings.HasPrefix) {
				t.Errorf("%s:\n got %q\nwant %q", tc.reason, got, tc.problems)
			}
		})
	}
}

func TestCheckSourceGuard(t *testing.T) {
	t.Parallel()
	n := goodNode()
	if got := notOK(t, CheckSourceGuard(n)); len(got) != 1 || !strings.Contains(got[0], "5.15.0-1-arm64: source-guard needs 5.16") {
		t.Errorf("Linux 5.15: got %q, want a failure: source_guard needs 5.16", got)
	}
	n.Kernel = "5.16.1"
	if got := notOK(t, CheckSourceGuard(n)); len(got) != 0 {
		t.Errorf("Linux 5.16: got %q, want no result", got)
	}
}

func TestCompareNICs(t *testing.T) {
	t.Parallel()
	nodes := map[string]*Facts{}
	for name, mtu := range map[string]int{"a": 9000, "b": 1500, "c": 9000, "d": 9000, "e": 9000} {
		nodes[name] = &Facts{NICs: []NIC{{Name: "ens3", MTU: 1500}, {Name: "ens4", MTU: mtu}}}
	}
	got := notOK(t, CompareNICs(nodes))
	if want := []string{"warning MTU: NIC ens4 has 1500 on b, 9000 on a, c and 2 more"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
