// SPDX-License-Identifier: Apache-2.0

// Package tunnel carries requests from the hub to an agent over a connection that the agent has opened.
//
// The agent sends an HTTP/1.1 request with Upgrade: Protocol. After the answer 101 the roles are reversed: the hub is
// the HTTP/2 client (Session), and the agent is the server (Serve). A request is a stream. An upgraded connection of
// exec, attach or port-forward is a stream, too: its request has UpgradeHeader, and after the answer with
// UpgradedHeader the bodies of request and response are the two directions (see Session.Forward and Proxy).
//
// Both ends send pings, so that each one notices within PingAfter + PingTimeout that the connection is dead. An open
// stream may be silent forever.
package tunnel

import "time"

// Protocol is the token in the header Upgrade.
const Protocol = "patchbay-tunnel-v1"

// MaxStreams is how many requests may be open at a time: at the hub per connection, at the agent over all
// connections.
const MaxStreams = 100

// Timeouts and windows of the connection.
const (
	// ClientTimeout is how long a client may take nothing while data for it waits. Then its stream ends, because the
	// hub keeps up to streamWindow for it.
	ClientTimeout = time.Minute
	// PingAfter is how long a connection may be silent before a ping checks it.
	PingAfter = 10 * time.Second
	// PingTimeout is how long the answer to a ping may take.
	PingTimeout = 5 * time.Second
	// streamWindow is how much of a stream may be on its way, or wait for its reader: with HTTP/2's default of 64 KiB, a
	// round trip of 5 ms limits a stream to 12 MB/s.
	streamWindow = 1 << 20
	// connectionWindow is the same for all streams. It is so large that streams whose readers take nothing leave room
	// for the others. It also bounds the memory of either end; data that is read at once needs none.
	connectionWindow = (MaxStreams + 1) * streamWindow
)

// MaxHeaderBytes is how long the headers of an answer may be. The hub closes the connection of an agent that sends much
// more, so agents send at most half of it.
const MaxHeaderBytes = 64 << 10

// Headers of requests from the hub to the agent.
const (
	// UserHeader has the name of the user at the hub.
	UserHeader = "X-Patchbay-User"
	// NamespaceHeader has the only namespace that the user may reach; absent for all.
	NamespaceHeader = "X-Patchbay-Namespace"
	// UpgradeHeader has the protocol that the client asks for, such as websocket.
	UpgradeHeader = "X-Patchbay-Upgrade"
)

// UpgradedHeader in an answer of the agent has the protocol to which the cluster's API server has switched.
const UpgradedHeader = "X-Patchbay-Upgraded"

// Headers of the request with which an agent attaches, and of its answer.
const (
	// ReplicaHeader in the answer identifies the replica of the hub.
	ReplicaHeader = "X-Patchbay-Replica"
	// AttachedHeader has the comma-separated identities of the replicas to which the agent is attached already. One of
	// these answers 409 instead of 101.
	AttachedHeader = "X-Patchbay-Attached"
)
