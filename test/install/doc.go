// SPDX-License-Identifier: Apache-2.0

// Package install tests, in a lab, each way to install Patchbay: by kustomize, by the operator and by the Helm charts.
// Each stage installs it next to another CNI plugin and without a network named default, removes it while Pods are
// watched, and leaves nodes and cluster as they were (`make test-install`). TestUpgrade upgrades from the version in
// previous.txt, and goes back, while Pods start and end (`make test-upgrade`).
package install
