// SPDX-License-Identifier: Apache-2.0

// Package reports remembers what each cluster has reported recently, and up to which time its reports are known
// to be complete. A move relies on replicas only when the reports say for a while that they are available.
//
// A Work has no date: its agent writes it when something changes. The agent's heartbeat dates it. It says when the
// agent wrote the heartbeat, and how old the oldest change is that the agent has not reported then. An agent counts a
// change as unreported from its event until the hub's API server has stored the report. So a heartbeat that does not
// mention a change is stored after the report, and a program that has read the heartbeat reads the report, too, from the API
// server. A cache may show the heartbeat first: package scope reads the Works again before it takes replicas away.
//
// The Tracker never relies on the moment at which a heartbeat arrives, because a broken connection may deliver it
// minutes later. It compares the agent's clock with its own by several heartbeats.
package reports
