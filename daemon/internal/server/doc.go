// SPDX-License-Identifier: Apache-2.0

// Package server is the daemon's end of the plugin's socket: it reads requests,
// checks them again, hands them to the use cases, and turns results and errors
// into what the runtime's version of CNI knows. It also replays the DELs that
// the plugin recorded while no daemon was there, and keeps the heartbeat by
// which the plugin answers STATUS then.
package server
