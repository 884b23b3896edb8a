// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package lab_test

import (
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/test/lab"
)

// Patchbay runs on a node with containerd 2, and a Pod has an interface of one of its networks.
func TestContainerd2(t *testing.T) {
	l := lab.Start(t, lab.Config{Nodes: 1, Runtime: lab.RuntimeContainerd2, Install: true})
	ctx := t.Context()
	version := mustReturn(t)(l.Kubectl(ctx, "get", "node", "node-1", "-o", "jsonpath={.status.nodeInfo.containerRuntimeVersion}"))
	if !strings.HasPrefix(version, "containerd://2.") {
		t.Errorf("the node's runtime must be containerd 2, got %s", version)
	}
	mustReturn(t)(l.KubectlInput(ctx, `
apiVersion: danm.io/v1
kind: ClusterNetwork
metadata: {name: default}
spec: {NetworkID: pods, NetworkType: bridge}
---
apiVersion: danm.io/v1
kind: ClusterNetwork
metadata: {name: storage}
spec:
  NetworkID: storage
  NetworkType: macvlan
  Options: {host_device: ens4, container_prefix: net, cidr: 10.77.0.0/24}
---
apiVersion: v1
kind: Pod
metadata:
  name: attached
  annotations:
    danm.io/interfaces: '[{"clusterNetwork": "default"}, {"clusterNetwork": "storage", "ip": "dynamic"}]'
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "patchbay.local/busybox:lab", imagePullPolicy: Never, command: [sleep, infinity]}]
`, "apply", "-f", "-"))
	mustReturn(t)(l.Kubectl(ctx, "wait", "--for=condition=Ready", "pod/attached", "--timeout=300s"))
	addresses := mustReturn(t)(l.Kubectl(ctx, "exec", "attached", "--", "ip", "-4", "address"))
	for _, want := range []string{" 10.244.1.", " 10.77.0."} {
		if !strings.Contains(addresses, want) {
			t.Errorf("the Pod must have an address that begins with %s, got\n%s", want, addresses)
		}
	}
	// Patchbay gives the address back when containerd deletes the sandbox.
	mustReturn(t)(l.Kubectl(ctx, "delete", "pod", "attached", "--wait"))
	mustReturn(t)(l.Kubectl(ctx, "wait", "--for=delete", "danmeps", "--all", "--timeout=300s"))
}
