// SPDX-License-Identifier: Apache-2.0

// Package ipamtest helps to test implementations and users of allocator.Store. It has a conformance
// suite that every implementation must pass, an in-memory store, a store that injects faults, and a
// check of the bitmap against entries and DanmEps.
package ipamtest
