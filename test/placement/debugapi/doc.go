// SPDX-License-Identifier: Apache-2.0

// Package debugapi has the tests of the way from a hub's API server to that of a cluster: `patchbay-hub up`, an agent,
// and a real API server as the cluster, whose kubelet is a fake.
package debugapi
