// SPDX-License-Identifier: Apache-2.0

// Package danmep keeps the DanmEps of this node in line with the journal.
//
// Publisher creates the DanmEps of attached sandboxes and deletes those of released ones. Watcher
// finds DanmEps that are missing, and GC deletes DanmEps that no record of the journal has. Reporter
// reports the Pods whose DanmEps cannot be created.
package danmep
