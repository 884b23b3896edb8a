// SPDX-License-Identifier: Apache-2.0

// Package webhook is admission, thin over packages network and tenant: it decodes,
// looks up the other objects that a rule needs, and words the answer. What one object
// decides is CEL in the API server and holds without it.
//
// Register adds all of it to a manager: handlers, their server, certificates, and the
// sweeper that frees reservations of networks that are gone.
package webhook
