// SPDX-License-Identifier: Apache-2.0

// Package server serves the Unix socket on which the plugin sends its requests. It validates each
// request again, passes it to package attach, and converts the result or the error to the runtime's
// version of CNI. It also replays the DELs that the plugin stored while no daemon ran, and writes
// the heartbeat file from which the plugin answers STATUS during a restart of the daemon.
package server
