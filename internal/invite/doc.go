// SPDX-License-Identifier: Apache-2.0

// Package invite creates the join token of a cluster, and prints the commands that use it.
package invite
