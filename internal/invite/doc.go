// SPDX-License-Identifier: Apache-2.0

// Package invite makes the join token of one cluster and says how it is used.
package invite
