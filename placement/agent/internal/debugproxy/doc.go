// SPDX-License-Identifier: Apache-2.0

// Package debugproxy lets people at the hub reach the cluster's API server through the agent.
//
// The agent attaches to each replica of the hub by a connection that it opens (Attachments), and answers the hub's
// requests over it (proxy). A request passes if its path may pass (package debugpath), if its namespace has an object
// that the hub has placed, and if the cluster's RBAC allows it to the user patchbay:NAME of the group patchbay:users.
// The agent's own rights do not matter: it only impersonates that user. What a client sends in headers never reaches
// the API server, except a few headers without any identity.
package debugproxy
