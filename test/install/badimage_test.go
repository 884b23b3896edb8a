// SPDX-License-Identifier: Apache-2.0

//go:build install

package install

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
)

const (
	// allAtOnce lets a roll-out replace the daemons of all nodes at the same time.
	allAtOnce = `
  parts:
    node:
      updateStrategy: {maxUnavailable: 100%}
`
	// missingImage is an image that no node and no registry has.
	missingImage = "patchbay.local/patchbayd:missing"
	withoutImage = allAtOnce + `
      template: {spec: {containers: [{name: patchbayd, image: "` + missingImage + `"}]}}
`
)

// badImage rolls an image out that cannot be pulled: the roll-out stops at the first node, the Installation says why,
// and the other nodes work. The earlier spec repairs the node.
func badImage(b *bed) {
	b.installOperator(allAtOnce)
	pods := b.attach()

	b.setSpec(withoutImage)
	i := b.awaitInstallation("the roll-out to stop", func(i *v1alpha1.Installation) bool {
		c := meta.FindStatusCondition(i.Status.Conditions, v1alpha1.ConditionNode)
		return c != nil && c.Reason == v1alpha1.ReasonRolloutStopped
	})
	failed := b.failedDaemons()
	if len(failed) != 1 {
		b.Fatalf("the image is on %v, want one node", failed)
	}
	name, node, _ := strings.Cut(failed[0], " ")
	for _, kind := range []string{v1alpha1.ConditionNode, v1alpha1.ConditionReady} {
		message := meta.FindStatusCondition(i.Status.Conditions, kind).Message
		for _, part := range []string{"node " + node, "Pod " + name, "container patchbayd: ", "ImagePull"} {
			if !strings.Contains(message, part) {
				b.Errorf("condition %s is %q, want it to contain %q", kind, message, part)
			}
		}
	}

	b.apply(pod{name: "waiting", node: node, interfaces: toStorage}.manifest())
	for _, other := range b.nodes {
		if other == node {
			continue
		}
		b.startPod(pod{name: "ordinary", node: other})
		b.startPod(pod{name: "other", node: other, interfaces: toStorage})
		b.ping("other", listenerAddress)
	}
	if now := b.failedDaemons(); !slices.Equal(now, failed) {
		b.Errorf("the image is on %v after Pods have started, want %v", now, failed)
	}

	b.setSpec(allAtOnce)
	b.awaitReady()
	if now := b.failedDaemons(); len(now) > 0 {
		b.Errorf("the image is on %v, want none", now)
	}
	b.awaitPod("waiting")
	b.ping("waiting", listenerAddress)
	b.checkUndisturbed(pods)
	b.removeOperator()
}

// failedDaemons returns the Pods of the node daemon with missingImage, and their nodes.
func (b *bed) failedDaemons() []string {
	b.Helper()
	out := b.run("get", "pods", "-n", "patchbay-system", "-l", "app.kubernetes.io/name=patchbayd", "-o",
		`jsonpath={range .items[?(@.spec.containers[0].image=="`+missingImage+`")]}{.metadata.name} {.spec.nodeName}{"\n"}{end}`)
	return strings.FieldsFunc(out, func(r rune) bool { return r == '\n' })
}
