// SPDX-License-Identifier: Apache-2.0

// Package reserve stores the decisions of package tenant: reservations in the status of TenantConfigs.
//
// All waiting requests of a process become one write (package groupcommit) with the resourceVersion of
// the read. After a conflict with another replica, and after a lost response, the TenantConfigs are read
// and the requests are decided again. A reservation of a lost write is recognised by its token. There is
// no lock and no leader.
package reserve
