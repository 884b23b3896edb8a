// SPDX-License-Identifier: Apache-2.0

// Package rollout computes the progress of a part from its workload and Pods, and how far the node daemon's
// roll-out may go. It has no client: the API server's objects and the time are its input.
package rollout
