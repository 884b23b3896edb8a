// SPDX-License-Identifier: Apache-2.0

// Package desiredstate computes what is to be stored for one object, from its Scope. Each stage is
// a function from values to values:
//
//	Assign           Scope, resolved policy → which clusters are to have the object
//	NextAssignment   that decision, recorded in the Assignment
//	Migrate          the next step from the present targets to those of the decision
//	RenderWorks      one change for each Work
//	AggregateStatus  what clusters report → Assignment.status, and the object's own status
//
// Only Assign does more than compute: it reserves capacity and drain slots, so that two objects
// never get the same. The package has no client and no clock.
package desiredstate
