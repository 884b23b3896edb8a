// SPDX-License-Identifier: Apache-2.0

//go:build install

package install

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/patchbay-cni/patchbay/test/lab/image"
)

// values change the Pods of the node daemon and the number of controllers.
const values = `
logLevel: debug
parts:
  node:
    template:
      spec:
        containers:
          - {name: sidecar, image: %q, imagePullPolicy: Never, command: [sleep, infinity]}
  controller:
    replicas: 1
`

// chart installs, changes, rolls back and uninstalls with Helm, by the steps of docs/helm.md.
func chart(b *bed) {
	file := filepath.Join(b.TempDir(), "values.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, values, image.Busybox), 0o600); err != nil {
		b.Fatal(err)
	}
	b.run("create", "namespace", "patchbay-system")
	b.run("label", "namespace", "patchbay-system", "pod-security.kubernetes.io/enforce=privileged")
	b.installChart()
	b.checkOrdinaryPods()
	pods := b.attach()
	first := b.workloads()

	b.helm("upgrade", "patchbay", b.path("charts", "patchbay"), "--values", file)
	b.awaitPrograms()
	changed := b.workloads()
	for _, want := range []string{"patchbayd: sidecar patchbayd", "--debug", "patchbay-controller replicas: 1"} {
		if !strings.Contains(changed, want) {
			b.Errorf("after an upgrade with values, got\n%s\nwant it to contain %q", changed, want)
		}
	}
	b.startPod(pod{name: "late", node: b.nodes[0], interfaces: toStorage})
	b.ping("late", listenerAddress)

	b.helm("rollback", "patchbay", "1")
	b.awaitPrograms()
	if now := b.workloads(); now != first {
		b.Errorf("the rollback must bring the first revision back, which was\n%s\ngot\n%s", first, now)
	}
	b.checkUndisturbed(pods)
	b.uninstallChart()

	b.installChart()
	b.checkOrdinaryPods()
	b.checkUndisturbed(b.attach())
	b.uninstallChart()
	b.deleteFolder("crds")
	b.removeLabels()
	b.run("delete", "namespace", "patchbay-system", "--timeout="+waitTimeout.String())
}

// installChart installs the definitions and the programs.
func (b *bed) installChart() {
	b.Helper()
	b.helm("install", "patchbay-crds", b.path("charts", "patchbay-crds"))
	b.helm("install", "patchbay", b.path("charts", "patchbay"))
	b.awaitPrograms()
}

// uninstallChart removes both releases: the definitions stay.
func (b *bed) uninstallChart() {
	b.Helper()
	b.detach()
	b.helm("uninstall", "patchbay")
	b.helm("uninstall", "patchbay-crds")
	b.checkNodesClean()
	if got := b.run("get", "crd", "clusternetworks.danm.io", "-o", "name"); got == "" {
		b.Error("helm uninstall has removed the definitions, want them to stay")
	}
	b.checkOrdinaryPods()
}

// helm runs Helm for the namespace patchbay-system.
func (b *bed) helm(args ...string) {
	b.Helper()
	cmd, err := b.lab.Command(b.Context(), b.path("bin", "helm"), append(args, "--namespace", "patchbay-system")...)
	if err != nil {
		b.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "HOME="+b.TempDir()) // for its cache
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// workloads returns what the values change: containers with their arguments, and numbers of replicas.
func (b *bed) workloads() string {
	b.Helper()
	return b.run("get", "daemonsets,deployments", "-n", "patchbay-system", "-o",
		`jsonpath={range .items[*]}{.metadata.name}: {.spec.template.spec.containers[*].name} {.spec.template.spec.containers[*].args}`+
			`{"\n"}{.metadata.name} replicas: {.spec.replicas}{"\n"}{end}`)
}
