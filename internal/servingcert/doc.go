// SPDX-License-Identifier: Apache-2.0

// Package servingcert creates the certificates that a program serves to API servers, for admission
// webhooks or for an aggregated API. It stores them in a Secret that the replicas share, injects
// their authorities into the webhook configurations (or has its user publish them), and renews all
// of it without a restart. An API server always trusts the certificate that is served: a new
// authority is injected some time before the first certificate that it signed is served, and the
// old one stays until it expires. (open-policy-agent/cert-controller replaces the authority at
// once, and serves the new certificate when kubelet has updated a mounted Secret.) Tokens in the
// webhooks' paths are rotated in the same way.
package servingcert
