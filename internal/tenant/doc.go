// SPDX-License-Identifier: Apache-2.0

// Package tenant computes the assignments of TenantConfigs: the TenantConfigs of a namespace, the device
// and VNI of a TenantNetwork, the reservations, and the changes of a TenantConfig that its reservations
// allow.
//
// The package is pure. Package controller/internal/reserve stores the reservations.
package tenant
