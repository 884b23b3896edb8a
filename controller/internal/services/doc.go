// SPDX-License-Identifier: Apache-2.0

// Package services makes the EndpointSlices of Services in the API server equal what package
// svcwatcher computes.
//
// It keeps no state: each reconciliation starts from the caches and ends with the missing writes. A
// write names the version that it was planned from, so a stale cache costs a retry, and no
// endpoint.
package services
