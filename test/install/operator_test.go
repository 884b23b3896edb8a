// SPDX-License-Identifier: Apache-2.0

//go:build install

package install

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/lab/image"
)

// installOperator installs the operator, and Patchbay by an Installation with this spec.
func (b *bed) installOperator(spec string) {
	b.Helper()
	b.applyFolder("operator")
	b.setSpec(spec)
	b.awaitReady()
}

// setSpec applies the Installation with a spec in YAML.
func (b *bed) setSpec(spec string) {
	b.Helper()
	b.apply("apiVersion: operator.patchbay.io/v1alpha1\nkind: Installation\nmetadata: {name: patchbay}\nspec:" + spec)
}

// awaitReady waits until all of the Installation's spec is ready.
func (b *bed) awaitReady() {
	b.Helper()
	b.awaitInstallation("the Installation to be ready", func(i *v1alpha1.Installation) bool {
		return meta.IsStatusConditionTrue(i.Status.Conditions, v1alpha1.ConditionReady)
	})
}

// awaitInstallation waits until the status of the present spec has something.
func (b *bed) awaitInstallation(what string, done func(*v1alpha1.Installation) bool) *v1alpha1.Installation {
	b.Helper()
	i := &v1alpha1.Installation{}
	b.await(what, func(ctx context.Context) (string, bool) {
		*i = v1alpha1.Installation{}
		out, err := b.lab.Kubectl(ctx, "get", "installation", v1alpha1.InstallationName, "-o", "json")
		if err == nil {
			err = json.Unmarshal([]byte(out), i)
		}
		if err != nil {
			return err.Error(), false
		}
		var state strings.Builder
		fmt.Fprintf(&state, "generation %d of %d", i.Status.ObservedGeneration, i.Generation)
		for _, c := range i.Status.Conditions {
			fmt.Fprintf(&state, "; %s is %s, %s: %s", c.Type, c.Status, c.Reason, c.Message)
		}
		return state.String(), i.Status.ObservedGeneration == i.Generation && done(i)
	})
	return i
}

// changed is a spec with what operators of clusters add to the Pods.
const changed = `
  parts:
    node:
      template:
        metadata: {annotations: {prometheus.io/scrape: "true"}}
        spec:
          volumes: [{name: scratch, emptyDir: {}}]
          containers:
            - name: sidecar
              image: %q
              imagePullPolicy: Never
              command: [sleep, infinity]
              volumeMounts: [{name: scratch, mountPath: /scratch}]
    controller:
      replicas: 1
      template:
        spec:
          serviceAccountName: my-controller
          affinity:
            nodeAffinity:
              requiredDuringSchedulingIgnoredDuringExecution:
                nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%q]}]}]
`

// operator installs by the operator and changes the Installation, while Pods that are attached go on.
func operator(b *bed) {
	b.installOperator(" {}")
	b.checkOrdinaryPods()
	pods := b.attach()

	b.run("create", "serviceaccount", "-n", "patchbay-system", "my-controller")
	b.setSpec(fmt.Sprintf(changed, image.Busybox, b.nodes[1]))
	b.awaitReady()
	for _, node := range b.nodes {
		got := b.run("get", "pods", "-n", "patchbay-system", "-l", "app.kubernetes.io/name=patchbayd", "--field-selector=spec.nodeName="+node,
			"-o", `jsonpath={range .items[*]}{.metadata.annotations.prometheus\.io/scrape}, {.spec.containers[?(@.name=="sidecar")].command[0]}, {.spec.volumes[?(@.name=="scratch")].emptyDir}{end}`)
		if want := "true, sleep, {}"; got != want {
			b.Errorf("%s has daemons with %q, want %q", node, got, want)
		}
	}
	got := b.run("get", "pods", "-n", "patchbay-system", "-l", "app.kubernetes.io/name=patchbay-controller",
		"-o", "jsonpath={range .items[*]}{.spec.nodeName}, {.spec.serviceAccountName}, {end}")
	if want := b.nodes[1] + ", my-controller,"; got != want {
		b.Errorf("the controllers run as %q, want %q", got, want)
	}
	// The controller answers as its new account, and the daemons attach.
	b.startPod(pod{name: "late", node: b.nodes[0], interfaces: toStorage})
	b.ping("late", listenerAddress)
	b.checkOrdinaryPods()
	b.checkUndisturbed(pods)
	b.removeOperator()
}
