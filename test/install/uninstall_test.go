// SPDX-License-Identifier: Apache-2.0

//go:build install

package install

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
)

// uninstall uninstalls by the operator: it is refused while Pods are attached, works with them when it is forced, and
// without them. An installation after it finds networks and Pods again.
func uninstall(b *bed) {
	b.installOperator(" {}")
	pods := b.attach()

	b.uninstallFails("default/listener", "default/talker")
	if got := b.run("get", "installation", v1alpha1.InstallationName, "-o", "jsonpath={.metadata.deletionTimestamp}"); got != "" {
		b.Errorf("the Installation is being deleted since %s, want nothing to change", got)
	}
	b.run("delete", "installation", v1alpha1.InstallationName, "--wait=false")
	i := b.awaitInstallation("the operator to refuse the uninstallation", func(i *v1alpha1.Installation) bool {
		c := meta.FindStatusCondition(i.Status.Conditions, v1alpha1.ConditionUninstalled)
		return c != nil && c.Reason == v1alpha1.ReasonPodsAttached
	})
	message := meta.FindStatusCondition(i.Status.Conditions, v1alpha1.ConditionUninstalled).Message
	for _, name := range []string{"default/listener", "default/talker"} {
		if !strings.Contains(message, name) {
			b.Errorf("condition Uninstalled is %q, want it to name Pod %s", message, name)
		}
	}
	b.startPod(pod{name: "late", node: b.nodes[0], interfaces: toStorage}) // nothing was removed
	b.ping("late", listenerAddress)
	b.run("delete", "pod", "late", "--timeout="+waitTimeout.String())

	b.run("patchbay", "uninstall", "--yes", "--force", "--timeout="+waitTimeout.String())
	b.checkOrdinaryPods()
	b.checkUndisturbed(pods)

	b.setSpec(" {}")
	b.awaitReady()
	b.startPod(pod{name: "late", node: b.nodes[0], interfaces: toStorage})
	b.ping("late", listenerAddress)
	b.checkOrdinaryPods()
	b.checkUndisturbed(pods)

	b.run("delete", "pods", "--all", "--timeout="+waitTimeout.String())
	b.scaleDNS(0)
	b.run("delete", "installation", v1alpha1.InstallationName, "--timeout="+waitTimeout.String())
	b.checkNodesClean()
	b.checkOrdinaryPods()
	if got, want := b.run("get", "clusternetworks", "-o", "jsonpath={.items[*].metadata.name}"), "pods storage"; got != want {
		b.Errorf("after the uninstallation there are the networks %q, want %q", got, want)
	}

	b.setSpec(" {}")
	b.awaitReady()
	b.checkUndisturbed(b.attach())
	b.removeOperator()
}

// uninstallFails runs the kubectl plugin, which must name these Pods.
func (b *bed) uninstallFails(names ...string) {
	b.Helper()
	_, err := b.lab.Kubectl(b.Context(), "patchbay", "uninstall", "--yes")
	if err == nil {
		b.Fatal("kubectl patchbay uninstall has succeeded, want an error, because Pods are attached")
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name) {
			b.Errorf("got error %v, want it to name Pod %s", err, name)
		}
	}
}

// removeOperator uninstalls Patchbay with its definitions, and removes the operator.
func (b *bed) removeOperator() {
	b.Helper()
	b.detach()
	out := b.run("patchbay", "uninstall", "--yes", "--definitions", "--timeout="+waitTimeout.String())
	b.Logf("kubectl patchbay uninstall\n%s", out)
	if strings.Contains(out, v1alpha1.ReasonUninstallFailed) {
		b.Errorf("a step of the uninstallation has failed: %s", out)
	}
	b.awaitNothing("the definitions to be gone", "get", "crd", "-l", "operator.patchbay.io/installation", "-o", "name")
	b.deleteFolder("operator")
	b.removeLabels()
}
