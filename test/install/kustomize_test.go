// SPDX-License-Identifier: Apache-2.0

//go:build install

package install

// kustomize installs and uninstalls by the steps of docs/install.md.
func kustomize(b *bed) {
	for range 2 { // the second time is a re-installation
		b.applyFolder("crds")
		b.applyFolder("workloads")
		b.awaitPrograms()
		b.checkOrdinaryPods()
		b.checkUndisturbed(b.attach())

		b.detach()
		b.deleteFolder("workloads")
		b.deleteFolder("crds")
		b.removeLabels()
		b.checkClean()
	}
}
