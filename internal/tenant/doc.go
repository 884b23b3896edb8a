// SPDX-License-Identifier: Apache-2.0

// Package tenant is the arithmetic of TenantConfigs: which of them is for a
// namespace, which device and virtual network ID a TenantNetwork gets, who has
// what, and what of a TenantConfig cannot be taken away.
//
// It is pure: package controller/internal/reserve stores what is decided here.
package tenant
