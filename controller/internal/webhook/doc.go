// SPDX-License-Identifier: Apache-2.0

// Package webhook serves the admission webhooks. They are thin over packages network and tenant:
// they decode the object, read the other objects that a rule needs, and encode the answer. Rules
// about a single object are CEL in the API server, and hold without this package.
//
// Register adds all of it to a manager: the handlers, their server, its certificates, and the
// garbage collector of reservations.
package webhook
