// SPDX-License-Identifier: Apache-2.0

// Package render computes from an Installation the objects that the operator applies, in their order. It has
// no client and no clock: the same Installation always has the same objects. What cannot work is an error,
// and then there are no objects.
package render
