// SPDX-License-Identifier: Apache-2.0

// Package apply writes the desired state of one object to the API server: the object's finalizer
// and status, its Assignment, its Works, and the Secrets beside them. Everything is compared before
// it is written. Expectations remember the writes that the cache does not have yet.
package apply
