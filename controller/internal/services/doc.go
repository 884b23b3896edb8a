// SPDX-License-Identifier: Apache-2.0

// Package services makes the EndpointSlices in an API server what package svcwatcher
// says that they should be.
//
// It keeps nothing: each look at a Service starts from the caches and ends with the
// writes that are missing. A write names the version that it was planned from, so a
// cache that lags costs a second look and no endpoint.
package services
