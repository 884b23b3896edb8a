// SPDX-License-Identifier: Apache-2.0

// Package join gets an agent's credentials at the hub, and renews them.
//
// With a join token (a short-lived bootstrap token for one cluster name) an agent can only create a
// CertificateSigningRequest, which the hub approves after an admin has accepted the Cluster.
// CertificateCredentials request the certificate and renew it with client-go's certificate manager.
// Certificate and key are in a Secret beside the agent and never leave the cluster.
//
// Behind a load balancer that terminates TLS, client certificates do not work. There TokenCredentials use
// the join token for a short-lived token of the cluster's ServiceAccount at the hub, and renew that.
package join
