// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/test/lab/remote"
)

// liveSandboxes are the sandboxes among some whose network namespace is there: containerd
// removes it after a successful DEL only.
func (c *cluster) liveSandboxes(ctx context.Context, boxes map[string]sandbox) ([]sandbox, error) {
	there := map[string]bool{}
	for _, node := range c.nodes {
		out, err := c.lab.Exec(ctx, node, "ls", "/run/netns")
		if err != nil {
			return nil, fmt.Errorf("list namespaces of %s: %w", node, err)
		}
		for name := range strings.FieldsSeq(out) {
			there[node+"/"+name] = true
		}
	}
	var left []sandbox
	for _, s := range boxes {
		if there[s.node+"/"+path.Base(s.record.Netns)] {
			left = append(left, s)
		}
	}
	return left, nil
}

// killSandboxes ends the processes that hold the sandboxes of a namespace's Pods on a
// node. kubelet answers with a DEL of each, and with an ADD for a new one: no API
// server is needed for that.
func (c *cluster) killSandboxes(t *testing.T, node, namespace string) {
	t.Helper()
	// Two calls of ctr for all of them: each takes seconds on a busy machine.
	const script = `
	ours=$(ctr -n k8s.io containers list -q "labels.\"io.kubernetes.pod.namespace\"==$0,labels.\"io.cri-containerd.kind\"==sandbox")
	kill -KILL $(ctr -n k8s.io tasks list | grep -F "$ours" | awk '{ print $2 }')`
	if _, err := c.lab.Exec(t.Context(), node, "sh", "-ec", script, namespace); err != nil {
		t.Fatalf("kill sandboxes on %s: %v", node, err)
	}
}

// execPluginADD runs the plugin on a node as a runtime would, for a Pod that is bound to it and
// in a network namespace of its own, and returns how it refused.
func (c *cluster) execPluginADD(ctx context.Context, node string, p *corev1.Pod) (*wire.Error, error) {
	const script = `
	ip netns add "$0"
	trap 'ip netns delete "$0"' EXIT
	CNI_NETNS=/run/netns/$0 /opt/cni/bin/patchbay`
	const stdin = `{"cniVersion":"1.0.0","name":"patchbay","type":"patchbay","cniDir":"/etc/cni/net.d"}`
	var out, errOut bytes.Buffer
	code, err := c.lab.Run(ctx, node, remote.Request{
		Args: []string{"sh", "-ec", script, "by-hand"},
		Env: []string{
			"CNI_COMMAND=ADD", "CNI_CONTAINERID=by-hand", "CNI_IFNAME=eth0", "CNI_PATH=/opt/cni/bin",
			fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s", p.Namespace, p.Name, p.UID),
		},
	}, remote.Streams{In: strings.NewReader(stdin), Out: &out, Err: &errOut})
	if err != nil {
		return nil, fmt.Errorf("run plugin on %s: %w", node, err)
	}
	var refused wire.Error
	if err := json.Unmarshal(out.Bytes(), &refused); err != nil || code == 0 {
		return nil, fmt.Errorf("want a refusal from the plugin, got exit code %d and %q %q", code, out.String(), errOut.String())
	}
	return &refused, nil
}
