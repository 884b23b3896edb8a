// SPDX-License-Identifier: Apache-2.0

// Package kubectl is the kubectl plugin kubectl-patchbay. With it in the PATH, `kubectl patchbay` repairs
// networks, joins clusters to a hub and manages placed objects. See docs/api.md and docs/placement.md.
package kubectl
