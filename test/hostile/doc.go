// SPDX-License-Identifier: Apache-2.0

// Package hostile attacks a cluster through its API server, with the tokens that attackers
// have: a tenant's, with the role edit, and those of a node that was taken over, which the
// kubelet's own account requests. The garbage collector and the other controllers of
// Kubernetes run beside it, and admission answers. Each object that is not the attacker's is
// tried with every verb, kind of patch and subresource, and must be the same afterwards.
//
// More attacks stand beside what they attack, since they use its parts: those of tenants on
// assignments in package webhook, on Services in svcwatcher; those of nodes on each policy in
// test/apitest, which runs them with the oldest Kubernetes, too, and in controller/internal/addresses;
// those of hub users in placement/agent/internal/works; those of Pods in test/cluster, on nodes of the lab.
// SECURITY.md names all of them.
package hostile
