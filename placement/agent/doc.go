// SPDX-License-Identifier: Apache-2.0

// Package agent is the program patchbay-agent. It runs in a workload cluster: it fetches from the hub what is
// placed there, applies it, and reports back. It dials the hub, and nothing dials it.
// See
package agent
