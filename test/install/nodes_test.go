// SPDX-License-Identifier: Apache-2.0

//go:build install

package install

import (
	"context"
	"encoding/json"
	"strings"
)

// nodeScript prints what CNI plugins and Patchbay make on a node. Links of Pods come and go.
const nodeScript = `
echo "CNI configuration:"; ls -A /etc/cni/net.d
echo "plugins:"; ls -A /opt/cni/bin
echo "links:"; for link in /sys/class/net/*; do case ${link##*/} in veth*) ;; *) echo "${link##*/}" ;; esac; done
echo "rules:"; ip rule; ip -6 rule
echo "packet filters:"; nft list tables
echo "traffic control:"; tc qdisc show | grep -v 'dev veth' || :
echo "mounts:"; grep patchbay /proc/mounts || :
echo "namespaces:"; ls -A /run/patchbay/netns 2>/dev/null || :
`

// nodeState returns what CNI plugins and Patchbay have made on a node.
func (b *bed) nodeState(ctx context.Context, node string) string {
	b.Helper()
	out, err := b.lab.Exec(ctx, node, "sh", "-ec", nodeScript)
	if err != nil {
		b.Fatal(err)
	}
	return out
}

// installed are the kinds of objects that an installation has.
const installed = "serviceaccounts,services,daemonsets,deployments,poddisruptionbudgets,roles,rolebindings,clusterroles,clusterrolebindings," +
	"validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingwebhookconfigurations,validatingwebhookconfigurations," +
	"customresourcedefinitions,namespaces"

// checkNothingInstalled checks that a stage can begin.
func (b *bed) checkNothingInstalled() {
	b.Helper()
	if got := b.run("get", installed, "--all-namespaces", "-l", "app.kubernetes.io/part-of=patchbay", "-o", "name"); got != "" {
		b.Fatalf("the cluster must have nothing of Patchbay when a stage begins, got:\n%s", got)
	}
}

// checkClean checks that cluster and nodes have nothing of Patchbay, and that ordinary Pods start.
func (b *bed) checkClean() {
	b.Helper()
	b.awaitNothing("the cluster to have no object of Patchbay", "get", installed, "--all-namespaces",
		"-l", "app.kubernetes.io/part-of=patchbay", "-o", "name")
	b.checkNodesClean()
	if labels := b.run("get", "nodes", "-o", "jsonpath={.items[*].metadata.labels}"); strings.Contains(labels, "danm.io/") {
		b.Errorf("the nodes have labels of Patchbay: %s", labels)
	}
	b.checkOrdinaryPods()
}

// checkNodesClean checks that the nodes are as they were without Patchbay.
func (b *bed) checkNodesClean() {
	b.Helper()
	for _, node := range b.nodes {
		b.await(node+" to have nothing of Patchbay", func(ctx context.Context) (string, bool) {
			now := b.nodeState(ctx, node)
			return "it was\n" + b.before[node] + "and is\n" + now, now == b.before[node]
		})
	}
}

// removeLabels removes the labels of NICs, as docs/install.md says.
func (b *bed) removeLabels() {
	b.Helper()
	for _, node := range b.nodes {
		var labels map[string]string
		if err := json.Unmarshal([]byte(b.run("get", "node", node, "-o", "jsonpath={.metadata.labels}")), &labels); err != nil {
			b.Fatal(err)
		}
		for label := range labels {
			if strings.HasPrefix(label, "nics.danm.io/") {
				b.run("label", "node", node, label+"-")
			}
		}
	}
}
