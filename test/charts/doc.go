// SPDX-License-Identifier: Apache-2.0

// Package charts tests the Helm charts in charts/ with the real Helm, which `make helm` builds: that they install
// what the kustomizations do, that each value has an effect, that templates of Pods merge as Kubernetes merges them,
// and that releases come and go on a real API server. It has no code of its own.
package charts
