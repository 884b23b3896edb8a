// SPDX-License-Identifier: Apache-2.0

// Package reserve stores what package tenant decides: reservations in the status of
// TenantConfigs.
//
// All that wait in one process become one write (group commit), with the
// resourceVersion; when another replica was first, the TenantConfigs are read again
// and everything is decided afresh after a random wait that doubles. There is no
// lock and no leader. After a lost reply the same happens: a reservation is found
// again by its token.
package reserve
