// SPDX-License-Identifier: Apache-2.0

// Package preflight decides whether Patchbay can be installed on a cluster. It computes results from what others
// have read: `patchbayd preflight` reads a node (daemon/internal/nodefacts), `kubectl patchbay preflight` the API
// server (internal/kubectl).
package preflight
