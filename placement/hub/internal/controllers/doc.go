// SPDX-License-Identifier: Apache-2.0

// Package controllers runs the hub's controllers in a manager. The controller of objects takes one
// object through all stages of placement. Each stage is a function from values to values, and only
// the last one writes:
//
//	read scope      all that is stored about the object    package scope
//	resolve policy  what users request for it              package scope
//	assign          which clusters are to have it          package desiredstate
//	migrate         the next step towards that             package desiredstate
//	render          one Work for each cluster              package desiredstate
//	aggregate       what the clusters report               package desiredstate
//	apply           finalizer, Assignment, Works, status   package apply
//
// Other controllers maintain Clusters (package clusters), approve agents' certificates, and validate
// policies. Objects of any kind are watched as metadata only, and read from the API server when there
// is something to decide. Nothing is ordered to be removed because a cache does not have it.
package controllers
