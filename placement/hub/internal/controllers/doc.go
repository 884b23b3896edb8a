// SPDX-License-Identifier: Apache-2.0

// Package controllers runs the controllers at the hub. One reconciler takes one object through
// all of placement, in this order, each step from what is stored:
//
//	resolve    policies and inventory → what is wanted of the object     (package policy)
//	move       wanted, asked and reported → what is asked next           (package mover)
//	assign     one write of the Assignment
//	render     object, Customizations, what is asked → one Work per cluster
//	summarise  Works' reports → Assignment.status, and the object's own status
//	lifecycle  the finalizer of an object that a cluster has
//
// Three smaller ones look after Clusters (namespace, rights, Reachable), certificate
// requests of agents, and the policies' own conditions.
//
// Objects of any kind are watched as metadata only, and read when there is something
// to decide; kinds come and go with their definitions. Nothing is ever ordered to be
// removed because a cache does not have it. Everything compares before it writes.
package controllers
