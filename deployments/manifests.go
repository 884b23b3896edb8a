// SPDX-License-Identifier: Apache-2.0

// Package deployments holds the manifests of Patchbay for a cluster, for programs that install them.
package deployments

import "embed"

// Cluster returns the folders of the kustomizations crds and workloads, and of those that they name.
func Cluster() embed.FS { return cluster }

//go:embed admission crds controller daemon roles webhooks workloads
var cluster embed.FS
