// SPDX-License-Identifier: Apache-2.0

// Package claimtest has tests that claim addresses from a real API server through the product's own
// store: from many nodes at once, with lost requests and responses, with an API server that is killed,
// and with restarted daemons and deleted nodes. It has only tests.
package claimtest
