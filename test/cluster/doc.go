// SPDX-License-Identifier: Apache-2.0

// Package cluster tests Patchbay as its users meet it: real kubelets on nodes with
// kernels of their own create Pods, and what these got is read from the API, from
// the Pods and from the nodes. `make test-cluster` runs it.
package cluster
