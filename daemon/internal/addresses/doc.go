// SPDX-License-Identifier: Apache-2.0

// Package addresses gives the daemon's packages access to the node's address allocator, which
// the daemon can only create when the API server has answered. It uses no client of the API
// server itself.
package addresses
