// SPDX-License-Identifier: Apache-2.0

// Package placement holds the manifests of hubs and their clusters, for programs that
// install them.
package placement

import "embed"

// Hub returns the folders crds and hub: what a hub's API server needs.
func Hub() embed.FS { return hub }

//go:embed crds/*.yaml hub/*.yaml
var hub embed.FS

// Agent returns the folders agent and agent-debug, and the definition of AppliedWork: what a
// workload cluster needs.
func Agent() embed.FS { return agent }

//go:embed crds/placement.patchbay.io_appliedworks.yaml agent/*.yaml agent-debug/rbac.yaml
var agent embed.FS
