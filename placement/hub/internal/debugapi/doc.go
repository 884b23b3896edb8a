// SPDX-License-Identifier: Apache-2.0

// Package debugapi serves the aggregated API debug.placement.patchbay.io, by which people at the hub reach the API
// servers of clusters:
//
//	clusters/NAME/attach                       for the agent of NAME, which keeps a connection here
//	clusters/NAME/proxy/PATH                   for people: PATH at the API server of NAME
//	namespaces/NS/clusters/NAME/proxy/PATH     the same, for people with rights in one namespace of the hub
//
// The hub's API server authenticates its client, and sends the request here with a client certificate of its front
// proxy, which is checked (frontProxy). Both then check RBAC for the resource clusters/proxy: the API server, and this
// server by a SubjectAccessReview. A request that acts on a Pod needs the verb create, also if it is a GET. A role in a
// namespace allows the third path only, and there only requests for this namespace. The agent decides again by its own
// rules, and its cluster by its RBAC (package debugproxy of the agent).
//
// The names attach and proxy matter: the API server ends other requests after 60 s (--request-timeout), but not those
// of the subresources attach, exec, proxy, log and portforward.
//
// Each replica of the hub serves this API, and its API server chooses one for each connection. So an agent attaches to
// each replica. It does not know how many there are: it attaches again and again, with the identities of those that it
// has, and a replica that finds itself there answers 409. A replica that an agent has not found yet answers 503 with
// Retry-After: a client that tries again reaches the same replica, over the API server's connection, until the agent has
// found it. The replicas need neither a list of each other nor connections between them.
package debugapi
