// SPDX-License-Identifier: Apache-2.0

// Package join gets an agent its credentials at the hub, and keeps them fresh.
//
// A join token (a bootstrap token, short-lived, for one name) is good for one thing: a
// CertificateSigningRequest, which the hub approves when an infrastructure person has
// accepted the Cluster. From then on the certificate renews itself; client-go's
// certificate manager does both. Certificate and key are in a Secret beside the agent
// and leave the cluster in no other way than as a TLS client's proof.
//
// Behind a balancer that ends TLS certificates prove nothing. There the join token is
// good for a short-lived token of the cluster's ServiceAccount at the hub, which renews
// itself likewise (Tokens).
package join
