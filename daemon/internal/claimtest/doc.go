// SPDX-License-Identifier: Apache-2.0

// Package claimtest tests the claiming of addresses, with the product's own store, against
// a real API server: many nodes at once, lost requests and replies, an API server that
// dies meanwhile, nodes that come back. It has no code of its own.
package claimtest
