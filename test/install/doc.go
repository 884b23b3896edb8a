// SPDX-License-Identifier: Apache-2.0

// Package install tests, in a lab, each way to install Patchbay: by the operator, by the Helm charts and by
// kustomize. Each stage installs it next to another CNI plugin and without a network named default, changes it,
// removes it, and leaves nodes and cluster as they were. `make test-install` runs it.
package install
