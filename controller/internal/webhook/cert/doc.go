// SPDX-License-Identifier: Apache-2.0

// Package cert makes the certificates of the admission webhooks, keeps them in a
// Secret that the replicas share, puts their authorities into the webhook
// configurations and renews all of it, without a restart and without a moment in
// which an API server trusts only what nobody serves any more: a new authority is
// trusted for a while before the first certificate that it signed is served, and the
// old one is trusted until it expires. (open-policy-agent/cert-controller replaces
// the authority at once and waits for kubelet to mount the new certificate.) The same
// goes for the tokens in the webhooks' paths.
package cert
