// SPDX-License-Identifier: Apache-2.0

// Package journal stores the node daemon's records on disk. A record is written before the first
// side effect of an ADD, and deleted after the last side effect of a DEL. After a crash of the
// daemon or of the node, the next daemon can therefore complete or roll back each sandbox.
//
// The file is a bbolt database with an exclusive lock, so that at most one daemon works on a
// node. Each change is on disk when its call returns, and concurrent changes share one commit.
// Open verifies the pages of the file, and List verifies a digest of all records, so that a
// flipped bit is reported instead of losing a record.
package journal
