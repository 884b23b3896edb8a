// SPDX-License-Identifier: Apache-2.0

// Package journal keeps the node daemon's records on disk. A record is written
// before the first side effect of an ADD and goes after the last one of a DEL,
// so that a daemon that was killed, or a node that lost power, can undo what it
// began. The file is a bbolt database with an exclusive lock: two daemons never
// work on one node. Every change is on disk when its call returns; changes that
// are waiting at the same time share one commit. The file is checked when it is opened,
// and a digest of all records when they are listed: a flipped bit is reported, and no
// record is lost to it in silence.
package journal
