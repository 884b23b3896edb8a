// SPDX-License-Identifier: Apache-2.0

//go:build install

package install

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
)

// phase changes versions while Pods come, go and ping.
type phase struct {
	name   string
	change func(*bed)
	// want is what runs then.
	want deployed
}

// upgrade upgrades from the previous version to the current one, back, and again, one program after the other. All the
// time, Pods start and end on both nodes, and two others ping each other. Between two steps, programs of different
// versions work together: docs/versioning.md names the phases.
func upgrade(b *bed) {
	previous, current := b.releases()
	b.applyRelease(previous, "crds", "")
	b.applyRelease(previous, "workloads", "")
	b.runPhases(phases(previous, current, b.nodes))
	b.detach()
	b.deleteFolder("workloads")
	b.deleteFolder("crds")
	b.removeLabels()
}

// releases returns the previous and the current version.
func (b *bed) releases() (previous, current release) {
	b.Helper()
	if len(b.nodes) != nodes {
		b.Fatalf("the lab has the nodes %v, want %d", b.nodes, nodes)
	}
	previous, current = b.previous(), b.current()
	if previous.version == current.version {
		b.Fatalf("both versions are %s, want two", current.version)
	}
	return previous, current
}

// runPhases waits for the first phase, and starts Pods that ping, and those that come and go. Then it runs the other
// phases, in each of which Pods start and end on all nodes.
func (b *bed) runPhases(all []phase) {
	b.Helper()
	b.awaitPrograms()
	pair := b.startPair()
	churn := b.startChurn()
	for _, p := range all {
		ok := b.Run(p.name, func(t *testing.T) {
			b := *b
			b.T = t
			if p.change != nil {
				p.change(&b)
			}
			b.awaitDeployed(p.want)
			b.awaitRounds(churn)
			b.awaitDeployed(p.want) // still
			b.checkPair(pair)
		})
		if !ok {
			b.FailNow() // the next phase would begin with what this one has left
		}
	}
	b.endChurn(churn)
	b.checkPair(pair)
}

// phases returns the steps of an upgrade, of the way back, and of an upgrade as docs/install.md has it.
func phases(previous, current release, nodes []string) []phase {
	applied := func(r release, definitions bool, more string) func(*bed) {
		return func(b *bed) {
			if definitions {
				b.applyRelease(r, "crds", "")
			}
			b.applyRelease(r, "workloads", more)
		}
	}
	replaced := func(node string) func(*bed) { return func(b *bed) { b.replaceDaemon(node) } }
	plugins := func(r release) func(*bed) { return func(b *bed) { b.replacePlugin(r) } }
	mixed, reverse := []release{current, previous}, []release{previous, current}
	return []phase{
		{"Previous", nil, deployed{previous, twice(previous), twice(previous)}},
		{"ControllerNewer", applied(current, true, onDelete), deployed{current, twice(previous), twice(previous)}},
		{"OneDaemonNewer", replaced(nodes[0]), deployed{current, mixed, mixed}},
		{"Upgraded", replaced(nodes[1]), deployed{current, twice(current), twice(current)}},
		{"PluginOlder", plugins(previous), deployed{current, twice(current), twice(previous)}},
		// The definitions stay, because those of the previous version may drop fields.
		{"ControllerOlder", applied(previous, false, onDelete), deployed{previous, twice(current), twice(previous)}},
		{"OneDaemonOlder", replaced(nodes[0]), deployed{previous, reverse, twice(previous)}},
		{"WentBack", replaced(nodes[1]), deployed{previous, twice(previous), twice(previous)}},
		{"PluginNewer", plugins(current), deployed{previous, twice(previous), twice(current)}},
		{"UpgradedAgain", applied(current, true, ""), deployed{current, twice(current), twice(current)}},
	}
}

// twice returns a version for each of two nodes.
func twice(r release) []release { return []release{r, r} }

// upgradeByOperator upgrades by the operator, goes back by the steps of docs/operator.md, and upgrades again.
func upgradeByOperator(b *bed) {
	previous, current := b.releases()
	b.applyRelease(previous, "operator", "")
	b.setSpec(" {}")
	b.awaitReady()
	newOperator := func(b *bed) {
		b.applyRelease(current, "operator", "")
		b.awaitInstalled(current)
	}
	b.runPhases([]phase{
		{"Previous", nil, deployed{previous, twice(previous), twice(previous)}},
		{"Upgraded", newOperator, deployed{current, twice(current), twice(current)}},
		{"ControllerOlder", func(b *bed) {
			b.setSpec(fmt.Sprintf(`
  parts: {controller: {template: {spec: {containers: [{name: patchbay-controller, image: "patchbay.local/patchbay-controller:%s"}]}}}}`, previous.tag))
			b.awaitReady()
		}, deployed{previous, twice(current), twice(current)}},
		{"WentBack", func(b *bed) {
			b.setSpec(fmt.Sprintf(" {version: %q}", previous.version))
			b.applyRelease(previous, "operator", "")
			b.awaitInstalled(previous)
			b.run("patch", "installation", v1alpha1.InstallationName, "--type=json", "-p", `[{"op":"remove","path":"/spec/version"}]`)
			b.awaitReady()
		}, deployed{previous, twice(previous), twice(previous)}},
		{"UpgradedAgain", newOperator, deployed{current, twice(current), twice(current)}},
	})
	b.removeOperator()
}

// awaitInstalled waits until the Installation is ready in a version.
func (b *bed) awaitInstalled(r release) {
	b.Helper()
	b.awaitInstallation("the Installation to be of version "+r.version, func(i *v1alpha1.Installation) bool {
		return i.Status.Version == r.version && meta.IsStatusConditionTrue(i.Status.Conditions, v1alpha1.ConditionReady)
	})
}
