// SPDX-License-Identifier: Apache-2.0

// Package ipamtest tests stores of networks' address management, and what is
// built on them: a conformance suite that every allocator.Store passes, a store in
// memory, faults that can be put before any store, and a check of who covers
// which bit.
package ipamtest
