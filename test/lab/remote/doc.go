// SPDX-License-Identifier: Apache-2.0

// Package remote runs commands in another machine of the lab over a byte stream,
// with their input, both outputs and the exit code: what ssh would do, without
// accounts and keys.
//
// One connection carries one command, as frames of a kind (1 byte), a length (4
// bytes, big endian) and that many bytes:
//
//	client: request (JSON of Request), then input frames and one end-of-input
//	server: output and error-output frames, then one exit frame (JSON of exit)
//
// A client that goes away ends the command and its process group.
package remote
