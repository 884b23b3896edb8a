// SPDX-License-Identifier: Apache-2.0

// Package agent is the program patchbay-agent. It runs in a workload cluster, applies the Works that the hub
// has for the cluster, and reports their state. It dials the hub, and nothing dials it. Package placement
// has the contract between hub and agent.
package agent
