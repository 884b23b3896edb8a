// SPDX-License-Identifier: Apache-2.0

// Package kinds identifies what the hub places: the placeable kinds that its API server serves,
// and the keys of objects, of their Assignments and of their Works.
package kinds
