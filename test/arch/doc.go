// SPDX-License-Identifier: Apache-2.0

// Package arch holds the laws of ARCHITECTURE.md as tests: who may import whom,
// and that every package says what it is for. It has no code of its own.
package arch
