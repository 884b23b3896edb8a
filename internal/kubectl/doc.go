// SPDX-License-Identifier: Apache-2.0

// Package kubectl is the program kubectl-patchbay. It is a kubectl plugin: with it on the PATH, `kubectl
// patchbay` asks Patchbay for what no manifest says. See docs/api.md.
package kubectl
