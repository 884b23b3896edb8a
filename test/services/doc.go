// SPDX-License-Identifier: Apache-2.0

// Package services tests Services on networks with the real controller, as a process,
// against a real API server: whatever happens to Services, Pods, DanmEps and networks
// ends in the right slices. Folder scene plays the rest of the cluster.
package services
