// SPDX-License-Identifier: Apache-2.0

// Package drain computes which objects leave a draining cluster next. It is pure: the hub gives it the objects
// that the cluster still has, and lets those leave that it returns.
package drain
