// SPDX-License-Identifier: Apache-2.0

// Package controller is the program patchbay-controller. It does what the cluster needs once, not on each node:
// it frees addresses that nobody covers, cleans up after nodes that are gone, and
// says on each network how its addresses are. It runs as a Deployment of two
// replicas, of which one leads, see deployments/.
package controller
